"""Computes the size of a cluster from the figures of docs/benchmarks.md.

The module reads rows of that page and does arithmetic. It measures nothing and does not model queueing; `bench.scale`
simulates that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from bench.pages import PAGE

FULL = 0.5
"""How busy a processor is planned to be: the other half is for peaks, for copies, and for the loss of a neighbour."""
MACHINE_CORES = 32
CONNECTIONS = 24
"""That one gateway opens at most: 16 of its store, 8 of its index."""
WRITES = 4
"""Commits of a turn: it is taken, the question, the answer, it is let go."""
RENEWED = 5.0
"""Seconds after which a turn that lasts is renewed."""
DAY = 86_400
SECTIONS = frozenset({"postgres", "gateway", "gateway_memory", "recall_scale"})
"""Whose figures it takes."""
_TERA, _GIGA = 1e12, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one turn costs, by measurement."""

    request_ms: float
    """Of a gateway's processor, over HTTP, streamed, with a file as its store."""
    file_ms: float
    """Of that, the turn itself."""
    turn_ms: float
    """The same with PostgreSQL."""
    database_ms: float
    """Of the processors of the database."""
    gateway_mb: float
    transcript_bytes: float
    log_bytes: float
    index_bytes: float
    """Of one entry."""
    turns_per_second: float
    """That one process and one server reached together, on the machine that measured."""

    @property
    def gateway_ms(self) -> float:
        """Of a gateway's processor, over HTTP, with PostgreSQL as its store."""
        return self.request_ms + max(self.turn_ms - self.file_ms, 0.0)

    @property
    def disk_bytes(self) -> float:
        """Of a turn of two entries, transcript and index."""
        return self.transcript_bytes + 2 * self.index_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What so many turns each second need."""

    gateways: int
    """Processes, each of which fills one core."""
    nodes: int
    """Machines of the database."""
    rows: list[tuple[str, str, str]]
    """What, how much, and how that was worked out."""


def measured(page: Path = PAGE) -> Measured:
    """From the page of figures. Raises `KeyError` where a section was never measured."""
    rows = _rows(page.read_text(encoding="utf-8"))
    turn, on_file = rows["turn, 64 clients: PostgreSQL"], rows["turn, 64 clients: SQLite"]
    return Measured(
        request_ms=rows["64 sessions of 10 messages, streamed: Recto"]["CPU ms"],
        file_ms=on_file["gateway CPU ms"],
        turn_ms=turn["gateway CPU ms"],
        database_ms=turn["database CPU ms"],
        gateway_mb=rows["after all requests"]["value"],
        transcript_bytes=rows["transcript of a turn: PostgreSQL"]["value"],
        log_bytes=rows["log of a turn: PostgreSQL"]["value"],
        index_bytes=rows["1,000,000 entries: index"]["value"],
        turns_per_second=turn["per second"],
    )


def _rows(page: str) -> dict[str, dict[str, float]]:
    """The figures of every table, by what they are of and by column; of two rows of one name the last."""
    found: dict[str, dict[str, float]] = {}
    columns: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[0] == "what":
            columns = cells
        elif cells and len(cells) == len(columns) and not cells[0].startswith("---"):
            values = {name: cell.replace(",", "") for name, cell in zip(columns, cells, strict=True)}
            found[cells[0]] = {name: float(text) for name, text in values.items() if _is_figure(text)}
    return found


def _is_figure(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdigit()


def need(cost: Measured, *, turns: float, sessions: int, model_seconds: float) -> Need:
    """The arithmetic."""
    gateways = math.ceil(turns * cost.gateway_ms / 1e3 / FULL)
    cores = turns * cost.database_ms / 1e3 / FULL
    nodes = math.ceil(cores / MACHINE_CORES)
    flying = turns * model_seconds
    share = math.exp(-RENEWED / model_seconds)
    renewals = turns * share / (1 - share)
    rows = [
        (
            "gateway processes",
            f"{gateways:,}",
            f"{turns:,.0f} × {cost.gateway_ms:.1f} ms ÷ {FULL:.0%}; {math.ceil(gateways / MACHINE_CORES):,} machines "
            f"of {MACHINE_CORES} cores",
        ),
        ("their memory", f"{gateways * cost.gateway_mb / 1e3:,.0f} GB", f"{cost.gateway_mb:.0f} MB each"),
        (
            "turns under way",
            f"{flying:,.0f}",
            f"{turns:,.0f} × {model_seconds:g} s of the model; {flying / gateways:,.0f} in each process",
        ),
        (
            "database nodes",
            f"{nodes:,}",
            f"{turns:,.0f} × {cost.database_ms:.1f} ms ÷ {FULL:.0%} = {cores:,.0f} cores, {MACHINE_CORES} in each",
        ),
        ("sessions of a node", f"{sessions / nodes:,.0f}", f"{sessions:,} ÷ {nodes:,}"),
        (
            "commits of a node each second",
            f"{turns * WRITES / nodes:,.0f}",
            f"{WRITES} of a turn: taken, question, answer, let go",
        ),
        (
            "renewals each second",
            f"{renewals:,.0f}",
            f"every {RENEWED:g} s of a turn that lasts, where a model takes {model_seconds:g} s on average",
        ),
        (
            "connections, without a pooler",
            f"{gateways * CONNECTIONS:,}",
            f"{CONNECTIONS} of each process; a pooler in transaction mode needs about {math.ceil(cores * FULL * 4):,}: "
            f"four for each core at work",
        ),
        (
            "disk each day",
            f"{turns * DAY * cost.disk_bytes / _TERA:,.0f} TB",
            f"{turns * DAY / 1e9:,.2f} billion turns × {cost.disk_bytes:,.0f} bytes: transcript "
            f"{cost.transcript_bytes:,.0f}, index 2 × {cost.index_bytes:,.0f}",
        ),
        (
            "disk of a node each day",
            f"{turns * DAY * cost.disk_bytes / nodes / _TERA:,.2f} TB",
            "without copies; each copy is as much again",
        ),
        (
            "log of the database",
            f"{turns * cost.log_bytes / nodes / 1e6:,.0f} MB/s",
            f"of a node: {cost.log_bytes:,.0f} bytes of a turn, to the disk and to each copy",
        ),
    ]
    return Need(gateways=gateways, nodes=nodes, rows=rows)


def one_of_each(cost: Measured) -> list[tuple[str, str, str]]:
    """What one gateway and one node hold."""
    process = 1e3 / cost.gateway_ms
    core = 1e3 / cost.database_ms
    return [
        (
            "one process of a gateway, full",
            f"{process:,.0f} turns/s",
            f"1,000 ÷ {cost.gateway_ms:.1f} ms: a request of {cost.request_ms:.1f} ms, of which a turn on a file is "
            f"{cost.file_ms:.1f} ms and one on PostgreSQL {cost.turn_ms:.1f} ms",
        ),
        (
            f"a machine of {MACHINE_CORES} cores with gateways, as planned",
            f"{process * MACHINE_CORES * FULL:,.0f} turns/s",
            f"{MACHINE_CORES} processes, {FULL:.0%} busy",
        ),
        ("one core of the database, full", f"{core:,.0f} turns/s", f"1,000 ÷ {cost.database_ms:.1f} ms"),
        (
            f"a node of {MACHINE_CORES} cores, as planned",
            f"{core * MACHINE_CORES * FULL:,.0f} turns/s",
            f"{MACHINE_CORES} cores, {FULL:.0%} busy",
        ),
        (
            "measured, one process and one server sharing a machine",
            f"{cost.turns_per_second:,.0f} turns/s",
            "64 clients, without HTTP; whatever else the machine did is in it",
        ),
    ]
