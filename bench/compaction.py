"""Measures how much of what an agent needed later survives a compaction.
Each compaction recorded in real agent sessions is repeated by Recto from the raw messages, with as many tokens as the
recorded summary has and nothing else in the prompt. The result is compared with the recorded summary, and with the
newest messages that fit in as many tokens plus recall.

Four things are counted: files that had been seen and were touched afterwards, and whether they are named in what
remains; whether recall finds those that are not; the facts and entities that are in it; and how much of what was read
again afterwards need not have been, because its newest content was one pointer away and had not been edited since.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from rich.progress import track

from bench.compaction_data import Compaction, Recorded, recorded
from bench.measure import figures, progress
from recto.config import load
from recto.config.factory import make_chat_model, open_session
from recto.context.compaction.fidelity import measure_fidelity, salient_entities
from recto.context.compaction.protocols import ChatModel
from recto.context.facts.extraction import extract_facts
from recto.context.facts.files import track_files
from recto.context.facts.types import MessageView, message_views
from recto.engine.session import Session
from recto.models import weights
from recto.stores.memory import MemoryStore

MODEL = "gpt-4o"
HUGE = {MODEL: {"window": 4_000_000, "max_input": 4_000_000}}
RECORDED, EXTRACTIVE, EMBEDDED, SLIDING = (
    "recorded summary",
    "Recto, extractive",
    "Recto, embedded model",
    "newest messages, and recall",
)
HITS = 5
QUESTIONS = 12
"""Files of one compaction that recall is asked for at most."""


@dataclass(slots=True)
class Score:
    """What was counted for one way, over all compactions."""

    files: int = 0
    named: int = 0
    found: int = 0
    asked: int = 0
    entities: list[float] = field(default_factory=list)
    ledger: list[float] = field(default_factory=list)
    reread: int = 0
    spared: int = 0
    before: int = 0
    tokens: int = 0
    seconds: float = 0.0
    calls: int = 0
    used: int = 0


def run(quick: bool) -> list[dict]:
    sessions = list(recorded())[: 3 if quick else None]
    model = _embedded(quick)
    ways = (RECORDED, EXTRACTIVE, *((EMBEDDED,) if model else ()), SLIDING)
    scores = {way: Score() for way in ways}
    number = sum(len(session.compactions) for session in sessions)
    for session in track(sessions, description="compactions", console=progress()):
        for way in (EXTRACTIVE, EMBEDDED):
            if way in scores:
                _redo(session, scores, way, model if way == EMBEDDED else None)
    if model is not None:
        model.close()
    return [_row(way, scores[way], number) for way in ways]


def _row(way: str, score: Score, number: int) -> dict:
    said = [f"{number} compactions, {score.files} files, {score.before / max(score.tokens, 1):.0f} times shorter"]
    said += [f"{score.used} of {score.calls} texts by the model used"] if score.calls else []
    said += [f"{score.seconds / max(number, 1):.1f} s each"] if score.seconds else []
    values = {
        "files named": score.named / max(score.files, 1),
        "named or found": max(score.named / max(score.files, 1), score.found / max(score.asked, 1)),
        "entities": sum(score.entities) / max(len(score.entities), 1),
        "ledger": sum(score.ledger) / max(len(score.ledger), 1),
        "read again": 1 - score.spared / max(score.reread, 1),
        "tokens": score.tokens // max(number, 1),
    }
    return figures(way, values, "; ".join(said))


def _redo(recording: Recorded, scores: dict[str, Score], way: str, model: ChatModel | None) -> None:
    """Goes through a session and compacts it where it was compacted."""
    settings = load(
        environ={},
        arguments={
            "model": MODEL,
            "models": HUGE,
            "recall": {"embedder": {"use": "none"}, "background": False},
            "compress": {"background": False, "model": {"seconds": 600.0, "input_tokens": 2_000}},
        },
    )
    store = MemoryStore()
    heard: list[MessageView] = []
    with open_session(settings, store, model=model) as session:
        for compaction in recording.compactions:
            entries = session.append_all(compaction.before)
            heard += message_views(entries)
            most = session.count(compaction.summary)
            rules = session.window.rules
            small = replace(rules.compact, keep_recent_tokens=0, summary_tokens=most, handoff_tokens=0)
            protection = replace(rules.protection, task=False, min_recent_messages=0)
            session.window.configure(rules=replace(rules, compact=small, protection=protection))
            began = time.perf_counter()
            session.compact()
            scores[way].seconds += time.perf_counter() - began
            summary = session.window.state.summary
            text = summary.text if summary is not None else ""
            _count_attempts(session, scores[way])
            case = _Case(compaction, heard, session)
            case.judge(scores[way], text, pointers=True)
            if way == EXTRACTIVE:
                case.judge(scores[RECORDED], compaction.summary, recalls=False)
                case.judge(scores[SLIDING], _newest(heard, most, session.count))


def _count_attempts(session: Session, score: Score) -> None:
    for made in session.report().compressions[:1]:
        tried = [attempt for attempt in made.attempts if not attempt.startswith("extractive")]
        score.calls += len(tried)
        score.used += sum(attempt.endswith(": used") for attempt in tried)


@dataclass(slots=True)
class _Case:
    """One compaction, and what is known of it."""

    compaction: Compaction
    heard: Sequence[MessageView]
    session: Session
    _found: dict[str, bool] = field(default_factory=dict)

    def judge(self, score: Score, text: str, *, pointers: bool = False, recalls: bool = True) -> None:
        """Counts what of this compaction stands in a text, or can be found from it."""
        seen = list(self._seen())
        score.files += len(seen)
        missed = [path for path in seen if not _names(text, path)]
        score.named += len(seen) - len(missed)
        asked = seen[:QUESTIONS]
        score.asked += len(asked)
        score.found += sum(path not in missed or (recalls and self._is_found(path)) for path in asked)
        facts = [fact for fact in extract_facts(self.heard) if fact.open]
        fidelity = measure_fidelity(text, facts, salient_entities(self.heard))
        score.entities.append(fidelity.entities)
        score.ledger.append(fidelity.ledger)
        score.before += sum(self.session.count(one.text) for one in self.heard)
        score.tokens += self.session.count(text)
        for tokens, spared in self._read_again(text if pointers else ""):
            score.reread += tokens
            score.spared += tokens if spared else 0

    def _seen(self) -> Iterator[str]:
        """Files that were touched afterwards and had been seen before."""
        before = "\n".join([one.text for one in self.heard] + [c.arguments for one in self.heard for c in one.calls])
        for path in dict.fromkeys(later.path for later in self.compaction.after):
            if _names(before, path):
                yield path

    def _is_found(self, path: str) -> bool:
        """Whether recall finds a message that names the file when it is asked for it."""
        if path not in self._found:
            hits = self.session.recall(_tail(path), most=HITS).hits
            self._found[path] = any(_names(hit.text, path) for hit in hits)
        return self._found[path]

    def _read_again(self, text: str) -> Iterator[tuple[int, bool]]:
        """What was read again afterwards, in tokens, and whether its content was a pointer away instead."""
        held = {_tail(file.path): file for file in track_files(self.heard) if file.last_read}
        edited: set[str] = set()
        for later in self.compaction.after:
            file = held.get(_tail(later.path)) or held.get(_base(later.path))
            if later.edits:
                edited.add(later.path)
            elif later.reads and file is not None and later.output:
                pointer = file.last_read >= file.last and f"{file.last_read})" in text and _names(text, later.path)
                yield self.session.count(later.output), pointer and later.path not in edited


def _names(text: str, path: str) -> bool:
    """Whether a text names a file, by its name and not as a part of another."""
    return re.search(rf"(?<![\w.-]){re.escape(_base(path))}(?![\w-]|\.\w)", text) is not None


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _tail(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _newest(heard: Sequence[MessageView], most: int, count: Callable[[str], int]) -> str:
    """The newest messages that fit, whole."""
    kept: list[str] = []
    for one in reversed(heard):
        most -= count(one.text) + 4
        if most < 0:
            break
        kept.append(one.text)
    return "\n".join(reversed(kept))


def _embedded(quick: bool) -> ChatModel | None:
    if quick or weights.find("smollm2") is None:
        return None
    given = {"use": "embedded", "model": "smollm2", "seconds": 600.0}
    return make_chat_model(load(environ={}, arguments={"compress": {"model": given}}))
