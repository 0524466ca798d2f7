"""The command that tells, in somebody's own CI, whether prompts still hold what questions need: fidelity."""

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

from recto.cli.completion import models, sessions
from recto.cli.console import one_line, out, progress, safe
from recto.config import Settings, load
from recto.config.factory import make_chat_model, make_indexer, open_index, open_session
from recto.errors import InputError, SettingsError
from recto.lab.isolation import apart, sessions_in
from recto.lab.readability import Case, ProbeOutcome, cases_of, overall
from recto.stores.memory import MemoryStore
from recto.transcript.entries import Entry, session_key

if TYPE_CHECKING:
    from recto.context.compaction.protocols import ChatModel
    from recto.recall.indexer import Indexer

_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How the questions fared under one set of settings."""

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
@click.option("--session", metavar="KEY", shell_complete=sessions, help="Which session, where the file holds several.")
@click.option("--model", metavar="NAME", shell_complete=models, help="As this model would see it.")
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
    **given: Any,  # noqa: ANN401  # the other options, by name
) -> None:
    """Goes through a conversation again and tells whether its prompt still holds what questions need.

    Each question is asked as the next message; what it needs must be readable in the prompt: in the messages, in a
    summary, or recalled. Without --judge no model is asked. Nothing is written into your store. Exits with 1 where the
    score is too low, or lower than before.

    \b
    Examples:
      recto fidelity session.json --questions questions.yaml --model gpt-4o
      recto fidelity session.json --questions questions.yaml --window 16000 --min 0.9
      recto fidelity session.json --questions questions.yaml --against recto.new.yaml --allow 0.05
      recto fidelity session.json --questions questions.yaml --judge
    """
    cases = _questions(questions)
    base = apart(settings, model=given["model"], window=given["window"], writes=judge)
    sides = [("base", base)]
    if against is not None:
        sides.append(
            ("candidate", apart(load(path=against), model=given["model"], window=given["window"], writes=judge))
        )
    model = make_chat_model(settings) if judge else None
    if judge and model is None:
        raise SettingsError("compress.model.use", "--judge needs a model that answers and judges")
    entries = _entries(base, file, given["session"])
    with progress("replaying", len(sides) * (len(entries) + len(cases))) as advance:
        done = [_fared(name, one, entries, cases, model, advance) for name, one in sides]
    failures = list(_failures(done, given["least"], given["allow"]))
    if given["as_json"]:
        click.echo(json.dumps(_json(cases, done, failures, given)))
    else:
        _show(cases, done, failures)
    if failures:
        click.get_current_context().exit(1)


def _questions(file: Path) -> tuple[Case, ...]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise InputError(f"'{file}' is longer than {_MOST_BYTES:,} bytes")
        return cases_of(yaml.safe_load(raw))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise InputError(f"'{file}' is not YAML") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _entries(settings: Settings, file: Path, wanted: str | None) -> list[Entry]:
    """What was said in the file's session."""
    found = sessions_in(settings, file)
    if wanted is None and len(found) != 1:
        raise click.UsageError(f"'{file}' holds {len(found)} sessions; name one with --session")
    key = next(iter(found)) if wanted is None else session_key(wanted)
    if key not in found:
        raise click.UsageError(f"'{file}' has no session '{key}'; it holds {', '.join(list(found)[:5])}")
    return found[key]


def _fared(
    name: str,
    settings: Settings,
    entries: Sequence[Entry],
    cases: Sequence[Case],
    model: ChatModel | None,
    advance: Callable[[int], None],
) -> Side:
    """How the questions fare: each is asked of a copy, so that none of them sees the others."""
    from recto.lab.replay import ask, replay  # noqa: PLC0415  # only for who asks

    with closing(MemoryStore()) as store, closing(make_indexer(settings, store)) as indexer:
        with closing(open_session(settings, store, indexer)) as session:
            places = replay(session, entries, advance)
        if settings.recall.enabled:
            indexer.catch_up(session.key)
        outcomes = []
        for case in cases:
            copy = store.copied()
            own = _copied(indexer, settings, store, copy)
            with closing(copy), closing(own), closing(open_session(settings, copy, own)) as session:
                outcomes.append(ask(session, case, places, model))
            advance(1)
    return Side(name=name, outcomes=tuple(outcomes), score=overall(cases, outcomes))


def _copied(indexer: Indexer, settings: Settings, store: MemoryStore, copy: MemoryStore) -> Indexer:
    """An indexer of a copied store, with a copy of what is indexed already, and the same embedder."""
    from recto.recall.indexer import Indexer  # noqa: PLC0415
    from recto.stores.memory import MemoryIndex  # noqa: PLC0415

    index = open_index(settings, store)
    own = index.copied() if isinstance(index, MemoryIndex) else index
    return Indexer(copy, own, lexicon=indexer.lexicon, embedder=indexer.embedder, in_background=False)


def _failures(done: Sequence[Side], least: float, allow: float) -> Iterator[str]:
    """Why it is not good enough; nothing where it is."""
    last, first = done[-1], done[0]
    if last.score is None:
        yield f"{last.name}: nothing could be told of any question"
        return
    if last.score < least - 1e-9:
        yield f"{last.name}: {last.score:.3f} is below {least:g}"
    if last is not first and first.score is not None and last.score < first.score - allow - 1e-9:
        yield f"{last.name}: {last.score:.3f} is worse than {first.score:.3f} by more than {allow:g}"


def _json(cases: Sequence[Case], done: Sequence[Side], failures: list[str], given: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for place, case in enumerate(cases):
        row: dict[str, Any] = {"ask": case.ask, "weight": case.weight}
        rows.append(row | {side.name: asdict(side.outcomes[place]) for side in done})
    scores = {side.name: side.score for side in done}
    limits = {"min": given["least"], "allow": given["allow"]}
    return {"pass": not failures, "failures": failures, "scores": scores, **limits, "questions": rows}


def _show(cases: Sequence[Case], done: Sequence[Side], failures: Sequence[str]) -> None:
    table = Table(Column("question", ratio=1), *(Column(side.name, no_wrap=True) for side in done), "missing")
    for place, case in enumerate(cases):
        last = done[-1].outcomes[place]
        lacks = Text(one_line(", ".join(last.missing) or last.trouble, 120), style="dim")
        table.add_row(Text(one_line(case.ask, 100)), *(_told(side.outcomes[place]) for side in done), lacks)
    table.add_section()
    totals = ("?" if side.score is None else f"{side.score:.3f}" for side in done)
    table.add_row(*(Text(text, style="bold") for text in ("all, by weight", *totals, "")))
    out.print(table)
    for failure in failures:
        out.print(Text.assemble(("FAILED ", "red"), safe(failure)))
    if not failures:
        out.print(Text("passed", style="green"))


def _told(one: ProbeOutcome) -> Text:
    """How a question fared: its score, where what it needs was found, and what the prompt cost."""
    if one.score is None:
        return Text(f"? {one.where}\n{one.tokens:,} tokens", style="dim")
    style = "green" if one.score >= 1 else "red" if one.score <= 0 else "yellow"
    return Text.assemble((f"{one.score:.2f} {one.where}", style), (f"\n{one.tokens:,} tokens", "dim"))
