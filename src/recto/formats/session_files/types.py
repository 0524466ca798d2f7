"""Entries read from a session file, with the layout that restores the bytes of the file.

A file is the concatenation of the sources of its entries. So an import can be exported in its original form, byte for
byte, although the content of an entry is only the message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from recto.errors import InputError
from recto.formats.json_spans import Json
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import Role, session_key

IMPORTED_LINE: Final = "imported_line"
"""The kind of an event for a part of a file that is not a message."""

UNREADABLE_LINE: Final = "unreadable_line"
"""The kind of an event for a part of a file that could not be parsed."""

LayoutPiece: TypeAlias = "str | tuple[int, int]"
"""A piece of the source: a literal text, or a slice of the content."""

_MAX_EXACT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """One message or event of a file."""

    session: str
    """The name of its conversation; always a valid session key."""
    role: Role
    kind: str
    wire: str
    content: bytes
    """The exact bytes of the message, or of a line that could not be parsed."""
    ts: int | None
    meta: Mapping[str, Json]
    """What the file holds besides the message: place, line, model, usage, ids. Can be written as JSON."""
    layout: tuple[LayoutPiece, ...]
    is_known: bool = False
    """Whether its reader is certain that the line is no message, although it has a role and content."""

    @property
    def source(self) -> bytes:
        """The bytes of the file that belong to this entry."""
        return source_of(self.content, self.layout)


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """A line that could not be parsed and is imported as it is."""

    line: int
    reason: str


ProblemReporter: TypeAlias = Callable[[ReadProblem], object]


def source_of(content: bytes, layout: Sequence[str | Sequence[int]]) -> bytes:
    """Restores the source of an entry from its content and its layout."""
    return b"".join(piece.encode() if isinstance(piece, str) else content[piece[0] : piece[1]] for piece in layout)


def layout_of(*pieces: LayoutPiece) -> tuple[LayoutPiece, ...]:
    """Creates a layout without empty literals."""
    return tuple(piece for piece in pieces if piece)


def session_name(*steps: object) -> str | None:
    """Joins steps to a session key; `None` if the result is not a valid one."""
    name = "/".join(str(step) for step in steps)
    try:
        return session_key(name)
    except InputError:
        return None


def session_of_file(source: str) -> str:
    """Derives a session key from a file name. The name is not opened as a path."""
    last = source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    stem = last.rsplit(".", 1)[0] or last
    printable = "".join(char if char.isprintable() else "?" for char in stem[:128]).strip()
    return session_name(printable) or "imported"


def json_safe(value: Json) -> Json:
    """Replaces what many JSON parsers cannot handle: lone surrogates, inexact and infinite numbers."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case bool() | None:
            return value
        case int():
            return value if abs(value) < _MAX_EXACT else str(value)[:64]
        case float():
            return value if math.isfinite(value) else str(value)
        case list():
            return [json_safe(item) for item in value]
        case dict():
            return {str(json_safe(key)): json_safe(item) for key, item in value.items()}


def present_members(fields: Mapping[str, Json], *keys: str) -> dict[str, Json]:
    """Returns those of these members that are present and not null, ready for `meta`."""
    return {key: json_safe(fields[key]) for key in keys if fields.get(key) is not None}


_ISO = lazy_re(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?: ?(Z|[+-]\d\d:?\d\d))?)?", re.ASCII
)
_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
_DAYS_BEFORE_1970 = 719_162


def microseconds(value: Json) -> int | None:
    """Parses a time in ISO 8601 (UTC without a zone), or a number of seconds, milliseconds or microseconds."""
    if isinstance(value, str):
        match = _ISO.fullmatch(value)
        return _moment(*match.groups()) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**17:
        return None
    for least, factor in ((10**14, 1), (10**11, 1_000)):
        if value >= least:
            return int(value * factor)
    return int(value * 1_000_000)


def _moment(*groups: str | None) -> int | None:
    year, month, day, hour, minute, second = (int(group or 0) for group in groups[:6])
    days = _days(year, month, day)
    if days is None or hour > 23 or minute > 59 or second > 60:
        return None
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - _offset(groups[7])
    return seconds * 1_000_000 + int((groups[6] or "0").ljust(6, "0")[:6])


def _days(year: int, month: int, day: int) -> int | None:
    """Returns the days since 1970 in the Gregorian calendar; `None` for an invalid date."""
    if year < 1 or not 1 <= month <= 12:
        return None
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = _DAYS_BEFORE_MONTH[month] - _DAYS_BEFORE_MONTH[month - 1] + (leap and month == 2)
    if not 1 <= day <= length:
        return None
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    return days + _DAYS_BEFORE_MONTH[month - 1] + (leap and month > 2) + day - 1 - _DAYS_BEFORE_1970


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return -minutes * 60 if zone[0] == "-" else minutes * 60
