"""`recto bench`: how fast Recto is on this machine, measured in half a minute with a session that it makes up."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.table import Column, Table

from recto.cli.completion import models
from recto.cli.console import out, progress, safe
from recto.config import Settings
from recto.config.factory import make_indexer, make_meter, open_session, open_store
from recto.engine.session import Session
from recto.lab.isolation import apart
from recto.testing import scripted_session

_MODEL = "gpt-4o"
_APPENDS = 200
_TURNS = 20
_BATCH = 500
_TEXT = 1_000_000
"""Bytes that are counted for the speed of the tokenizer."""
_LONGEST = 500
"""Characters of a message."""
_SIZES = (1_000, 10_000)
_QUESTIONS = ("which test fails", "the rounding of a refund", "timeout in api/auth.py", "what is None in the queue")
_ASKED = 5
"""How often each question is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFigure:
    """One figure."""

    name: str
    value: float
    unit: str
    note: str = ""


@click.command("bench")
@click.option("--model", metavar="NAME", shell_complete=models, help=f"Counted as this model does. [{_MODEL}]")
@click.option("--quick", is_flag=True, help="Only the shorter session: a few seconds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a figure.")
@click.pass_obj
def bench_command(settings: Settings, model: str | None, quick: bool, as_json: bool) -> None:
    """Measures Recto on this machine, on the disk that the store is on, and leaves nothing behind.

    \b
    Examples:
      recto bench
      recto bench --quick --json
    """
    sizes = _SIZES[:1] if quick else _SIZES
    found: list[BenchFigure] = []
    with _folder(settings) as folder, progress("measuring", sum(sizes) + _BATCH) as advance:
        own = replace(apart(settings, model=model or settings.model or _MODEL), store=str(folder / "bench.db"))
        own = replace(own, recall=replace(own.recall, embedder=replace(own.recall.embedder, use="hashing")))
        found += _counting(own)
        advance(_BATCH)
        for size in sizes:
            found += _session_of(replace(own, session=f"agent:bench:{size}"), size, advance)
    if as_json:
        for one in found:
            click.echo(json.dumps(asdict(one)))
        return
    table = Table("what", Column("value", justify="right"), "unit", "how")
    for one in found:
        table.add_row(one.name, f"{one.value:,.0f}" if one.value >= 100 else f"{one.value:,.2f}", one.unit, one.note)
    out.print(table)
    out.print(safe(f"counted as {own.model}, on the disk of {folder.parent}"), markup=False, soft_wrap=True)


@contextmanager
def _folder(settings: Settings) -> Iterator[Path]:
    """A folder on the disk of the store, that is gone at the end; elsewhere, where there is no store yet."""
    beside = Path(settings.store).expanduser().parent
    with tempfile.TemporaryDirectory(prefix="recto-bench-", dir=beside if beside.is_dir() else None) as name:
        yield Path(name)


def _counting(settings: Settings) -> list[BenchFigure]:
    meter = make_meter(settings)
    text = "\n".join(str(message["content"]) for message in scripted_session(exchanges=400))
    text = (text * (_TEXT // len(text) + 1))[:_TEXT]
    meter.text(text[:10_000])  # what is loaded once
    seconds = _took(lambda: meter.text(text))
    return [BenchFigure(name="tokenizer", value=len(text.encode()) / 1e6 / seconds, unit="MB/s", note=meter.name)]


def _session_of(settings: Settings, size: int, advance: Callable[[int], None]) -> list[BenchFigure]:
    messages = islice(_endless(), size)
    with (
        closing(open_store(settings)) as store,
        closing(make_indexer(settings, store)) as indexer,
        closing(open_session(settings, store, indexer)) as session,
    ):
        found = []
        while batch := list(islice(messages, _BATCH)):
            session.append_all(batch)
            advance(len(batch))
        if size == _SIZES[0]:
            found.append(_appends(session))
        found += _prompts(session, size)
        if size == _SIZES[-1]:
            indexer.catch_up(session.key)
            found.append(_recall(session, size))
    return found


def _endless() -> Iterator[dict[str, Any]]:
    """Messages of a session that does not end, with results short enough to be made in time."""
    seed = 0
    while True:
        seed += 1
        for message in islice(scripted_session(seed=seed, exchanges=200), 0 if seed == 1 else 1, None):
            yield {**message, "content": message["content"] and message["content"][:_LONGEST]}


def _appends(session: Session) -> BenchFigure:
    messages = list(islice(scripted_session(seed=99, exchanges=_APPENDS), _APPENDS))
    seconds = _took(lambda: [session.append(message) for message in messages])
    return BenchFigure(name="appends", value=_APPENDS / seconds, unit="per second", note="one by one, each on the disk")


def _prompts(session: Session, size: int) -> list[BenchFigure]:
    session.prompt()  # opening it is not what is measured
    times = []
    for turn in range(_TURNS):
        session.append({"role": "user", "content": f"And what about step {turn} of the ledger?"})
        times.append(_took(session.prompt))
        session.append({"role": "assistant", "content": f"Step {turn} is as it was."})
    label, note = f"prompt, {size:,} messages", f"{_TURNS} turns of {session.report().tokens:,} tokens"
    return [
        BenchFigure(name=label, value=1000 * _percentile(times, 0.5), unit="ms p50", note=note),
        BenchFigure(name=label, value=1000 * _percentile(times, 0.99), unit="ms p99"),
    ]


def _recall(session: Session, size: int) -> BenchFigure:
    session.recall(_QUESTIONS[0])
    times = [_took(lambda text=text: session.recall(text)) for text in _QUESTIONS * _ASKED]  # type: ignore[misc]
    value = 1000 * _percentile(times, 0.5)
    return BenchFigure(name=f"recall, {size:,} messages", value=value, unit="ms p50", note="words and hashed vectors")


def _took(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return max(perf_counter() - start, 1e-9)


def _percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]
