"""Measures the cost of one turn, and whether it depends on the length of the history.
A turn appends an exchange durably and builds the prompt after it, in made-up sessions of 100 to 1,000,000 messages. It
is compared with a plain loop without Recto, which counts every message once and appends to bare SQLite, and with
LangChain's trimming with memoized counts.

Sessions are indexed by words beforehand, as an import leaves them. A plain turn continues the work, so that recall does
not search; a turn that recalls begins with a question. Each alternates with a turn of the plain loop. A prompt's cost
follows its own size, so a session that does not fill the window yet is cheaper for that reason alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, groupby, islice
from pathlib import Path

import apsw

from bench.measure import percentile, row
from bench.plain_loop import PlainLoop
from recto import Session
from recto import open as open_session
from recto.config import load
from recto.config.factory import make_indexer, open_store
from recto.stores.sqlite import SqliteStore
from recto.testing import scripted_session
from recto.transcript.entries import MESSAGE, Draft

MODEL = "gpt-4o"
SIZES = (100, 10_000, 100_000, 1_000_000)
"""Messages; the last of them needs 2 GB in the folder for temporary files."""
WINDOWS = {"128 K": 128_000, "32 K": 32_000}
OUTPUT = 4_000
BATCH = 1000
SHORT = 5_000
"""Sessions below this are made several times, so that they do not outgrow their size while they are measured."""
TURNS_EACH = 6
REOPENED = 9
LANGCHAIN = Path("build/adapters/langchain/bin/python")
"""Its environment: `make test-adapters` installs it."""
WORDS_ONLY = {"embedder": {"use": "none"}}


@dataclass(slots=True)
class Times:
    """Milliseconds by the clock and of the processor."""

    clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, work: Callable[[], object]) -> None:
        started, before = time.perf_counter(), time.process_time()
        work()
        self.cpu.append((time.process_time() - before) * 1e3)
        self.clock.append((time.perf_counter() - started) * 1e3)

    def row(self, what: str, note: str = "") -> dict:
        about = f"{percentile(self.cpu, 0.5):.2f} of the processor, p99 {percentile(self.clock, 0.99):.1f}"
        return row(what, percentile(self.clock, 0.5), "ms", f"{about}{note and '; '}{note}", 2)


def run(quick: bool, largest: int = SIZES[-1]) -> list[dict]:
    sizes, turns = ((100, 1_000), 12) if quick else (tuple(size for size in SIZES if size <= largest), 60)
    made = list(exchanges(60 if quick else 600))
    drafts = counted(made)
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            sessions = list(filled(Path(folder) / f"{size}.db", size, turns, drafts))
            for path, name in sessions:
                _index(path, name)
            os.sync()  # what was filled is on the disk and not on its way there while turns are measured
            for label, window in WINDOWS.items():
                rows += _turns(sessions, size, label, window, turns, made)
    rows += _langchain(sizes, turns, 60 if quick else 600)
    largest = f"{sizes[-1]:,}"
    for smaller, note in zip(sizes[:-1], ("flat is 1; the smaller prompt is not full", "flat is 1"), strict=False):
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
    """The messages as a session stores them, counted and indexed once: a million of them repeat these."""
    with open_session("memory:", model=MODEL, recall=WORDS_ONLY) as session:
        for exchange in exchanges:
            session.append_all(exchange)
        terms = dict(session.store.terms(session.key))
        return [
            Draft(
                id="",
                ts=0,
                role=entry.role,
                content=entry.content,
                wire=entry.wire,
                tokens=entry.tokens,
                counter=entry.counter,
                terms=terms.get(entry.seq, b""),
            )
            for entry in session.read()
            if entry.kind == MESSAGE
        ]


def filled(path: Path, size: int, turns: int, drafts: list[Draft]) -> Iterator[tuple[Path, str]]:
    """Sessions of this size that were never asked for a prompt; several where one would outgrow its size."""
    for copy in range(-(-turns // TURNS_EACH) if size < SHORT else 1):
        session = f"agent:bench:{copy}"
        with closing(SqliteStore(path)) as store:
            for start in range(0, size, BATCH):
                numbers = range(start, min(start + BATCH, size))
                batch = [replace(drafts[number % len(drafts)], id=uuid.uuid4().hex, ts=number) for number in numbers]
                store.append(session, batch)
        yield path, session


def _index(path: Path, name: str) -> None:
    """Indexes the words of a session, as an import does."""
    settings = load(environ={}, arguments={"store": str(path), "recall": WORDS_ONLY})
    with closing(open_store(settings)) as store, closing(make_indexer(settings, store)) as indexer:
        indexer.catch_up(name)


def _open(path: Path, name: str, window: int) -> Session:
    models = {MODEL: {"window": window, "max_input": window, "max_output": OUTPUT}}
    return open_session(path, session=name, model=MODEL, models=models, recall=WORDS_ONLY)


def _turns(
    sessions: list[tuple[Path, str]], size: int, label: str, window: int, turns: int, made: list[list[dict]]
) -> list[dict]:
    plain, going_on, recalling, opening = Times(), Times(), Times(), Times()
    tokens: list[int] = []
    quoted: list[bool] = []
    commits = 0
    following = cycle(made)
    each = -(-turns // len(sessions))
    with tempfile.TemporaryDirectory() as folder:
        raws = [json.dumps(message, ensure_ascii=False).encode() for message in chain.from_iterable(made)]
        with PlainLoop(Path(folder) / "plain.db", MODEL, window - OUTPUT, islice(cycle(raws), size)) as loop:
            loop.turn(next(following))  # the newest ones are counted

            def turn(session: Session, exchange: list[dict]) -> None:
                session.append_all(exchange)
                prompt = session.prompt()
                quoted.append(bool(prompt.recalled))
                tokens.append(prompt.tokens)

            for path, name in sessions:
                with _open(path, name, window) as session:
                    turn(session, next(following))  # decides for this window what stays
                    for _ in range(each):  # in turn, so that whatever else the machine does meets all alike
                        exchange = next(following)
                        plain.add(lambda exchange=exchange: loop.turn(exchange))
                        going_on.add(lambda session=session, exchange=exchange: turn(session, continued(exchange)))
                        recalling.add(lambda session=session, exchange=exchange: turn(session, exchange))
                    commits -= _commits.count
                    turn(session, next(following))
                    commits += _commits.count
                for _ in range(REOPENED if len(sessions) == 1 else 1):

                    def open_and_ask(path: Path = path, name: str = name) -> None:
                        with _open(path, name, window) as session:
                            session.prompt()

                    opening.add(open_and_ask)
    at = f"at {size:,} messages{'' if label == '128 K' else f', {label}'}"
    prompts = f"prompts of {percentile(tokens, 0.5):,.0f} tokens"
    history = f"{sum(quoted):,} of {len(quoted):,} prompts quoted history"
    return [
        going_on.row(f"turn {at}, p50", prompts),
        recalling.row(f"turn that recalls {at}, p50", history),
        plain.row(f"plain loop {at}, p50"),
        row(f"write transactions a turn {at}", commits / len(sessions), "commits", "that begins with a question", 1),
        opening.row(f"open to first prompt {at}, p50", "the process is warm"),
    ]


class _Commits:
    """Counts the write transactions of every connection of this process."""

    def __init__(self) -> None:
        self.count = 0
        apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(self._committed))

    def _committed(self) -> bool:
        self.count += 1
        return False  # or it would be rolled back


_commits = _Commits()


def _langchain(sizes: tuple[int, ...], turns: int, exchanges: int) -> list[dict]:
    if not LANGCHAIN.exists():
        return []
    budgets = {label: window - OUTPUT for label, window in WINDOWS.items()}
    asked = {"sizes": sizes, "turns": turns, "exchanges": exchanges, "budgets": list(budgets.values())}
    command = [LANGCHAIN, "-m", "bench.langchain_memo", json.dumps(asked)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return [
        row(
            f"LangChain's trim_messages, memo, at {size:,} messages{'' if label == '128 K' else f', {label}'}, p50",
            percentile(found[str(size)][str(budget)], 0.5),
            "ms",
            "of the processor; stores nothing",
            2,
        )
        for size in sizes
        for label, budget in budgets.items()
    ]


def _value(rows: list[dict], what: str) -> float:
    return next(line["value"] for line in rows if line["what"] == what)
