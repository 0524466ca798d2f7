"""Imports session files of other programs. The format of a file is detected from its content, not from its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from recto.errors import InputError, MalformedFile, MalformedJson, UnknownFormat
from recto.formats.json_spans import Json, members, parse
from recto.formats.message import object_in, text_in
from recto.formats.registry import FORMATS, own_format
from recto.formats.session_files import (
    aider,
    chat_exports,
    claude_code,
    codex,
    copilot_cli,
    cursor,
    flat_jsonl,
    gemini_cli,
    goose,
    message_arrays,
    opencode,
    pi,
    qwen_code,
    recto_jsonl,
)
from recto.formats.session_files.jsonl import JsonlLine, LineReader, lines_of, read_lines, reason_of
from recto.formats.session_files.types import (
    IMPORTED_LINE,
    UNREADABLE_LINE,
    ProblemReporter,
    ReadProblem,
    SourceEntry,
    session_name,
    session_of_file,
    source_of,
)

__all__ = [
    "IMPORTED_LINE",
    "KNOWN",
    "UNREADABLE_LINE",
    "ProblemReporter",
    "ReadProblem",
    "SourceEntry",
    "detect_file",
    "detect_source",
    "lines_of",
    "names_session",
    "read_file",
    "session_of_file",
    "source_of",
]

_TITLES = [format.title for format in FORMATS.values()]
KNOWN: Final = (
    "Claude Code sessions, Codex rollouts, Qwen Code chats, pi sessions, Gemini CLI chats, opencode exports, goose "
    "sessions, Copilot CLI sessions, databases of Cursor, histories of aider, exports of ChatGPT and Claude, neutral "
    f"session lines, JSON or JSONL with messages of {', '.join(_TITLES[:-1])} or {_TITLES[-1]}, and its own JSONL"
)
_HEAD_BYTES = 1 << 16
"""Bytes of a file that show its format, if they contain one complete line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineFormat:
    """A file format with one object per line, which a single line can identify."""

    is_line: Callable[[dict[str, Json]], bool]
    session_in: Callable[[dict[str, Json]], Json]
    reader: Callable[[str], LineReader]


_LINE_FORMATS: Final[Mapping[str, _LineFormat]] = {
    module.NAME: _LineFormat(is_line=module.is_line, session_in=module.session_in, reader=module.reader)
    for module in (codex, qwen_code, pi, gemini_cli, opencode, goose, copilot_cli, cursor, claude_code, flat_jsonl)
}


_AGENTS: Final[Mapping[str, str]] = {
    module.NAME: module.NAME.replace("_", "-")
    for module in (codex, qwen_code, pi, gemini_cli, opencode, goose, copilot_cli, cursor, claude_code, aider)
}
"""The agents that write files in these formats."""
_DOCUMENT_FORMATS: Final[Mapping[str, Callable[[JsonlLine, str], list[SourceEntry]]]] = {
    module.NAME: module.read_document for module in (gemini_cli, opencode, goose, chat_exports)
}
"""Formats of which one document can be a whole file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileSignature:
    """What the first bytes of a file show."""

    format: str
    session: str | None = None
    wire: str | None = None
    is_document: bool = False


def detect_file(first: bytes, source: str = "this file") -> str:
    """Detects the format of a file from its first bytes; 64 KiB suffice."""
    return _inspect(first, source).format


def names_session(first: bytes, source: str = "this file") -> bool:
    """Whether a file names its conversation; else the session is named after the file."""
    return _inspect(first, source).session is not None


def detect_source(first: bytes, source: str = "this file") -> tuple[str, str]:
    """Detects the agent that wrote a file and the folder it worked in; empty texts for what is not known."""
    agent = _AGENTS.get(detect_file(first, source), "")
    lines = first.decode(errors="replace").split("\n", 50)[:50] if agent else []
    found = (_folder_in(_leading_members(line)) for line in lines)
    return agent, next((folder for folder in found if folder), "")


def _folder_in(fields: dict[str, Json]) -> str:
    """Returns the working folder that a line of an agent's file names."""
    payload, info = object_in(fields.get("payload")), object_in(fields.get("info"))
    context = object_in(object_in(fields.get("data")).get("context"))
    named = (*map(fields.get, ("cwd", "working_dir")), payload.get("cwd"), info.get("directory"), context.get("cwd"))
    return next((folder for folder in map(text_in, named) if folder), "")


def read_file(
    chunks: Iterable[bytes],
    source: str,
    *,
    session: str | None = None,
    keep_going: bool = False,
    report: ProblemReporter | None = None,
) -> Iterator[SourceEntry]:
    """Reads the entries of a file in any known format; their sources, in the order of `meta["place"]`, are the file.

    Args:
        chunks: The file, in chunks of any size.
        source: The name of the file in errors.
        session: The name of its conversation, if the file does not name it.
        keep_going: Turns a line that cannot be parsed into an event with its exact bytes.
        report: Is called with each such line.

    Raises:
        MalformedFile: At the first line that cannot be parsed, without `keep_going`.
        UnknownFormat: If the file contains no message.
    """
    rest = iter(chunks)
    head = _head(rest)
    signature = _inspect(head, source)
    name = session or signature.session or session_of_file(source)
    content = chain((head,), rest)
    if signature.format == recto_jsonl.NAME:
        return _numbered(_recto(content, source, name, keep_going, report))
    if signature.format == aider.NAME:  # a chat in which nothing was said yet is no error
        chats = aider.read_chats(lines_of(content), source=source, session=name, keep_going=keep_going, report=report)
        return _numbered(chats)
    if signature.is_document:
        read_document = _DOCUMENT_FORMATS.get(signature.format, message_arrays.read_document)
        entries = _document(content, read_document, source, name, keep_going, report)
    else:
        format = _LINE_FORMATS.get(signature.format)
        read = format.reader(name) if format else message_arrays.reader(name, signature.wire)
        entries = read_lines(lines_of(content), read, source=source, session=name, keep_going=keep_going, report=report)
    return _not_empty(_numbered(entries), source)


