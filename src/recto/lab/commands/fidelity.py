"""`recto lab fidelity`: checks in CI whether prompts still contain what questions need."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml
from rich.table import Column, Table
from rich.text import Text

from recto.cli.completion import complete_models, complete_sessions
from recto.cli.console import one_line, out, progress, safe
from recto.config import Settings, load
from recto.config.factory import make_chat_model, make_indexer, open_index, open_session
from recto.errors import InputError, SettingsError
from recto.lab.isolation import isolated, read_sessions
from recto.lab.readability import Case, ProbeOutcome, parse_cases, weighted_score
from recto.stores.memory import MemoryStore
from recto.transcript.entries import Entry, session_key

if TYPE_CHECKING:
    from recto.context.compaction.protocols import ChatModel
    from recto.recall.indexer import Indexer

_MAX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The results of the questions under one set of settings."""

    name: str
    outcomes: tuple[ProbeOutcome, ...]
    score: float | None


@click.command("fidelity")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--questions",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A YAML file of questions, and of what each of them needs.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Other settings: the candidate, compared with those in use.",
)
@click.option(
    "--session", metavar="KEY", shell_complete=complete_sessions, help="Which session, where the file holds several."
)
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="As this model would see it.")
@click.option("--window", type=click.IntRange(1000), metavar="N", help="In a window of so many tokens.")
@click.option("--min", "least", type=click.FloatRange(0, 1), default=0.85, show_default=True, help="The least score.")
@click.option(
    "--allow",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="By how much the candidate may be worse.",
)
@click.option("--judge", is_flag=True, help="The model of compress.model answers and judges.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def fidelity_command(
    settings: Settings,
    /,
    file: Path,
    questions: Path,
    against: Path | None,
    judge: bool,
    **options: Any,  # noqa: ANN401  # the other options, by name
) -> None:
    """Goes through a conversation again and tells whether its prompt still holds what questions need.

    Each question is asked as the next message; what it needs must be readable in the prompt: in the messages, in a
    summary, or recalled. Without --judge no model is asked. Nothing is written into your store. Exits with 1 where the
    score is too low, or lower than before.

    \b
    Examples:
      recto lab fidelity session.json --questions questions.yaml --model gpt-4o
      recto lab fidelity session.json --questions questions.yaml --window 16000 --min 0.9
      recto lab fidelity session.json --questions questions.yaml --against recto.new.yaml --allow 0.05
      recto lab fidelity session.json --questions questions.yaml --judge
    """
    cases = _questions(questions)
    base = isolated(settings, model=options["model"], window=options["window"], writes=judge)
    variants = [("base", base)]
    if against is not None:
        variants.append(
            ("candidate", isolated(load(path=against), model=options["model"], window=options["window"], writes=judge))
        )
    model = make_chat_model(settings) if judge else None
    if judge and model is None:
        raise SettingsError("compress.model.use", "--judge needs a model that answers and judges")
    entries = _entries(base, file, options["session"])
    with progress("replaying", len(variants) * (len(entries) + len(cases))) as advance:
        sides = [_run_side(name, side_settings, entries, cases, model, advance) for name, side_settings in variants]
    failures = list(_failures(sides, options["least"], options["allow"]))
    if options["as_json"]:
        click.echo(json.dumps(_json(cases, sides, failures, options)))
    else:
        _show(cases, sides, failures)
    if failures:
        click.get_current_context().exit(1)


def _questions(file: Path) -> tuple[Case, ...]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise InputError(f"'{file}' is longer than {_MAX_BYTES:,} bytes")
        return parse_cases(yaml.safe_load(raw))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise InputError(f"'{file}' is not YAML") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _entries(settings: Settings, file: Path, name: str | None) -> list[Entry]:
    """Returns the entries of the file's session."""
    sessions = read_sessions(settings, file)
    if name is None and len(sessions) != 1:
        raise click.UsageError(f"'{file}' holds {len(sessions)} sessions; name one with --session")
    key = next(iter(sessions)) if name is None else session_key(name)
    if key not in sessions:
        raise click.UsageError(f"'{file}' has no session '{key}'; it holds {', '.join(list(sessions)[:5])}")
    return sessions[key]


