"""One line of an audit: what was done to a session, why, at whose word, and what it cost. Values only.

A line says nothing of what messages say; it points at them. What it is derived from, and in which order lines come, is
not known here.
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
"""What a line is about: the kinds of events that belong together."""
Ranges: TypeAlias = tuple[tuple[int, int], ...]
Detail: TypeAlias = str | int | float | bool | None

_PICO = 10**12
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}",
             "\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip
"""What a spreadsheet takes for the beginning of a formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """Something that was done, as its entry in the transcript tells it."""

    session: str
    seq: int
    id: str
    ts: int
    kind: str
    topic: Topic
    surface: str
    """Where it came in: `window`, `memory`, `library`, `import`, or a way in such as `gateway chat`."""
    hash: str
    """Of the entry: what binds the line to the chain."""
    policy: str = ""
    reason: str = ""
    by: str = ""
    """The person, model or rule that asked for it, where that was recorded."""
    entries: Ranges = ()
    """The entries it is about: those that left, came back, were pinned or were shown."""
    shrunk: Ranges = ()
    """The entries that became shorter."""
    messages: int = 0
    """How many entries these are together."""
    tokens_before: int | None = None
    tokens_after: int | None = None
    freed: int | None = None
    picodollars: int | None = None
    undone_by: int | None = None
    """The entry that undid it."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """For each unit that was weighed, by its first entry, every part of its score."""
    details: Mapping[str, Detail] = field(default_factory=dict)
    """Whatever else its kind tells, as far as it is no text of a message."""
    text: str | None = None
    """All that the entry says, texts of messages included; only where it was asked for."""

    def row(self) -> dict[str, Any]:
        """As programs read it: times in microseconds, costs in dollars, entries as pointers."""
        told = asdict(self)
        told["entries"], told["shrunk"] = self._pointers(self.entries), self._pointers(self.shrunk)
        told["dollars"] = None if self.picodollars is None else self.picodollars / _PICO
        if self.text is None:
            del told["text"]
        return {"record": "line", **told}

    def _pointers(self, ranges: Ranges) -> list[list[str]]:
        return [[pointer_to(self.session, first), pointer_to(self.session, last)] for first, last in ranges]


COLUMNS = (
    "record", "session", "seq", "at", "ts", "topic", "kind", "policy", "reason", "by", "surface", "messages", "entries",
    "shrunk", "tokens_before", "tokens_after", "freed", "dollars", "picodollars", "undone_by", "scores", "details",
    "id", "hash", "text",
)  # fmt: skip
"""The columns of a table, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which lines are wanted. What is empty asks for nothing in particular."""

    since: int | None = None
    """Microseconds since 1970, this moment included."""
    until: int | None = None
    """This moment not included."""
    kinds: tuple[str, ...] = ()
    """Names of events, or of topics; none: all but bookkeeping, and lines of imported files."""
    policy: str = ""
    by: str = ""
    surface: str = ""
    newest: bool = False
    """Whether the newest lines come first."""
    past: int | None = None
    """The last line of the page before."""
    limit: int | None = None
    text: bool = False
    """Whether all that an entry says is told too."""

    def wants(self, line: AuditLine) -> bool:
        """Whether a line is one of them."""
        if self.kinds:
            if line.kind not in self.kinds and line.topic not in self.kinds:
                return False
        elif line.topic == "bookkeeping" or (line.topic == "other" and line.surface == "import"):
            return False
        named = (self.policy, line.policy), (self.by, line.by), (self.surface, line.surface)
        return (
            all(not wanted or wanted == found for wanted, found in named)
            and (self.since is None or line.ts >= self.since)
            and (self.until is None or line.ts < self.until)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What ends the lines of a session: the head of its chain as they were read, and what was asked for."""

    session: str
    seq: int
    hash: str
    lines: int
    asked: AuditFilter = field(default_factory=AuditFilter)

    def row(self) -> dict[str, Any]:
        """As programs read it."""
        return {"record": "head", **asdict(self)}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Closing:
        """A row that was written, or a line of a table of such rows. Raises `InputError` for anything else."""
        try:
            told = row.get("asked") or json.loads(row["details"])["asked"]
            asked = AuditFilter(**{**told, "kinds": tuple(told["kinds"])})
            lines = row["lines"] if "lines" in row else json.loads(row["details"])["lines"]
            return cls(session=row["session"], seq=int(row["seq"]), hash=row["hash"], lines=int(lines), asked=asked)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("the record that ends an export cannot be read; was it cut or edited?") from None


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row as cells of a table, none of which a spreadsheet takes for a formula."""
    if row["record"] == "head":
        row = {**row, "details": {"lines": row["lines"], "asked": row["asked"]}}
    return [_cell(row.get(column)) for column in COLUMNS]


def _cell(value: object) -> str:
    if value is None or value in ({}, []):
        return ""
    if isinstance(value, str):
        flat = _flat(value)
        return f"'{flat}" if value.startswith(_FORMULAS) or flat.lstrip().startswith(_FORMULAS) else flat
    return _flat(json.dumps(value, ensure_ascii=False)) if isinstance(value, dict | list | tuple) else str(value)


def _flat(text: str) -> str:
    """One line, without anything that hides or turns what stands in it."""
    return "".join(char if char.isprintable() else " " for char in text)
