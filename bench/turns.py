"""One turn: an exchange appended durably, and the prompt after it. Shows whether its cost depends on the history.

A prompt's cost follows its own size, so a session that does not fill the window yet is cheaper for that reason alone;
each figure says how large its prompts were.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle, groupby, islice
from pathlib import Path

from bench.measure import percentile, row, seconds
from recto import Session
from recto import open as open_session
from recto.formats import detect, read
from recto.stores.sqlite import SqliteStore
from recto.testing import scripted_session
from recto.transcript.entries import Draft
from recto.transcript.events import to_json

MODEL = "gpt-4o"
BATCH = 1000
SHORT = 5_000
"""Sessions below this are made several times, so that they do not outgrow their size while they are measured."""
TURNS_EACH = 6
REOPENED = 9


@dataclass(slots=True)
class Times:
    """Seconds, and the size of the prompts they went into."""

    turns: list[float] = field(default_factory=list)
    never_opened: list[float] = field(default_factory=list)
    """The first turn of a session that was filled without ever asking for a prompt."""
    reopened: list[float] = field(default_factory=list)
    """The first turn after a program starts anew."""
    tokens: list[int] = field(default_factory=list)


def run(quick: bool) -> list[dict]:
    sizes, turns = ((100, 1_000, 10_000), 20) if quick else ((100, 10_000, 100_000, 1_000_000), 200)
    made = list(exchanges(60 if quick else 600))
    drafts = counted(made)
    all_times = {size: Times() for size in sizes}
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for size, times in all_times.items():
            sessions = list(filled(Path(folder) / f"{size}.db", size, turns, drafts))
            running.append(_turns(sessions, turns, made, times))
        os.sync()  # what was filled is on the disk and not on its way there while turns are measured
        for _ in zip(*running, strict=True):  # in turn, so that whatever else the machine does meets all sizes alike
            pass
    rows = [line for size, times in all_times.items() for line in _shown(size, times)]
    largest = f"{sizes[-1]:,}"
    for smaller, note in ((sizes[0], "flat is 1; the smaller prompt is not full"), (sizes[1], "flat is 1")):
        values = [_value(rows, f"turn at {name} messages, p50") for name in (largest, f"{smaller:,}")]
        rows.append(row(f"turn: {largest} over {smaller:,} messages", values[0] / values[1], "ratio", note, 2))
    return rows


def exchanges(count: int) -> Iterator[list[dict]]:
    """Whole exchanges, without the system text before them."""
    turn = 0

    def number(message: dict) -> int:
        nonlocal turn
        turn += message["role"] == "user"
        return turn

    messages = islice(scripted_session(exchanges=count), 1, None)
    return (list(group) for _, group in groupby(messages, key=number))


def continued(exchange: list[dict]) -> list[dict]:
    """The steps of an exchange without its question, as in a long turn of an agent: recall does not search again."""
    return exchange[1:]


def counted(exchanges: list[list[dict]]) -> list[Draft]:
    """The messages as a session would store them, counted once: a million of them repeat these."""
    with open_session("memory:", model=MODEL) as session:
        meter = session.meter
    drafts = []
    for message in (message for exchange in exchanges for message in exchange):
        raw = to_json(message)
        said = read(raw, detect(raw))
        tokens = meter.message(said)
        kept = Draft(id="", ts=0, role=said.role, content=raw, wire=detect(raw), tokens=tokens, counter=meter.name)
        drafts.append(kept)
    return drafts


def filled(path: Path, size: int, turns: int, drafts: list[Draft]) -> Iterator[tuple[Path, str]]:
    """Sessions of this size that were never asked for a prompt; several where one would outgrow its size."""
    for copy in range(-(-turns // TURNS_EACH) if size < SHORT else 1):
        session = f"agent:bench:{copy}"
        with closing(SqliteStore(path)) as store:
            for start in range(0, size, BATCH):
                numbers = range(start, min(start + BATCH, size))
                store.append(session, [_placed(drafts[number % len(drafts)], number) for number in numbers])
        yield path, session


def _placed(draft: Draft, number: int) -> Draft:
    return Draft(
        id=uuid.uuid4().hex,
        ts=number,
        role=draft.role,
        content=draft.content,
        wire=draft.wire,
        tokens=draft.tokens,
        counter=draft.counter,
    )


def _turns(sessions: list[tuple[Path, str]], turns: int, exchanges: list[list[dict]], times: Times) -> Iterator[None]:
    """Measures one turn after the other; stops after each for others to have theirs."""
    following = cycle(exchanges)
    each = -(-turns // len(sessions))
    for path, name in sessions:
        with open_session(path, session=name, model=MODEL) as session:
            times.never_opened.append(_turn(session, next(following), times))
            for _ in range(min(each, turns - len(times.turns))):
                times.turns.append(_turn(session, next(following), times))
                yield
        for _ in range(REOPENED if len(sessions) == 1 else 1):
            with open_session(path, session=name, model=MODEL) as session:
                times.reopened.append(_turn(session, next(following), times))


def _turn(session: Session, exchange: list[dict], times: Times) -> float:
    def both() -> None:
        session.append_all(exchange)
        times.tokens.append(session.prompt().tokens)

    return seconds(both)


def _shown(size: int, times: Times) -> list[dict]:
    label = f"{size:,} messages"
    about = f"{len(times.turns)} turns, prompts of {percentile(times.tokens, 0.5):,.0f} tokens"
    return [
        row(f"turn at {label}, p50", percentile(times.turns, 0.5) * 1e3, "ms", about, 1),
        row(f"turn at {label}, p99", percentile(times.turns, 0.99) * 1e3, "ms", "turns with a decision included", 1),
        row(f"first turn at {label}, opened anew", percentile(times.reopened, 0.5) * 1e3, "ms", "cold", 1),
        row(
            f"first turn at {label}, never opened before",
            percentile(times.never_opened, 0.5) * 1e3,
            "ms",
            "cold, no snapshot to start from",
            1,
        ),
    ]


def _value(rows: list[dict], what: str) -> float:
    return next(line["value"] for line in rows if line["what"] == what)
