"""Measures whether a statement of the user is in the prompt at the later turn for which it matters.
Statements are buried in long sessions of real agents' messages, at least eight evicting decisions before that turn.
Recto's three modes, and its default mode without a working record, are compared in windows of 8 K, 16 K and 32 K
tokens.

Each session has several statements of `tests/context/facts/statements.json`, alone in a message or next to other words.
It goes on until at least eight decisions have evicted messages after the last statement. Then the later turn of each
statement follows, and the statement counts if it is in that prompt: in a message, in the working record or in the
summary. Neutral sentences are buried as well and must not be kept.

Run it with `python -m bench statements`: the default mode plays one session in `RECTO_BENCH_RUNS` (4), with and without
a record; the other modes play every second one of these. `--quick` plays two sessions of each kind.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.progress import track

from bench.compaction_data import DATA, sessions
from bench.measure import figures, percentile, progress
from recto.config import load
from recto.config.factory import open_session
from recto.context.facts.claims import fold_words
from recto.engine.projection import DECISIONS, FIDELITY_LOW
from recto.engine.session import Session
from recto.formats import read
from recto.testing import scripted_session

SET = Path(__file__).parents[1] / "tests" / "context" / "facts" / "statements.json"
MODEL = "gpt-4o"
WINDOWS = (8_192, 16_384, 32_768)
MODES = ("sliding_window", "auto_compact", "zones")
ONE_IN = int(os.environ.get("RECTO_BENCH_RUNS", "4"))
"""One in so many sessions is played."""
EVICTIONS = 8
"""Decisions that evict messages after the last statement, before its later turn comes."""
PER_SESSION = (5, 10, 15, 20, 25)
"""Statements of one session, in turn."""
GAP = 4
"""Filler messages between two messages of the user that are counted."""
_MAX_FILLER = 1_500
"""Filler messages after the last statement at most."""
_FORMS = ("{}", "{}", "Thanks for the update. {}", "{} Now look at the next file.", "ok, go on\n\n{}")
"""How a statement is said: mostly alone, sometimes beside words of the moment."""

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One session: what is said in it, and the filler around it."""

    statements: tuple[dict[str, str], ...]
    neutral: tuple[str, ...]
    filler: tuple[Message, ...]
    seed: int


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was counted in one session, or in several."""

    asked: int = 0
    lost: list[str] = field(default_factory=list)
    neutral: int = 0
    kept: list[str] = field(default_factory=list)
    """Neutral sentences in the record or in the summary."""
    evictions: list[int] = field(default_factory=list)
    """Decisions of each session that evicted messages after the last statement."""
    record_tokens: list[float] = field(default_factory=list)
    budget: int = 0
    scores: list[float] = field(default_factory=list)
    """The fidelity of each summary."""
    alarms: int = 0

    def add(self, other: Outcome) -> None:
        """Count another session too."""
        for name in self.__slots__:
            if name == "budget":
                self.budget = other.budget
            else:
                setattr(self, name, getattr(self, name) + getattr(other, name))


def run(quick: bool) -> list[dict]:
    """The rows of the section."""
    some = cases(*read_set(), real=DATA.is_dir())
    some = some[:2] if quick else some[::ONE_IN]
    rows = []
    with get_context("spawn").Pool(2) as pool:
        for window in WINDOWS:
            for mode, record in (*((mode, True) for mode in MODES), (MODES[0], False)):
                played = some if mode == MODES[0] else some[::2]
                work = [(case, mode, window, None if record else 0.0) for case in played]
                total = Outcome()
                name = f"{window // 1024} K, {mode}{'' if record else ', no record'}"
                for outcome in track(pool.imap_unordered(_played, work), name, total=len(work), console=progress()):
                    total.add(outcome)
                rows += shown(name, total, len(work))
    return rows


def read_set(half: str = "") -> tuple[list[dict[str, str]], list[str]]:
    """The statements and the neutral sentences of the set, or of one half."""
    whole = json.loads(SET.read_text(encoding="utf-8"))
    statements = [said for said in whole["statements"] if half in ("", said["half"])]
    return statements, [said["text"] for said in whole["neutral"] if half in ("", said["half"])]


def cases(statements: Sequence[dict[str, str]], neutral: Sequence[str], *, real: bool) -> list[Case]:
    """Sessions in which every statement and every neutral sentence is said once."""
    rng = random.Random(23)  # reproducible on purpose
    left, quiet = list(statements), list(neutral)
    rng.shuffle(left)
    rng.shuffle(quiet)
    fillers = cycle(_real_fillers()) if real else (_generated(seed) for seed in range(1, 1_000))
    found = []
    for number in cycle(PER_SESSION):
        if not left:
            return found
        share = -(-len(quiet) * number // max(len(left), 1))
        found.append(
            Case(
                statements=tuple(left[:number]),
                neutral=tuple(quiet[:share]),
                filler=next(fillers),
                seed=len(found),
            )
        )
        left, quiet = left[number:], quiet[share:]
    raise AssertionError


def _real_fillers() -> list[tuple[Message, ...]]:
    """The messages of real sessions; each goes on with the messages of the next."""
    real = [tuple(messages) for messages in sessions() if len(messages) > 40]
    return [
        tuple(islice(chain.from_iterable(real[(start + step) % len(real)] for step in range(len(real))), _MAX_FILLER))
        for start in range(len(real))
    ]


def _generated(seed: int) -> tuple[Message, ...]:
    return tuple(scripted_session(seed=seed, exchanges=200))


def _played(work: tuple[Case, str, int, float | None]) -> Outcome:
    return play(*work)


def play(case: Case, mode: str, window: int, record_percent: float | None = None) -> Outcome:
    """What one session keeps of what was said in it."""
    limits = {"window": window, "max_input": window, "max_output": window}
    shares = {} if record_percent is None else {"record_percent": record_percent}
    given = {"store": "memory:", "model": MODEL, "models": {MODEL: limits}, "recall": {"enabled": False}}
    with open_session(load(environ={}, arguments={**given, "window": {"mode": mode, **shares}})) as session:
        outcome = Outcome(evictions=[_tell(session, case, window // 2)])
        _ask(session, case, outcome)
        return outcome


def _tell(session: Session, case: Case, most: int) -> int:
    """Everything before the later turns; returns how many decisions evicted messages after the last statement."""
    rng = random.Random(case.seed)  # reproducible on purpose
    said = [_FORMS[place % len(_FORMS)].format(one["text"]) for place, one in enumerate(case.statements)]
    said += case.neutral
    rng.shuffle(said)
    filler = (step for step in _steps(case.filler) if not _is_too_long(step, most))
    for text in said:
        for step in islice(filler, GAP // 2):
            _append(session, step)
        _append(session, [_user(text)])
        session.prompt()
        _append(session, [{"role": "assistant", "content": "Understood."}])
    said_until, evictions = session.window.state.seq, 0
    for step in filler:
        _append(session, step)
        evictions += len(_evictions(session, said_until))
        said_until = session.window.state.seq
        if evictions >= EVICTIONS:
            break
    return evictions


def _append(session: Session, step: Sequence[Message]) -> None:
    for message in step:
        if message["role"] == "assistant":
            session.prompt()
        session.append(message)


def _steps(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The filler in pieces after which the user may speak: calls stay with their results."""
    step: list[Message] = []
    for message in messages:
        if message["role"] == "assistant" and step and not _calls(step[-1]):
            yield step
            step = []
        step.append(message)


