"""Files with one JSON object per line: splits them into lines, and handles lines that cannot be parsed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from recto.errors import InputError, MalformedFile
from recto.formats.json_spans import Json, JsonSpan, Member, text_of
from recto.formats.registry import format_named
from recto.formats.request_body import envelope
from recto.formats.session_files.types import (
    IMPORTED_LINE,
    UNREADABLE_LINE,
    ProblemReporter,
    ReadProblem,
    SourceEntry,
    json_safe,
    layout_of,
)
from recto.transcript.entries import MESSAGE, Role

_BLANK = b" \t\r\n"
_BOM = "\N{BYTE ORDER MARK}"


class LineFields(NamedTuple):
    """A line that is an object."""

    text: str
    members: Mapping[str, Member]
    """Its members, with their positions in the text."""
    fields: dict[str, Json]
    """The values of its members."""


@dataclass(frozen=True, slots=True)
class ConvertedMessage:
    """A message of a file that was converted to a provider's format."""

    message: dict[str, Json]
    ts: int | None
    meta: dict[str, Json]
    session: str = ""
    """Its conversation, where the file has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonlLine:
    """A non-blank line, with the blank lines before it and its line ending."""

    number: int
    body: bytes
    before: str = ""
    after: str = ""

    def parse(self) -> LineFields:
        """Parses the line. Raises `InputError` if it is not an object."""
        text = text_of(self.body)
        members = envelope(text)
        return LineFields(text, members, {key: member.value.value for key, member in members.items()})

    def as_event(
        self,
        session: str,
        *,
        ts: int | None = None,
        meta: dict[str, Json] | None = None,
        kind: str = IMPORTED_LINE,
        is_known: bool = False,
    ) -> SourceEntry:
        """Creates an event from the complete line. `is_known`: whether it is certain that the line is no message."""
        return SourceEntry(
            session=session,
            role="event",
            kind=kind,
            wire="",
            content=self.body,
            ts=ts,
            meta={"line": self.number, **(meta or {})},
            layout=layout_of(self.before, (0, len(self.body)), self.after),
            is_known=is_known,
        )

    def as_message(
        self, session: str, text: str, span: JsonSpan, *, role: Role, wire: str, ts: int | None, meta: dict[str, Json]
    ) -> SourceEntry:
        """Creates a message from a part of the line."""
        content = text[span.start : span.end].encode()
        return SourceEntry(
            session=session,
            role=role,
            kind=MESSAGE,
            wire=wire,
            content=content,
            ts=ts,
            meta={"line": self.number, **meta},
            layout=layout_of(self.before + text[: span.start], (0, len(content)), text[span.end :] + self.after),
        )

    def as_conversions(self, session: str, conversions: Iterable[ConvertedMessage], *, wire: str) -> list[SourceEntry]:
        """Creates messages that were converted to a provider's format; the line itself goes with the first of them."""
        role_of = format_named(wire).messages.role_of
        return [
            SourceEntry(
                session=conversion.session or session,
                role=role_of(conversion.message),
                kind=MESSAGE,
                wire=wire,
                content=json.dumps(json_safe(conversion.message), ensure_ascii=False).encode(),
                ts=conversion.ts,
                meta={"line": self.number, **conversion.meta},
                layout=() if place else layout_of(self.before + text_of(self.body) + self.after),
            )
            for place, conversion in enumerate(conversions)
        ]


LineReader: TypeAlias = Callable[[JsonlLine], list[SourceEntry]]
"""Parses one line of a format. Raises `InputError`."""


def lines_of(chunks: Iterable[bytes]) -> Iterator[JsonlLine]:
    """Splits chunks of any size into lines. Blank lines at the end of the file are one empty line."""
    before = ""
    number = 0
    for number, raw in enumerate(_split(chunks), 1):
        line = raw
        if number == 1 and line.startswith(_BOM.encode()):
            before, line = _BOM, line[3:]
        body = line.rstrip(b"\r\n")
        if not body.strip(_BLANK):
            before += line.decode()
            continue
        yield JsonlLine(number=number, body=body, before=before, after=line[len(body) :].decode())
        before = ""
    if before:
        yield JsonlLine(number=number, body=b"", before=before)


def read_lines(
    lines: Iterable[JsonlLine],
    read: LineReader,
    *,
    source: str,
    session: str,
    keep_going: bool,
    report: ProblemReporter | None,
) -> Iterator[SourceEntry]:
    """Yields the entries of all lines.

    A line that cannot be parsed raises `MalformedFile`; with `keep_going` it is reported and becomes an event.
    """
    for line in lines:
        if not line.body:
            yield line.as_event(session)
            continue
        try:
            entries = read(line)
        except InputError as error:
            reason = reason_of(error)
            if not keep_going:
                raise MalformedFile(source, line.number, reason) from None
            if report is not None:
                report(ReadProblem(line.number, reason))
            yield line.as_event(session, kind=UNREADABLE_LINE, meta={"reason": reason})
        else:
            yield from entries


def reason_of(error: InputError) -> str:
    """Returns the message of an error so that it can be printed and stored."""
    return str(error).encode(errors="backslashreplace").decode()


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    pending: list[bytes] = []
    for chunk in chunks:
        for piece in _by_newline(chunk):
            pending.append(piece)
            if piece.endswith(b"\n"):
                yield b"".join(pending)
                pending.clear()
    if pending:
        yield b"".join(pending)


def _by_newline(chunk: bytes) -> Iterator[bytes]:
    start = 0
    while end := chunk.find(b"\n", start) + 1:
        yield chunk[start:end]
        start = end
    if start < len(chunk):
        yield chunk[start:]
