"""Audit lines: what was done to a session, why, by whom, and at what cost. Values only.

A line contains no message text; it points to messages. Deriving and ordering lines happens in `recto.engine.audit`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from recto.errors import InputError
from recto.transcript.session_keys import pointer_to

Topic = Literal[
    "decision", "undo", "pin", "memory", "continuity", "recall", "pressure", "failure", "session", "note",
    "bookkeeping", "other",
]  # fmt: skip
"""The topic of a line: a group of related event kinds."""
Ranges: TypeAlias = tuple[tuple[int, int], ...]
Detail: TypeAlias = str | int | float | bool | None

_PICO = 10**12
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}",
             "\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip
"""Characters that start a formula in a spreadsheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One recorded action, derived from its entry in the transcript."""

    session: str
    seq: int
    id: str
    ts: int
    kind: str
    topic: Topic
    surface: str
    """Where it came in: `window`, `memory`, `library`, `import`, or a surface such as `gateway chat`."""
    hash: str
    """Hash of the entry, which binds the line to the chain."""
    policy: str = ""
    reason: str = ""
    by: str = ""
    """The person, model or rule that requested it, if recorded."""
    entries: Ranges = ()
    """Entries that were evicted, restored, pinned or shown."""
    shrunk: Ranges = ()
    """Entries that were shortened."""
    messages: int = 0
    """Total number of these entries."""
    tokens_before: int | None = None
    tokens_after: int | None = None
    freed: int | None = None
    picodollars: int | None = None
    undone_by: int | None = None
    """The entry that undid it."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Every part of each unit's score, by the unit's first entry."""
    details: Mapping[str, Detail] = field(default_factory=dict)
    """Further data of its kind, without message text."""
    text: str | None = None
    """The entry's full content including message text; only if requested."""

    def row(self) -> dict[str, Any]:
        """The line for programs: times in microseconds, costs in dollars, entries as pointers."""
        row = asdict(self)
        row["entries"], row["shrunk"] = self._pointers(self.entries), self._pointers(self.shrunk)
        row["dollars"] = None if self.picodollars is None else self.picodollars / _PICO
        if self.text is None:
            del row["text"]
        return {"record": "line", **row}

    def _pointers(self, ranges: Ranges) -> list[list[str]]:
        return [[pointer_to(self.session, first), pointer_to(self.session, last)] for first, last in ranges]


COLUMNS = (
    "record", "session", "seq", "at", "ts", "topic", "kind", "policy", "reason", "by", "surface", "messages", "entries",
    "shrunk", "tokens_before", "tokens_after", "freed", "dollars", "picodollars", "undone_by", "scores", "details",
    "id", "hash", "text",
)  # fmt: skip
"""Columns of a table, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Selects audit lines. Empty fields match everything."""

    since: int | None = None
    """Microseconds since 1970, inclusive."""
    until: int | None = None
    """Exclusive."""
    kinds: tuple[str, ...] = ()
    """Names of events or topics; empty: all except bookkeeping and lines of imported files."""
    policy: str = ""
    by: str = ""
    surface: str = ""
    newest: bool = False
    """Whether the newest lines come first."""
    past: int | None = None
    """The last line of the previous page."""
    limit: int | None = None
    text: bool = False
    """Whether to include each entry's full content."""

    def matches(self, line: AuditLine) -> bool:
        """Whether a line matches."""
        if self.kinds:
            if line.kind not in self.kinds and line.topic not in self.kinds:
                return False
        elif line.topic == "bookkeeping" or (line.topic == "other" and line.surface == "import"):
            return False
        pairs = (self.policy, line.policy), (self.by, line.by), (self.surface, line.surface)
        return (
            all(not expected or expected == actual for expected, actual in pairs)
            and (self.since is None or line.ts >= self.since)
            and (self.until is None or line.ts < self.until)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditClosing:
    """The last record of a session's lines: the head of its chain when they were read, and the filter used."""

    session: str
    seq: int
    hash: str
    lines: int
    filter: AuditFilter = field(default_factory=AuditFilter)

    def row(self) -> dict[str, Any]:
        """The record for programs."""
        fields = {"session": self.session, "seq": self.seq, "hash": self.hash, "lines": self.lines}
        return {"record": "head", **fields, "asked": asdict(self.filter)}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> AuditClosing:
        """Read a written record, or its row in a table. Raises `InputError` for anything else."""
        try:
            written = row.get("asked") or json.loads(row["details"])["asked"]
            used = AuditFilter(**{**written, "kinds": tuple(written["kinds"])})
            lines = row["lines"] if "lines" in row else json.loads(row["details"])["lines"]
            return cls(session=row["session"], seq=int(row["seq"]), hash=row["hash"], lines=int(lines), filter=used)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("the record that ends an export cannot be read; was it cut or edited?") from None


def table_cells(row: Mapping[str, Any]) -> list[str]:
    """A row as table cells, none of which a spreadsheet interprets as a formula."""
    if row["record"] == "head":
        row = {**row, "details": {"lines": row["lines"], "asked": row["asked"]}}
    return [_cell(row.get(column)) for column in COLUMNS]


def _cell(value: object) -> str:
    if value is None or value in ({}, []):
        return ""
    if isinstance(value, str):
        flat = _one_line(value)
        return f"'{flat}" if value.startswith(_FORMULAS) or flat.lstrip().startswith(_FORMULAS) else flat
    return _one_line(json.dumps(value, ensure_ascii=False)) if isinstance(value, dict | list | tuple) else str(value)


def _one_line(text: str) -> str:
    """One line without characters that hide or reorder text."""
    return "".join(char if char.isprintable() else " " for char in text)
