"""Recto's own JSONL: a header, then one line per entry with all of its fields and hashes.

Content and meta are embedded as they are if they are JSON on one line, else in base64. Reading recomputes the hash
chain from the bytes and trusts no hash in the file. The header may name the last entry of each session; then a file
that lost its end is rejected too.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, get_args

from recto.errors import FileTooNew, InputError, MalformedFile, MalformedJson
from recto.formats.json_spans import Json, Member, parse, text_of
from recto.formats.message import object_in
from recto.formats.request_body import envelope
from recto.formats.session_files.jsonl import JsonlLine, reason_of
from recto.formats.session_files.types import (
    UNREADABLE_LINE,
    ProblemReporter,
    ReadProblem,
    SourceEntry,
    layout_of,
    session_name,
)
from recto.transcript.entries import EMPTY_HEAD, MAX_SEQ, ChainBreak, Entry, Head, Role, refuse_unstorable, verify_chain

NAME: Final = "recto"
VERSION: Final = 1

_ROLES: Final[Mapping[str, Role]] = {role: role for role in get_args(Role)}
_TEXTS = ("session", "id", "role", "kind", "wire", "surface", "counter")
_NUMBERS = ("seq", "ts", "tokens")
_KNOWN = frozenset((*_TEXTS, *_NUMBERS, "key", "meta", "meta_base64", "content", "content_base64", "prev", "hash"))


def is_line(fields: Mapping[str, Json]) -> bool:
    """Whether only Recto writes such a line."""
    return {"session", "seq", "prev", "hash"} <= fields.keys()


def write_header(heads: Mapping[str, Head] | None = None) -> bytes:
    """Writes the first line of a file. With `heads`, a reader can verify that the file is complete."""
    header: dict[str, Json] = {"recto": VERSION}
    if heads is not None:
        header["heads"] = {session: [head.seq, head.hash.hex()] for session, head in heads.items()}
    return json.dumps(header, ensure_ascii=False).encode() + b"\n"


def write_line(entry: Entry) -> bytes:
    """Writes an entry as one line."""
    fields = {
        "session": entry.session,
        "seq": entry.seq,
        "id": entry.id,
        "ts": entry.ts,
        "role": entry.role,
        "kind": entry.kind,
        "wire": entry.wire,
        "surface": entry.surface,
        "tokens": entry.tokens,
        "counter": entry.counter,
        "key": entry.key,
    }
    return b"".join(
        (
            json.dumps(fields, ensure_ascii=False).encode()[:-1],
            _embedded("meta", entry.meta),
            _embedded("content", entry.content),
            f', "prev": "{entry.prev.hex()}", "hash": "{entry.hash.hex()}"}}\n'.encode(),
        )
    )


def read_entries(lines: Iterable[JsonlLine], source: str) -> Iterator[Entry]:
    """Yields the entries of a file with verified hashes. Raises `MalformedFile` at the first that does not match."""
    heads: dict[str, Head] = {}
    expected: dict[str, Head] | None = None
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            if number == 1:
                expected = _read_header(line.body, source)
            elif line.body:
                yield _follow(heads, _read_line(line.body)[0])
        except FileTooNew:
            raise
        except InputError as error:
            raise MalformedFile(source, line.number, reason_of(error)) from None
    if number == 0:
        raise MalformedFile(source, 1, "the file is empty")
    if missing := _head_mismatch(heads, expected):
        raise MalformedFile(source, number, missing)


def read_copies(
    lines: Iterable[JsonlLine], source: str, session: str, report: ProblemReporter | None
) -> Iterator[SourceEntry]:
    """Yields what a damaged file still contains: entries as copies without hashes, the rest as unreadable lines."""
    heads: dict[str, Head] = {}
    expected: dict[str, Head] | None = None
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            if number == 1:
                expected = _read_header(line.body, source)
            if number == 1 or not line.body:
                yield line.as_event(session)
                continue
            entry, text, content = _read_line(line.body)
        except FileTooNew:
            raise
        except InputError as error:
            reason = reason_of(error)
            _report(report, line.number, reason)
            yield line.as_event(session, kind=UNREADABLE_LINE, meta={"reason": reason})
            continue
        try:
            _follow(heads, entry)
        except InputError as error:
            _report(report, line.number, reason_of(error))
            heads[entry.session] = Head(entry.seq, entry.hash)
        yield _copy(entry, line, text, content)
    if missing := _head_mismatch(heads, expected):
        _report(report, number, missing)


def _read_header(body: bytes, source: str) -> dict[str, Head] | None:
    fields = {key: member.value.value for key, member in envelope(text_of(body)).items()}
    version = fields.get("recto")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise MalformedJson('the first line does not name the format as "recto": 1')
    if version > VERSION:
        raise FileTooNew(source, version, VERSION)
    if "heads" not in fields:
        return None
    heads = {}
    for session, head in object_in(fields["heads"]).items():
        match head:
            case [int(seq), str(digest)]:
                heads[session] = Head(seq, _hash(digest, "heads"))
            case _:
                raise MalformedJson("a head is a number and a hash")
    return heads


def _read_line(body: bytes) -> tuple[Entry, str, Member]:
    text = text_of(body)
    members = envelope(text)
    if unknown := sorted(members.keys() - _KNOWN):
        raise MalformedJson(f"an entry has no member '{unknown[0]}'")
    fields = {key: member.value.value for key, member in members.items()}
    texts = {key: _text(fields, key) for key in _TEXTS}
    numbers = {key: _number(fields, key) for key in _NUMBERS}
    if not 1 <= numbers["seq"] <= MAX_SEQ:
        raise MalformedJson(f"'seq' is {numbers['seq']}, entries are numbered from 1")
    if texts["role"] not in _ROLES:
        raise MalformedJson(f"'{texts['role']}' is not a role")
    content = _bytes_member(members, "content")
    entry = Entry(
        session=texts["session"],
        seq=numbers["seq"],
        id=texts["id"],
        ts=numbers["ts"],
        role=_ROLES[texts["role"]],
        kind=texts["kind"],
        wire=texts["wire"],
        surface=texts["surface"],
        tokens=numbers["tokens"],
        counter=texts["counter"],
        key=None if fields.get("key") is None else _text(fields, "key"),
        meta=_bytes(text, _bytes_member(members, "meta")),
        content=_bytes(text, content),
        prev=_hash(_text(fields, "prev"), "prev"),
        hash=_hash(_text(fields, "hash"), "hash"),
    )
    refuse_unstorable(entry.session, [entry])
    return entry, text, content


def _follow(heads: dict[str, Head], entry: Entry) -> Entry:
    reached = verify_chain(entry.session, heads.get(entry.session, EMPTY_HEAD), [entry])
    if isinstance(reached, ChainBreak):
        raise InputError(f"session '{entry.session}': {reached.reason}")
    heads[entry.session] = reached
    return entry


def _head_mismatch(heads: Mapping[str, Head], expected: Mapping[str, Head] | None) -> str:
    for session, head in ({} if expected is None else expected).items():
        reached = heads.get(session, EMPTY_HEAD)
        if reached.seq < head.seq:
            return f"session '{session}' ends at entry {reached.seq}, the header names {head.seq}: the end is missing"
        if reached != head:
            return f"session '{session}' ends otherwise than the header says"
    if expected is not None and (unnamed := heads.keys() - expected.keys()):
        return f"session '{min(unnamed)}' is not named in the header"
    return ""


def _copy(entry: Entry, line: JsonlLine, text: str, content: Member) -> SourceEntry:
    span = content.value
    embedded = content.key == "content"
    return SourceEntry(
        session=session_name(entry.session) or entry.session,
        role=entry.role,
        kind=entry.kind,
        wire=entry.wire,
        content=entry.content,
        ts=entry.ts,
        meta={"line": line.number, "id": entry.id, "seq": entry.seq, "hash": entry.hash.hex()},
        layout=layout_of(line.before + text[: span.start], (0, len(entry.content)), text[span.end :] + line.after)
        if embedded
        else layout_of(line.before + text + line.after),
    )


def _embedded(key: str, raw: bytes) -> bytes:
    if _fits_in_a_line(raw):
        return f', "{key}": '.encode() + raw
    return f', "{key}_base64": "{base64.b64encode(raw).decode()}"'.encode()


def _fits_in_a_line(raw: bytes) -> bool:
    if b"\n" in raw or b"\r" in raw or raw != raw.strip(b" \t"):
        return False
    try:
        parse(text_of(b"[" + raw + b"]"))  # one level deeper, as it will be in the line
        parse(text_of(raw))  # and alone: "1,2" is no value
    except MalformedJson:
        return False
    return True


def _bytes_member(members: Mapping[str, Member], key: str) -> Member:
    present = [members[name] for name in (key, f"{key}_base64") if name in members]
    if len(present) != 1:
        raise MalformedJson(f"an entry has one of '{key}' and '{key}_base64'")
    return present[0]


def _bytes(text: str, member: Member) -> bytes:
    if not member.key.endswith("_base64"):
        return text[member.value.start : member.value.end].encode()
    encoded = member.value.value
    if not isinstance(encoded, str):
        raise MalformedJson(f"'{member.key}' is not a text")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedJson(f"'{member.key}' is not base64") from None


def _text(fields: Mapping[str, Json], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise MalformedJson(f"'{key}' is missing or not a text")
    return value


def _number(fields: Mapping[str, Json], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedJson(f"'{key}' is missing or not a whole number")
    return value


def _hash(text: str, key: str) -> bytes:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != 32 or digest.hex() != text:
        raise MalformedJson(f"'{key}' is not a hash of 64 hexadecimal digits")
    return digest


def _report(report: ProblemReporter | None, line: int, reason: str) -> None:
    if report is not None:
        report(ReadProblem(line, reason))