def _head(chunks: Iterator[bytes]) -> bytes:
    """Reads enough of a file to detect its format: one complete line, and whether another follows."""
    pieces: list[bytes] = []
    started = ended = more = False
    for chunk in chunks:
        pieces.append(chunk)
        here = chunk if started else chunk.lstrip()
        started = started or bool(here)
        if not ended:
            _, newline, here = here.partition(b"\n")
            ended = bool(newline)
        more = more or (ended and bool(here.strip()))
        if more and sum(map(len, pieces)) >= _HEAD_BYTES:
            break
    return b"".join(pieces)


def _inspect(head: bytes, source: str) -> _FileSignature:
    text = head.decode(errors="replace").removeprefix("\N{BYTE ORDER MARK}").strip()
    lines = [line for line in text.split("\n", 200) if line.strip()][:50]
    if lines and aider.is_start(lines[0]):
        return _FileSignature(format=aider.NAME)
    seen = [_leading_members(line) for line in lines]
    if seen and ("recto" in seen[0] or any(map(recto_jsonl.is_line, seen))):
        return _FileSignature(format=recto_jsonl.NAME)
    for fields in seen:
        for name, format in _LINE_FORMATS.items():
            if format.is_line(fields):
                return _FileSignature(format=name, session=_session(format.session_in, seen))
    if not any(line.lstrip()[0] in "[{" for line in lines):
        raise UnknownFormat(source, KNOWN, "this is none of the formats that are known" if text else "it is empty")
    is_document = _is_document(lines)
    if is_document:
        fields = _leading_members(text.removeprefix("[").lstrip())
        if text.startswith("[") and chat_exports.is_document(fields, text):
            return _FileSignature(format=chat_exports.NAME, is_document=True)
        for name, format in _LINE_FORMATS.items():
            if name in _DOCUMENT_FORMATS and format.is_line(fields):
                return _FileSignature(format=name, session=_session(format.session_in, [fields]), is_document=True)
    wire = next((own.name for fields in seen if (own := own_format(fields))), None)
    return _FileSignature(format=message_arrays.NAME, wire=wire, is_document=is_document)


def _session(session_in: Callable[[dict[str, Json]], Json], seen: list[dict[str, Json]]) -> str | None:
    for fields in seen:
        if isinstance(name := session_in(fields), str) and (key := session_name(name)):
            return key
    return None


def _leading_members(line: str) -> dict[str, Json]:
    """Returns the members of an object up to the first error."""
    fields: dict[str, Json] = {}
    try:
        for member in members(line):
            fields[member.key] = member.value.value
    except MalformedJson:
        pass
    return fields


def _is_document(lines: list[str]) -> bool:
    """Whether the lines are one JSON document. An incomplete first line before complete ones is a damaged line."""
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
    chunks: Iterable[bytes],
    read: Callable[[JsonlLine, str], list[SourceEntry]],
    source: str,
    session: str,
    keep_going: bool,
    report: ProblemReporter | None,
) -> Iterator[SourceEntry]:
    raw = b"".join(chunks)
    before = "\N{BYTE ORDER MARK}" if raw.startswith(b"\xef\xbb\xbf") else ""
    line = JsonlLine(number=1, body=raw.removeprefix(b"\xef\xbb\xbf"), before=before)
    try:
        entries = read(line, session)
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
    chunks: Iterable[bytes], source: str, session: str, keep_going: bool, report: ProblemReporter | None
) -> Iterator[SourceEntry]:
    """Reads Recto's own file as copies; `recto_jsonl.read_entries` imports it with its hash chain."""

    def stop(problem: ReadProblem) -> None:
        if not keep_going:
            raise MalformedFile(source, problem.line, problem.reason)
        if report is not None:
            report(problem)

    return recto_jsonl.read_copies(lines_of(chunks), source, session, stop)


def _numbered(entries: Iterable[SourceEntry]) -> Iterator[SourceEntry]:
    """Adds the place in the file to each entry: a file may interleave conversations."""
    for place, entry in enumerate(entries):
        yield replace(entry, meta={**entry.meta, "place": place})


def _not_empty(entries: Iterable[SourceEntry], source: str) -> Iterator[SourceEntry]:
    """Yields the entries. Raises `UnknownFormat` at the end if all of them are unknown lines."""
    known = False
    for entry in entries:
        known = known or entry.kind != IMPORTED_LINE
        yield entry
    if not known:
        raise UnknownFormat(source, KNOWN)
