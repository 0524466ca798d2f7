"""Session files that people already have. Which format a file is in is told by what stands in it, not by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from recto.errors import InputError, MalformedFile, MalformedJson, UnknownFormat
from recto.formats.json_spans import Json, members, parse
from recto.formats.registry import FORMATS, own_format
from recto.formats.session_files import claude_code, codex, flat_jsonl, message_arrays, recto_jsonl
from recto.formats.session_files.jsonl import JsonlLine, Take, lines_of, reason_of, take_lines
from recto.formats.session_files.types import (
    IMPORTED_LINE,
    UNREADABLE_LINE,
    ReadProblem,
    Report,
    SourceEntry,
    session_name,
    session_of_file,
    source_of,
)

__all__ = [
    "IMPORTED_LINE",
    "KNOWN",
    "UNREADABLE_LINE",
    "ReadProblem",
    "Report",
    "SourceEntry",
    "detect_file",
    "lines_of",
    "read_file",
    "source_of",
]

_TITLES = [format.title for format in FORMATS.values()]
KNOWN: Final = (
    "Claude Code sessions, Codex rollouts, neutral session lines, JSON or JSONL with messages of "
    f"{', '.join(_TITLES[:-1])} or {_TITLES[-1]}, and its own JSONL"
)
_ENOUGH = 1 << 16
"""Bytes of a file that tell its format, if they hold one whole line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineFormat:
    """A format with one object per line that can be told by a line."""

    is_line: Callable[[dict[str, Json]], bool]
    session_in: Callable[[dict[str, Json]], Json]
    reader: Callable[[str], Take]