def _run_side(
    name: str,
    settings: Settings,
    entries: Sequence[Entry],
    cases: Sequence[Case],
    model: ChatModel | None,
    advance: Callable[[int], None],
) -> Side:
    """Asks every question of its own copy of the session, so that none sees the others."""
    from recto.lab.replay import probe, replay  # noqa: PLC0415  # not needed for --help

    with closing(MemoryStore()) as store, closing(make_indexer(settings, store)) as indexer:
        with closing(open_session(settings, store, indexer)) as session:
            seqs = replay(session, entries, advance)
        if settings.recall.enabled:
            indexer.catch_up(session.key)
        outcomes = []
        for case in cases:
            copy = store.copied()
            copied_indexer = _copy_indexer(indexer, settings, store, copy)
            with (
                closing(copy),
                closing(copied_indexer),
                closing(open_session(settings, copy, copied_indexer)) as session,
            ):
                outcomes.append(probe(session, case, seqs, model))
            advance(1)
    return Side(name=name, outcomes=tuple(outcomes), score=weighted_score(cases, outcomes))


def _copy_indexer(indexer: Indexer, settings: Settings, store: MemoryStore, copy: MemoryStore) -> Indexer:
    """Creates an indexer for a copied store, with a copy of its index and the same embedder."""
    from recto.recall.indexer import Indexer  # noqa: PLC0415
    from recto.stores.memory import MemoryIndex  # noqa: PLC0415

    index = open_index(settings, store)
    copied_index = index.copied() if isinstance(index, MemoryIndex) else index
    return Indexer(copy, copied_index, lexicon=indexer.lexicon, embedder=indexer.embedder, in_background=False)


def _failures(sides: Sequence[Side], least: float, allow: float) -> Iterator[str]:
    """Yields the reasons why the result is not good enough."""
    last, first = sides[-1], sides[0]
    if last.score is None:
        yield f"{last.name}: no question could be checked"
        return
    if last.score < least - 1e-9:
        yield f"{last.name}: {last.score:.3f} is below {least:g}"
    if last is not first and first.score is not None and last.score < first.score - allow - 1e-9:
        yield f"{last.name}: {last.score:.3f} is worse than {first.score:.3f} by more than {allow:g}"


def _json(cases: Sequence[Case], sides: Sequence[Side], failures: list[str], options: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for place, case in enumerate(cases):
        row: dict[str, Any] = {"ask": case.ask, "weight": case.weight}
        rows.append(row | {side.name: asdict(side.outcomes[place]) for side in sides})
    scores = {side.name: side.score for side in sides}
    limits = {"min": options["least"], "allow": options["allow"]}
    return {"pass": not failures, "failures": failures, "scores": scores, **limits, "questions": rows}


def _show(cases: Sequence[Case], sides: Sequence[Side], failures: Sequence[str]) -> None:
    table = Table(Column("question", ratio=1), *(Column(side.name, no_wrap=True) for side in sides), "missing")
    for place, case in enumerate(cases):
        last = sides[-1].outcomes[place]
        missing = Text(one_line(", ".join(last.missing) or last.trouble, 120), style="dim")
        table.add_row(Text(one_line(case.ask, 100)), *(_cell(side.outcomes[place]) for side in sides), missing)
    table.add_section()
    totals = ("?" if side.score is None else f"{side.score:.3f}" for side in sides)
    table.add_row(*(Text(text, style="bold") for text in ("all, by weight", *totals, "")))
    out.print(table)
    for failure in failures:
        out.print(Text.assemble(("FAILED ", "red"), safe(failure)))
    if not failures:
        out.print(Text("passed", style="green"))


def _cell(outcome: ProbeOutcome) -> Text:
    """Formats the score of a question, where its needs were, and the size of the prompt."""
    if outcome.score is None:
        return Text(f"? {outcome.where}\n{outcome.tokens:,} tokens", style="dim")
    style = "green" if outcome.score >= 1 else "red" if outcome.score <= 0 else "yellow"
    return Text.assemble((f"{outcome.score:.2f} {outcome.where}", style), (f"\n{outcome.tokens:,} tokens", "dim"))