def _is_too_long(step: Sequence[Message], most: int) -> bool:
    """Whether one message would fill much of a small window: nothing shortens the call just made."""
    return any(len(json.dumps(message)) > most * (1 if message["role"] == "assistant" else 4) for message in step)


def _calls(message: Message) -> bool:
    content = message["content"] if isinstance(message["content"], list) else ()
    return bool(message.get("tool_calls")) or any(part.get("type") == "tool_use" for part in content)


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _evictions(session: Session, after: int) -> list[dict[str, Any]]:
    """The decisions after an entry that evicted messages: prunes, compactions, new windows."""
    decisions = [entry for entry in session.read(after + 1) if entry.kind in DECISIONS]
    return [payload for entry in decisions if (payload := json.loads(entry.content))["left"]]


def _ask(session: Session, case: Case, outcome: Outcome) -> None:
    """The later turn of each statement; what was said stays said, so all are asked of one session."""
    outcome.budget = session.window.budget.input_budget
    for statement in case.statements:
        session.append(_user(statement["later"]))
        prompt = session.prompt()
        folded = fold_words("\n".join(read(raw, prompt.built.wire).text for raw in prompt.raw))
        outcome.asked += 1
        if fold_words(statement["text"]) not in folded:
            outcome.lost.append(statement["text"])
        session.append({"role": "assistant", "content": "Done."})
    state = session.window.state
    notes = fold_words("\n".join(part.text for part in (state.record, state.summary) if part is not None))
    outcome.neutral = len(case.neutral)
    outcome.kept = [text for text in case.neutral if fold_words(text) in notes]
    for entry in session.read():
        if entry.kind in DECISIONS:
            payload = json.loads(entry.content)
            if "record" in payload:
                outcome.record_tokens.append(session.count(payload["record"]["text"]))
            score = payload.get("compression", {}).get("fidelity", {}).get("score")
            outcome.scores += [score] if score is not None else []
        outcome.alarms += entry.kind == FIDELITY_LOW


def shown(name: str, total: Outcome, number: int) -> list[dict]:
    """One row: what is kept, and what the record takes."""
    median, high = (percentile(total.record_tokens or [0], share) for share in (0.5, 0.95))
    values = {
        "in the prompt": 1 - len(total.lost) / max(total.asked, 1),
        "neutral kept": len(total.kept) / max(total.neutral, 1),
        "record tokens p50": int(median),
        "record tokens p95": int(high),
        "record p95, share": high / max(total.budget, 1),
        "lowest fidelity": min(total.scores, default=1.0),
    }
    note = f"{total.asked} statements, {total.neutral} neutral sentences, {number} sessions"
    return [figures(name, values, note)]