_LINE_FORMATS: Final[Mapping[str, _LineFormat]] = {
    module.NAME: _LineFormat(is_line=module.is_line, session_in=module.session_in, reader=module.reader)
    for module in (codex, claude_code, flat_jsonl)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What the first bytes of a file tell."""

    format: str
    session: str | None = None
    wire: str | None = None
    is_document: bool = False


def detect_file(first: bytes, source: str = "this file") -> str:
    """The format of a file from its first bytes: the more, the surer; 64 KiB will do."""
    return _look(first, source).format


def read_file(
    chunks: Iterable[bytes],
    source: str,
    *,
    session: str | None = None,
    keep_going: bool = False,
    report: Report | None = None,
) -> Iterator[SourceEntry]:
    """The entries of a file in any known format; their sources, put together by `meta["place"]`, are the file.

    The file comes in chunks of any size. `source` names it in errors, `session` its conversation where the file does
    not. Raises `MalformedFile` at the first line that cannot be read; with `keep_going` such a line becomes an event
    with the exact bytes and is reported, and the rest is read. Raises `UnknownFormat` where there is no message.
    """
    rest = iter(chunks)
    head = _head(rest)
    look = _look(head, source)
    name = session or look.session or session_of_file(source)
    whole = chain((head,), rest)
    if look.format == recto_jsonl.NAME:
        return _placed(_recto(whole, source, name, keep_going, report))
    if look.is_document:
        entries = _document(whole, source, name, keep_going, report)
    else:
        format = _LINE_FORMATS.get(look.format)
        take = format.reader(name) if format else message_arrays.reader(name, look.wire)
        entries = take_lines(lines_of(whole), take, source=source, session=name, keep_going=keep_going, report=report)
    return _not_empty(_placed(entries), source)


def _head(chunks: Iterator[bytes]) -> bytes:
    """Enough of a file to tell its format: one whole line, and whether another follows."""
    pieces: list[bytes] = []
    begun = ended = more = False
    for chunk in chunks:
        pieces.append(chunk)
        here = chunk if begun else chunk.lstrip()
        begun = begun or bool(here)
        if not ended:
            _, newline, here = here.partition(b"\n")
            ended = bool(newline)
        more = more or (ended and bool(here.strip()))
        if more and sum(map(len, pieces)) >= _ENOUGH:
            break
    return b"".join(pieces)


def _look(head: bytes, source: str) -> _Look:
    text = head.decode(errors="replace").removeprefix("\N{BYTE ORDER MARK}").strip()
    lines = [line for line in text.split("\n", 200) if line.strip()][:50]
    seen = [_members_told(line) for line in lines]
    if seen and ("recto" in seen[0] or any(map(recto_jsonl.is_line, seen))):
        return _Look(format=recto_jsonl.NAME)
    for fields in seen:
        for name, format in _LINE_FORMATS.items():
            if format.is_line(fields):
                return _Look(format=name, session=_session(format.session_in, seen))
    if not any(line.lstrip()[0] in "[{" for line in lines):
        raise UnknownFormat(source, KNOWN, "this is none of the formats that are known" if text else "it is empty")
    wire = next((own.name for fields in seen if (own := own_format(fields))), None)
    return _Look(format=message_arrays.NAME, wire=wire, is_document=_is_document(lines))


def _session(session_in: Callable[[dict[str, Json]], Json], seen: list[dict[str, Json]]) -> str | None:
    for fields in seen:
        if isinstance(name := session_in(fields), str) and (found := session_name(name)):
            return found
    return None


def _members_told(line: str) -> dict[str, Json]:
    """The members of an object, as far as it goes."""
    found: dict[str, Json] = {}
    try:
        for member in members(line):
            found[member.key] = member.value.value
    except MalformedJson:
        pass
    return found


def _is_document(lines: list[str]) -> bool:
    """Whether the lines are one JSON text and not one each. A cut first line before whole ones is a damaged line."""
    if len(lines) == 1:
        return True
    if _is_json(lines[0]):
        return False
    return lines[0].rstrip()[-1] in "[{,:" or not _is_json(lines[1])


def _is_json(line: str) -> bool:
    try:
        parse(line)
    except MalformedJson:
        return False
    return True


def _document(
    chunks: Iterable[bytes], source: str, session: str, keep_going: bool, report: Report | None
) -> Iterator[SourceEntry]:
    raw = b"".join(chunks)
    before = "\N{BYTE ORDER MARK}" if raw.startswith(b"\xef\xbb\xbf") else ""
    line = JsonlLine(number=1, body=raw.removeprefix(b"\xef\xbb\xbf"), before=before)
    try:
        entries = message_arrays.read_document(line, session)
    except InputError as error:
        reason = reason_of(error)
        number = _line_of(line.body, error)
        if not keep_going:
            raise MalformedFile(source, number, reason) from None
        if report is not None:
            report(ReadProblem(number, reason))
        entries = [line.as_event(session, kind=UNREADABLE_LINE, meta={"reason": reason})]
    yield from entries


def _line_of(raw: bytes, error: InputError) -> int:
    offset = (error.offset or 0) if isinstance(error, MalformedJson) else 0
    try:
        return raw.decode().count("\n", 0, offset) + 1
    except UnicodeDecodeError as wrong:
        return raw.count(b"\n", 0, wrong.start) + 1


def _recto(
    chunks: Iterable[bytes], source: str, session: str, keep_going: bool, report: Report | None
) -> Iterator[SourceEntry]:
    """Recto's own file as copies; `recto_jsonl.read_entries` takes it over with its chain."""

    def stop(problem: ReadProblem) -> None:
        if not keep_going:
            raise MalformedFile(source, problem.line, problem.reason)
        if report is not None:
            report(problem)

    return recto_jsonl.read_copies(lines_of(chunks), source, session, stop)


def _placed(entries: Iterable[SourceEntry]) -> Iterator[SourceEntry]:
    """The entries with their place in the file: conversations may take turns in it."""
    for place, entry in enumerate(entries):
        yield replace(entry, meta={**entry.meta, "place": place})


def _not_empty(entries: Iterable[SourceEntry], source: str) -> Iterator[SourceEntry]:
    """The entries, and an error where none of them is anything but an unknown line."""
    known = False
    for entry in entries:
        known = known or entry.kind != IMPORTED_LINE
        yield entry
    if not known:
        raise UnknownFormat(source, KNOWN)
