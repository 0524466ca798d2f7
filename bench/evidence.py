"""Measures how often the prompt for a question contains the messages that answer it, after a long conversation.
The conversations and questions are those of BEAM and LongMemEval, two public data sets, in windows of 8 K and 32 K
tokens. Recto with recall, with recall by words alone and without recall is compared with plain trimming, which keeps
the newest messages that fit, and with the whole history.

The conversation goes through the window turn by turn, and each question is asked at the end. A message counts as
*whole*, or as *in part* if it is at least quoted in part with a pointer to the rest. The whole history is what a prompt
without a token limit would contain. Each question is asked in a copy of the session, so that no question affects
another.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import TemporaryDirectory

from rich.progress import track

from bench.measure import figures, progress
from bench.recall import WHEN, draft, embedder
from bench.recall_data import DATA, Chat, ChatQuestion, Conversation, Turn, chat_questions, chats, conversations
from recto.config import Settings, load
from recto.config.factory import open_session
from recto.engine.session import Session
from recto.formats import read
from recto.formats.openai_chat import CHAT
from recto.recall.indexer import Indexer
from recto.recall.protocols import Embedder
from recto.recall.stemmer import PorterLexicon
from recto.stores.memory import MemoryStore
from recto.stores.sqlite.index import SqliteIndex
from recto.transcript.entries import Draft, Entry
from recto.transcript.session_keys import pointer_to

WINDOWS = (8_192, 32_768)
MODEL = "gpt-4o"
SESSION = "agent:bench:evidence"
WAYS = ("plain trimming", "sliding window, no recall", "recall, words alone", "recall", "the whole history")
TRIMMING, SLIDING, WORDS, RECALL, WHOLE = WAYS
EVERY = 10
"""Of the questions of LongMemEval, each of which has a long conversation of its own, one in so many is asked."""
_MINUTE = 60_000_000
_SPACE = re.compile(r"\s+")
_QUOTED = re.compile(r"^> ?", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a conversation, and when it was said."""

    turn: Turn
    ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked at the end, and the places of the messages that answer it."""

    text: str
    ts: int
    gold: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A conversation and what is asked about it."""

    said: tuple[Said, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one question's prompt held."""

    in_part: float
    whole: float
    """Shares of the messages that answer it."""
    tokens: int
    recalled: int


def run(quick: bool) -> list[dict]:
    if not DATA.is_dir():
        return [figures("evidence", {"questions": 0}, "the sets are not here")]
    talks, asked = conversations(), [one for one in chat_questions() if one.evidence][::EVERY]
    known = chats()
    stories = {
        "BEAM": [_of_beam(talk) for talk in (talks[::10] if quick else talks)],
        "LongMemEval": [_of_chats(one, known) for one in (asked[::10] if quick else asked)],
    }
    rows = []
    with get_context("spawn").Pool() as pool:
        for name, some in stories.items():
            found: dict[tuple[int, str], list[Outcome]] = defaultdict(list)
            done = pool.imap_unordered(_outcomes, some)
            for outcomes in track(done, f"evidence, {name}", total=len(some), console=progress()):
                for key, of in outcomes.items():
                    found[key] += of
            rows += shown(name, found)
    return rows


def _of_beam(talk: Conversation) -> Story:
    """Its messages have no dates; they come a minute apart."""
    said = tuple(Said(turn=turn, ts=WHEN + place * _MINUTE) for place, turn in enumerate(talk.turns))
    end = WHEN + len(said) * _MINUTE
    return Story(said=said, questions=tuple(Question(text=one.text, ts=end, gold=one.gold) for one in talk.questions))


def _of_chats(asked: ChatQuestion, known: Mapping[str, Chat]) -> Story:
    """The sessions of its haystack one after the other, as they were held."""
    held = sorted((known[name] for name in asked.haystack), key=lambda chat: (chat.ts, chat.name))
    turns = [(chat, place, turn) for chat in held for place, turn in enumerate(chat.turns)]
    said = tuple(Said(turn=turn, ts=chat.ts + place * _MINUTE) for chat, place, turn in turns)
    gold = frozenset(at for at, (chat, place, _) in enumerate(turns) if (chat.name, place) in asked.evidence)
    return Story(said=said, questions=(Question(text=asked.text, ts=asked.ts, gold=gold),))


def _outcomes(story: Story) -> dict[tuple[int, str], list[Outcome]]:
    found = {}
    for window in WINDOWS:
        for way in (SLIDING, WORDS, RECALL):
            if way != RECALL or _embedder() is not None:
                with TemporaryDirectory() as folder:
                    telling = Telling(window, way, Path(folder))
                    entries = telling.feed(story.said)
                    found[window, way] = [telling.ask(one, entries) for one in story.questions]
        with open_session(_settings(window, SLIDING)) as session:
            room = session.window.budget.input_budget
            for way, most in ((TRIMMING, room), (WHOLE, None)):
                found[window, way] = [trimmed(session, story.said, one, most) for one in story.questions]
    return found


class Telling:
    """A session that hears a conversation, and copies of it that are asked."""

    def __init__(self, window: int, way: str, folder: Path) -> None:
        self._settings = _settings(window, way)
        self._listening = _settings(window, way, inject=False)
        self._recalls = way != SLIDING
        self._meaning = _embedder() if way == RECALL else None
        self._folder = folder
        self._store = MemoryStore()

    def feed(self, said: Sequence[Said]) -> list[Entry]:
        """A prompt is built whenever the user has spoken, as it is before a model answers.

        What would come back for it is gone when the question is asked, and is not looked for.
        """
        entries = []
        with closing(self._index("fed")) as index, self._opened(self._listening, self._store, index) as session:
            indexer = self._indexer(self._store, index)
            for place, one in enumerate(said):
                entries += self._store.append(SESSION, [counted(session, f"m{place}", one)])
                if indexer is not None:
                    indexer.catch_up(SESSION)  # as its own thread would have by now
                if one.turn.role == "user":
                    session.prompt()
        return entries

    def ask(self, question: Question, entries: Sequence[Entry]) -> Outcome:
        """In a copy of the session and of its index, so that nobody else hears it."""
        store = MemoryStore()
        terms = dict(self._store.terms(SESSION))  # a store hands them out apart
        store.append(SESSION, [as_draft(entry, terms.get(entry.seq, b"")) for entry in self._store.read(SESSION)])
        copytree(self._folder / "fed", self._folder / "asked")
        with closing(self._index("asked")) as index, self._opened(self._settings, store, index) as session:
            asked = Said(turn=Turn(role="user", text=question.text), ts=question.ts)
            store.append(SESSION, [counted(session, "question", asked)])
            prompt = session.prompt()
            recalled = session.window.builder.extras.recalled
            texts = [read(raw, CHAT).text for raw in prompt.raw]
        rmtree(self._folder / "asked")
        gold = [entries[place] for place in question.gold]
        whole, in_part = evidence(texts, {pointer_to(SESSION, one.seq): read(one.content, CHAT).text for one in gold})
        return Outcome(in_part=in_part, whole=whole, tokens=prompt.tokens, recalled=recalled.tokens if recalled else 0)

    def _index(self, name: str) -> SqliteIndex:
        (self._folder / name).mkdir(exist_ok=True)
        return SqliteIndex(self._folder / name / "recall")

    def _indexer(self, store: MemoryStore, index: SqliteIndex) -> Indexer | None:
        if not self._recalls:
            return None
        return Indexer(store, index, lexicon=_lexicon(), embedder=self._meaning, in_background=False, owns_index=False)

    def _opened(self, settings: Settings, store: MemoryStore, index: SqliteIndex) -> Session:
        return open_session(settings, store, self._indexer(store, index))


def evidence(texts: Sequence[str], gold: Mapping[str, str]) -> tuple[float, float]:
    """Which share of the messages stands in a prompt whole, and which at least in part; they are known by pointers."""
    plain = {_plain(text) for text in texts}
    everything = "\n".join(texts)
    quoted = _plain(_QUOTED.sub("", everything))
    is_whole = [_plain(text) in plain or _plain(text) in quoted for text in gold.values()]
    is_part = [
        whole or re.search(re.escape(pointer) + r"(?!\d)", everything) is not None
        for whole, pointer in zip(is_whole, gold, strict=True)
    ]
    return sum(is_whole) / len(gold), sum(is_part) / len(gold)


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def trimmed(session: Session, said: Sequence[Said], question: Question, most: int | None) -> Outcome:
    """The newest messages that fit, or all of them."""
    meter = session.meter
    tokens = meter.frame.prompt + counted(session, "", Said(turn=Turn(role="user", text=question.text), ts=0)).tokens
    kept = set[int]()
    for place, cost in reversed(list(enumerate(_costs(session, said)))):
        if most is not None and tokens + cost > most:
            break
        tokens += cost
        kept.add(place)
    share = len(question.gold & kept) / len(question.gold)
    return Outcome(in_part=share, whole=share, tokens=tokens, recalled=0)


def _costs(session: Session, said: Sequence[Said]) -> Iterator[int]:
    return (counted(session, "", one).tokens for one in said)


def counted(session: Session, id: str, one: Said) -> Draft:
    bare = draft(id, one.turn, one.ts)
    tokens = session.meter.message(read(bare.content, CHAT))
    return draft(id, one.turn, one.ts, tokens, session.meter.name)


def as_draft(entry: Entry, terms: bytes = b"") -> Draft:
    return Draft(**{one.name: getattr(entry, one.name) for one in fields(Draft)} | {"terms": terms})


@cache
def _embedder() -> Embedder | None:
    """Once in each process."""
    return embedder()


@cache
def _lexicon() -> PorterLexicon:
    return PorterLexicon()


def _settings(window: int, way: str, *, inject: bool = True) -> Settings:
    limits = {"window": window, "max_input": window, "max_output": window}
    given = {"store": "memory:", "session": SESSION, "model": MODEL, "models": {MODEL: limits}}
    recall = {"enabled": way != SLIDING, "background": False, "inject": inject}
    return load(environ={}, arguments={**given, "recall": recall})


def shown(name: str, found: Mapping[tuple[int, str], list[Outcome]]) -> list[dict]:
    rows = []
    for window in WINDOWS:
        for way in WAYS:
            outcomes = found.get((window, way), [])
            if outcomes and (way != WHOLE or window == WINDOWS[-1]):
                label = name if way == WHOLE else f"{name}, {window // 1024} K"
                rows.append(figures(f"{label}: {way}", _means(outcomes), f"{len(outcomes)} questions"))
    return rows


def _means(outcomes: Sequence[Outcome]) -> dict[str, float]:
    def mean(values: Iterator[float]) -> float:
        return sum(values) / len(outcomes)

    return {
        "in part": mean(one.in_part for one in outcomes),
        "whole": mean(one.whole for one in outcomes),
        "all of it in part": mean(one.in_part == 1 for one in outcomes),
        "any in part": mean(one.in_part > 0 for one in outcomes),
        "prompt tokens": round(mean(one.tokens for one in outcomes)),
        "recalled tokens": round(mean(one.recalled for one in outcomes)),
    }
