"""`recto simulate`: sessions of made-up agents, of which it is known what they say where and need when."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Column, Table

from recto.cli.completion import models
from recto.cli.console import out, progress
from recto.cli.import_export import write_out
from recto.config import Settings
from recto.config.factory import make_indexer, open_session
from recto.formats import DEFAULT_FORMAT, FORMATS
from recto.lab.commands.replay import Size
from recto.lab.isolation import apart
from recto.lab.probes import NEED_KINDS, Fared, KnownTurn, together
from recto.lab.simulation import AGENTS, shortened, simulate
from recto.lab.variants import MODES
from recto.stores.memory import MemoryStore

if TYPE_CHECKING:
    from recto.lab.probes import Walked

EXIT_FOUND = 1
_WIRES = {format.short_name: format.name for format in FORMATS.values()}
_TURNS = 100
_WINDOW = 16_000
_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The session that is asked for; made anew each time it is gone through."""

    kind: str
    seed: int
    turns: int | None
    tokens: int | None
    wire: str

    def __iter__(self) -> Iterator[KnownTurn]:
        made = simulate(self.kind, seed=self.seed, turns=self.turns, wire=_WIRES[self.wire])
        return made if self.tokens is None else shortened(made, self.tokens)


@click.command("simulate")
@click.argument("kind", type=click.Choice(list(AGENTS)))
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Another one, another session.")
@click.option("--turns", type=click.IntRange(1), metavar="N", help=f"So many turns. [default: {_TURNS}]")
@click.option("--tokens", type=Size(), metavar="N", help="Instead: about so many tokens, such as 200k.")
@click.option(
    "--wire",
    type=click.Choice(list(_WIRES)),
    default=DEFAULT_FORMAT.short_name,
    show_default=True,
    help="As these messages.",
)
@click.option("-o", "--output", type=_FILE, help="Into this file, and not onto the screen.")
@click.option("--needs", "needs_file", type=_FILE, help="What is needed when, into this file: a JSON object a line.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option("--ask", is_flag=True, help="Go through it in a window, and tell which needs are met.")
@click.option(
    "--window", type=Size(), metavar="N", help=f"With --ask: of so many tokens. [default: {_WINDOW // 1000}k]"
)
@click.option("--mode", type=click.Choice(MODES), help="With --ask: in this mode. [default: as in the settings]")
@click.option("--model", metavar="NAME", shell_complete=models, help="With --ask: counted as this model.")
@click.option("--json", "as_json", is_flag=True, help="With --ask: the result as one JSON object.")
@click.pass_obj
def simulate_command(
    settings: Settings,
    /,
    kind: str,
    turns: int | None,
    tokens: int | None,
    output: Path | None,
    needs_file: Path | None,
    **given: Any,  # noqa: ANN401  # the other options, by name
) -> None:
    """Makes up the session of an agent, with facts in it that are needed again later.

    Agents: chat (people, presents, corrections), review (files read again and again), research (sources), monitoring
    (long silence, rows of alarms). The same seed makes the same session, byte for byte. 'recto import' takes it.

    With --ask it goes through the session turn by turn and tells which needs could be read in the prompt when they were
    due. Nothing is written into your store and no model is asked. Ends with 1 where something did not fit.

    \b
    Examples:
      recto simulate chat --turns 500 -o chat.jsonl --needs needs.jsonl
      recto simulate review --seed 7 --tokens 200k --wire messages -o review.jsonl
      recto simulate research --turns 200 --ask --window 16k
      recto simulate monitoring --turns 300 --ask --mode zones --json
    """
    if turns is not None and tokens is not None:
        raise click.UsageError("say --turns or --tokens, not both")
    for file in (output, needs_file):
        if file is not None and file.exists() and not given["force"]:
            raise click.UsageError(f"'{file}' exists; replace it with --force")
    most = None if tokens is not None else turns or _TURNS
    wanted = Wanted(kind=kind, seed=given["seed"], turns=most, tokens=tokens, wire=given["wire"])
    if output is not None or not (given["ask"] or needs_file):
        write_out((draft.content + b"\n" for turn in wanted for draft in turn.drafts), output)
    if needs_file is not None:
        write_out(map(_line, wanted), needs_file)
    if given["ask"]:
        _ask(settings, wanted, given)


def _line(turn: KnownTurn) -> bytes:
    """What a turn needs, as a line; nothing where it needs nothing."""
    if turn.need is None:
        return b""
    about = asdict(turn.need) | {"distance": turn.need.distance}
    return json.dumps(about, ensure_ascii=False).encode() + b"\n"


def _ask(settings: Settings, wanted: Wanted, given: dict[str, Any]) -> None:
    own = apart(settings, model=given["model"], window=given["window"] or _WINDOW)
    if given["mode"]:
        own = replace(own, window=replace(own.window, mode=given["mode"]))
    total = wanted.turns or 0
    with progress("going through it", total) as advance:
        walked = _walked(own, wanted, lambda turn: advance(1))
    if given["as_json"]:
        click.echo(json.dumps(_json(wanted, walked)))
    else:
        _show(walked)
    if walked.over or walked.refused:
        click.get_current_context().exit(EXIT_FOUND)


def _walked(settings: Settings, turns: Wanted, turned: Callable[[KnownTurn], object]) -> Walked:
    from recto.lab.probes import walk  # noqa: PLC0415  # only for who asks

    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(settings, store)) as indexer,
        closing(open_session(settings, store, indexer)) as session,
    ):
        return walk(session, turns, turned=turned)


def _json(wanted: Wanted, walked: Walked) -> dict[str, object]:
    told = asdict(walked)
    told["fared"] = {kind: _told(one) for kind, one in walked.fared.items()}
    told["by_distance"] = {str(below): _told(one) for below, one in sorted(walked.by_distance.items())}
    about = {"kind": wanted.kind, "seed": wanted.seed, "wire": wanted.wire}
    return about | told | {"share": round(together(walked.fared).share, 4)}


def _told(one: Fared) -> dict[str, object]:
    return asdict(one) | {"missed": one.missed, "share": round(one.share, 4)}


def _show(walked: Walked) -> None:
    right = ("asked", "in prompt", "summary", "recalled", "not", "met")
    table = Table("need", *(Column(name, justify="right") for name in right))
    for kind in NEED_KINDS:
        if kind in walked.fared:
            table.add_row(kind, *_cells(walked.fared[kind]))
    table.add_section()
    for below, one in sorted(walked.by_distance.items()):
        table.add_row(f"within {below:,} turns", *_cells(one))
    table.add_section()
    table.add_row("all", *_cells(together(walked.fared)))
    out.print(table)
    average = walked.tokens // max(walked.prompts - walked.refused, 1)
    out.print(
        f"{walked.turns:,} turns, {walked.entries:,} messages, {walked.prompts:,} prompts of {average:,} tokens on "
        f"average and {walked.largest:,} at most; {walked.over:,} over the window, {walked.refused:,} refused",
        soft_wrap=True,
    )


def _cells(one: Fared) -> Sequence[str]:
    counts = (one.asked, one.prompt, one.summary, one.recalled, one.missed)
    return (*(f"{count:,}" for count in counts), f"{one.share:.0%}")
