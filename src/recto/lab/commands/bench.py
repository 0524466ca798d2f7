"""`recto lab bench`: measures the speed of Recto on this machine in half a minute, with a scripted session."""

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

from recto.cli.completion import complete_models
from recto.cli.console import out, progress, safe
from recto.config import Settings
from recto.config.factory import make_indexer, make_meter, open_session, open_store
from recto.engine.session import Session
from recto.lab.isolation import isolated
from recto.testing import scripted_session

_MODEL = "gpt-4o"
_APPENDS = 200
_TURNS = 20
_BATCH = 500
_TEXT_BYTES = 1_000_000
"""Size of the text for the tokenizer's speed."""
_MAX_CHARACTERS = 500
"""Characters of a message."""
_SIZES = (1_000, 10_000)
_QUESTIONS = ("which test fails", "the rounding of a refund", "timeout in api/auth.py", "what is None in the queue")
_REPEATS = 5
"""How often each question is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFigure:
    """A measured value."""

    name: str
    value: float
    unit: str
    note: str = ""


@click.command("bench")
@click.option("--model", metavar="NAME", shell_complete=complete_models, help=f"Counted as this model does. [{_MODEL}]")
@click.option("--quick", is_flag=True, help="Only the shorter session: a few seconds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a figure.")
@click.pass_obj
def bench_command(settings: Settings, model: str | None, quick: bool, as_json: bool) -> None:
    """Measures Recto on this machine, on the disk that the store is on, and leaves nothing behind.

    \b
    Examples:
      recto lab bench
      recto lab bench --quick --json
    """
    sizes = _SIZES[:1] if quick else _SIZES
    figures: list[BenchFigure] = []
    with _folder(settings) as folder, progress("measuring", sum(sizes) + _BATCH) as advance:
        bench_settings = replace(
            isolated(settings, model=model or settings.model or _MODEL), store=str(folder / "bench.db")
        )
        bench_settings = replace(
            bench_settings,
            recall=replace(bench_settings.recall, embedder=replace(bench_settings.recall.embedder, use="none")),
        )
        figures += _measure_tokenizer(bench_settings)
        advance(_BATCH)
        for size in sizes:
            figures += _measure_session(replace(bench_settings, session=f"agent:bench:{size}"), size, advance)
    if as_json:
        for figure in figures:
            click.echo(json.dumps(asdict(figure)))
        return
    table = Table("what", Column("value", justify="right"), "unit", "how")
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:,.2f}",
            figure.unit,
            figure.note,
        )
    out.print(table)
    out.print(safe(f"counted as {bench_settings.model}, on the disk of {folder.parent}"), markup=False, soft_wrap=True)


@contextmanager
def _folder(settings: Settings) -> Iterator[Path]:
    """Creates a temporary folder on the store's disk, or elsewhere if there is no store yet."""
    parent = Path(settings.store).expanduser().parent
    with tempfile.TemporaryDirectory(prefix="recto-bench-", dir=parent if parent.is_dir() else None) as name:
        yield Path(name)


def _measure_tokenizer(settings: Settings) -> list[BenchFigure]:
    meter = make_meter(settings)
    text = "\n".join(str(message["content"]) for message in scripted_session(exchanges=400))
    text = (text * (_TEXT_BYTES // len(text) + 1))[:_TEXT_BYTES]
    meter.text(text[:10_000])  # load the tokenizer first
    seconds = _seconds(lambda: meter.text(text))
    return [BenchFigure(name="tokenizer", value=len(text.encode()) / 1e6 / seconds, unit="MB/s", note=meter.name)]


def _measure_session(settings: Settings, size: int, advance: Callable[[int], None]) -> list[BenchFigure]:
    messages = islice(_endless(), size)
    with (
        closing(open_store(settings)) as store,
        closing(make_indexer(settings, store)) as indexer,
        closing(open_session(settings, store, indexer)) as session,
    ):
        figures = []
        while batch := list(islice(messages, _BATCH)):
            session.append_all(batch)
            advance(len(batch))
        if size == _SIZES[0]:
            figures.append(_measure_appends(session))
        figures += _measure_prompts(session, size)
        if size == _SIZES[-1]:
            indexer.catch_up(session.key)
            figures.append(_measure_recall(session, size))
    return figures


def _endless() -> Iterator[dict[str, Any]]:
    """Yields messages of an endless session, with results cut short so that they are generated quickly."""
    seed = 0
    while True:
        seed += 1
        for message in islice(scripted_session(seed=seed, exchanges=200), 0 if seed == 1 else 1, None):
            yield {**message, "content": message["content"] and message["content"][:_MAX_CHARACTERS]}


def _measure_appends(session: Session) -> BenchFigure:
    messages = list(islice(scripted_session(seed=99, exchanges=_APPENDS), _APPENDS))
    seconds = _seconds(lambda: [session.append(message) for message in messages])
    return BenchFigure(name="appends", value=_APPENDS / seconds, unit="per second", note="one by one, each on the disk")


def _measure_prompts(session: Session, size: int) -> list[BenchFigure]:
    session.prompt()  # opening the session is not measured
    times = []
    for turn in range(_TURNS):
        session.append({"role": "user", "content": f"And what about step {turn} of the ledger?"})
        times.append(_seconds(session.prompt))
        session.append({"role": "assistant", "content": f"Step {turn} is as it was."})
    label, note = f"prompt, {size:,} messages", f"{_TURNS} turns of {session.report().tokens:,} tokens"
    return [
        BenchFigure(name=label, value=1000 * _percentile(times, 0.5), unit="ms p50", note=note),
        BenchFigure(name=label, value=1000 * _percentile(times, 0.99), unit="ms p99"),
    ]


def _measure_recall(session: Session, size: int) -> BenchFigure:
    session.recall(_QUESTIONS[0])
    times = [_seconds(lambda text=text: session.recall(text)) for text in _QUESTIONS * _REPEATS]  # type: ignore[misc]
    value = 1000 * _percentile(times, 0.5)
    return BenchFigure(name=f"recall, {size:,} messages", value=value, unit="ms p50", note="words and hashed vectors")


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return max(perf_counter() - start, 1e-9)


def _percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]
