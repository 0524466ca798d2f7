"""`recto lab simulate`: generates sessions of simulated agents with known facts and needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Column, Table

from recto.cli.completion import complete_models
from recto.cli.console import out, progress
from recto.cli.import_export import write_out
from recto.config import Settings
from recto.config.factory import make_indexer, open_session
from recto.formats import DEFAULT_FORMAT, FORMATS
from recto.lab.commands.replay import Size
from recto.lab.isolation import isolated
from recto.lab.probes import NEED_KINDS, ProbeCounts, SimulatedTurn, total_counts
from recto.lab.simulation import AGENTS, limit_tokens, simulate
from recto.lab.variants import MODES
from recto.stores.memory import MemoryStore

if TYPE_CHECKING:
    from recto.lab.probes import ProbeRun

EXIT_OVERFLOW = 1
_WIRES = {format.short_name: format.name for format in FORMATS.values()}
_TURNS = 100
_WINDOW = 16_000
_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """The session to simulate; every iteration generates it again."""

    kind: str
    seed: int
    turns: int | None
    tokens: int | None
    wire: str

    def __iter__(self) -> Iterator[SimulatedTurn]:
        turns = simulate(self.kind, seed=self.seed, turns=self.turns, wire=_WIRES[self.wire])
        return turns if self.tokens is None else limit_tokens(turns, self.tokens)


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
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="With --ask: counted as this model.")
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
    **options: Any,  # noqa: ANN401  # the other options, by name
) -> None:
    """Makes up the session of an agent, with facts in it that are needed again later.

    Agents: chat (people, presents, corrections), review (files read again and again), research (sources), monitoring
    (long silence, rows of alarms). The same seed makes the same session, byte for byte. 'recto import' takes it.

    With --ask it goes through the session turn by turn and tells which needs could be read in the prompt when they were
    due. Nothing is written into your store and no model is asked. Ends with 1 where something did not fit.

    \b
    Examples:
      recto lab simulate chat --turns 500 -o chat.jsonl --needs needs.jsonl
      recto lab simulate review --seed 7 --tokens 200k --wire messages -o review.jsonl
      recto lab simulate research --turns 200 --ask --window 16k
      recto lab simulate monitoring --turns 300 --ask --mode zones --json
    """
    if turns is not None and tokens is not None:
        raise click.UsageError("say --turns or --tokens, not both")
    for file in (output, needs_file):
        if file is not None and file.exists() and not options["force"]:
            raise click.UsageError(f"'{file}' exists; replace it with --force")
    max_turns = None if tokens is not None else turns or _TURNS
    request = SimulationRequest(kind=kind, seed=options["seed"], turns=max_turns, tokens=tokens, wire=options["wire"])
    if output is not None or not (options["ask"] or needs_file):
        write_out((draft.content + b"\n" for turn in request for draft in turn.drafts), output)
    if needs_file is not None:
        write_out(map(_need_line, request), needs_file)
    if options["ask"]:
        _run_and_show(settings, request, options)


def _need_line(turn: SimulatedTurn) -> bytes:
    """Renders the need of a turn as a JSON line; empty if there is none."""
    if turn.need is None:
        return b""
    payload = asdict(turn.need) | {"distance": turn.need.distance}
    return json.dumps(payload, ensure_ascii=False).encode() + b"\n"


def _run_and_show(settings: Settings, request: SimulationRequest, options: dict[str, Any]) -> None:
    isolated_settings = isolated(settings, model=options["model"], window=options["window"] or _WINDOW)
    if options["mode"]:
        isolated_settings = replace(isolated_settings, window=replace(isolated_settings.window, mode=options["mode"]))
    total = request.turns or 0
    with progress("going through it", total) as advance:
        run = _run(isolated_settings, request, lambda turn: advance(1))
    if options["as_json"]:
        click.echo(json.dumps(_json(request, run)))
    else:
        _show(run)
    if run.over or run.refused:
        click.get_current_context().exit(EXIT_OVERFLOW)


def _run(settings: Settings, turns: SimulationRequest, on_turn: Callable[[SimulatedTurn], object]) -> ProbeRun:
    from recto.lab.probes import run_probes  # noqa: PLC0415  # not needed without --ask

    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(settings, store)) as indexer,
        closing(open_session(settings, store, indexer)) as session,
    ):
        return run_probes(session, turns, on_turn=on_turn)


def _json(request: SimulationRequest, run: ProbeRun) -> dict[str, object]:
    payload = asdict(run)
    payload["fared"] = {kind: _counts_as_dict(counts) for kind, counts in run.fared.items()}
    payload["by_distance"] = {str(below): _counts_as_dict(counts) for below, counts in sorted(run.by_distance.items())}
    header = {"kind": request.kind, "seed": request.seed, "wire": request.wire}
    return header | payload | {"share": round(total_counts(run.fared).share, 4)}


def _counts_as_dict(counts: ProbeCounts) -> dict[str, object]:
    return asdict(counts) | {"missed": counts.missed, "share": round(counts.share, 4)}


def _show(run: ProbeRun) -> None:
    headings = ("asked", "in prompt", "summary", "recalled", "not", "met")
    table = Table("need", *(Column(name, justify="right") for name in headings))
    for kind in NEED_KINDS:
        if kind in run.fared:
            table.add_row(kind, *_cells(run.fared[kind]))
    table.add_section()
    for below, counts in sorted(run.by_distance.items()):
        table.add_row(f"within {below:,} turns", *_cells(counts))
    table.add_section()
    table.add_row("all", *_cells(total_counts(run.fared)))
    out.print(table)
    average = run.tokens // max(run.prompts - run.refused, 1)
    out.print(
        f"{run.turns:,} turns, {run.entries:,} messages, {run.prompts:,} prompts of {average:,} tokens on "
        f"average and {run.largest:,} at most; {run.over:,} over the window, {run.refused:,} refused",
        soft_wrap=True,
    )


def _cells(counts: ProbeCounts) -> Sequence[str]:
    columns = (counts.asked, counts.prompt, counts.summary, counts.recalled, counts.missed)
    return (*(f"{count:,}" for count in columns), f"{counts.share:.0%}")
