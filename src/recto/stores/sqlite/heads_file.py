"""The heads file: the head of every session, stored outside the database to detect truncated or rewritten history.

One record of 256 bytes for each session, at its number:

    slot a   crc32 | seq | first 8 bytes of SHA-256(session key) | hash of the last entry      64 bytes
    slot b   the same; the slot with the lower seq is written next, so one of them is always intact
    name     crc32 | length | the session key, cut where it is longer than fits               128 bytes

A slot is written after its commit and without fsync: after a crash it may lag behind the database, but it
is never ahead. Any of the writes since the last fsync may be missing, the one with the name too, while later ones are
there: a slot or a name of zeros was never written and is no damage.

The first record is the header. Its count of rewrites tells other processes to drop their caches.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from recto.transcript.entries import Head

RECORD = 256
_SLOT = struct.Struct(">I4xQ8s32s8x")
_NAME = struct.Struct(">IH")
_NAME_ROOM = 128 - _NAME.size
_HEADER = struct.Struct(">16sII")
_MAGIC = b"recto heads 1".ljust(16, b"\0")
_NEVER_WRITTEN = bytes(RECORD)
_NO_MARK = bytes(8)


class StoredHead(Struct, frozen=True):
    """The record of one session."""

    number: int
    name: str | None
    """The session key; None if it was too long for the record."""
    start: str
    """Start of the session key, as much as fits."""
    mark: bytes
    """Hash prefix that identifies the key even if the name is cut."""
    head: Head
    slot: int
    """Slot of this head; the other one is written next."""

    def is_of(self, session: str) -> bool:
        """Whether this record belongs to a session."""
        return self.mark == mark_of(session)


class HeadsRead(Struct, frozen=True):
    """The parsed file."""

    kept: tuple[StoredHead, ...]
    problems: tuple[str, ...]


@lru_cache(maxsize=1024)
def mark_of(session: str) -> bytes:
    """Return the hash prefix of a session key that slots store."""
    return hashlib.sha256(session.encode()).digest()[:8]


def read_heads(path: Path) -> HeadsRead:
    """Read all records, and report damage."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return HeadsRead((), (f"'{path.name}' is missing: whether the end of a session was cut off cannot be seen",))
    kept, problems = [], []
    if raw[: len(_MAGIC)] != _MAGIC:
        problems.append(f"'{path.name}' is not a file of heads")
    elif _HEADER.unpack_from(raw)[2]:
        problems.append(f"'{path.name}' was missing for a while: an end cut off before it came back is not seen")
    for number in range(1, -(-len(raw) // RECORD)):
        record = raw[number * RECORD : (number + 1) * RECORD].ljust(RECORD, b"\0")
        if record == _NEVER_WRITTEN:
            continue
        found = _read_record(number, record)
        if found is not None:
            kept.append(found)
        if found is None or not _is_whole(record):
            problems.append(f"'{path.name}' is damaged where it keeps the end of session number {number}")
    return HeadsRead(tuple(kept), tuple(problems))


class HeadsFile:
    """The heads file, opened for writing. Use it only while holding the lock between processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._rewrites = -1
        self._marks = bytearray()
        """Marks of all session numbers from 1 on, concatenated: of millions, a dictionary would be far larger."""

    def create(self, *, late: bool) -> bool:
        """Create the file if it is missing, and return whether it was. `late` records that there were entries."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        try:
            os.pwrite(file, _HEADER.pack(_MAGIC, 0, int(late)).ljust(RECORD, b"\0"), 0)
            os.fsync(file)
        finally:
            os.close(file)
        return True

    def kept(self, number: int) -> StoredHead | None:
        """Read the record of a session number."""
        record = os.pread(self._opened(), RECORD, number * RECORD)
        return _read_record(number, record.ljust(RECORD, b"\0")) if record.strip(b"\0") else None

    def keep(self, number: int, session: str, head: Head, newest: int | None) -> int:
        """Write a head to the slot that does not contain the newest one, and return that slot."""
        slot = _slot(session, head)
        if newest is None:
            os.pwrite(self._opened(), slot.ljust(2 * _SLOT.size, b"\0") + _name(session), number * RECORD)
            return 0
        os.pwrite(self._opened(), slot, number * RECORD + (1 - newest) * _SLOT.size)
        return 1 - newest

    def keep_name(self, number: int, session: str) -> None:
        """Write the name of a record whose first write was lost."""
        os.pwrite(self._opened(), _name(session), number * RECORD + 2 * _SLOT.size)

    def drop(self, number: int) -> None:
        """Delete a record and tell other processes to drop their caches."""
        magic, rewrites, late = self._header()
        os.pwrite(self._opened(), bytes(RECORD), number * RECORD)
        os.pwrite(self._opened(), _HEADER.pack(magic, rewrites + 1, late), 0)
        os.fsync(self._opened())

    def number_of(self, session: str) -> int | None:
        """Return the number of a session, even if the database no longer has it."""
        self._refresh_marks()
        mark = mark_of(session)
        at = self._marks.rfind(mark)
        while at >= 0 and at % len(mark):  # found across two others
            at = self._marks.rfind(mark, 0, at + len(mark) - 1)
        return at // len(mark) + 1 if at >= 0 else None

    def last_number(self) -> int:
        """Return the highest session number."""
        return max(os.fstat(self._opened()).st_size - 1, 0) // RECORD

    def rewrite(self, heads: Iterable[tuple[int, str, Head]]) -> None:
        """Replace all records, in place, because other processes have the file open."""
        file = self._opened()
        rewrites = self._header()[1] + 1
        content = bytearray(_HEADER.pack(_MAGIC, rewrites, 0).ljust(RECORD, b"\0"))
        for number, session, head in heads:
            content.extend(bytes(max(0, (number + 1) * RECORD - len(content))))
            record = _slot(session, head).ljust(2 * _SLOT.size, b"\0") + _name(session)
            content[number * RECORD : (number + 1) * RECORD] = record
        os.pwrite(file, content, 0)
        os.ftruncate(file, len(content))
        os.fsync(file)

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            try:
                os.fsync(self._file)
            finally:
                os.close(self._file)
                self._file = None

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR)
        return self._file

    def _header(self) -> tuple[bytes, int, int]:
        magic, rewrites, late = _HEADER.unpack(os.pread(self._opened(), _HEADER.size, 0).ljust(_HEADER.size, b"\0"))
        return magic, rewrites, late

    def _refresh_marks(self) -> None:
        rewrites = self._header()[1]
        if rewrites != self._rewrites:
            self._rewrites, self._marks = rewrites, bytearray()
        for number in range(len(self._marks) // len(_NO_MARK) + 1, self.last_number() + 1):
            kept = self.kept(number)
            self._marks += kept.mark if kept else _NO_MARK


def _slot(session: str, head: Head) -> bytes:
    slot = _SLOT.pack(0, head.seq, mark_of(session), head.hash)
    return zlib.crc32(slot[4:]).to_bytes(4, "big") + slot[4:]


def _name(session: str) -> bytes:
    name = session.encode()
    body = len(name).to_bytes(2, "big") + name[:_NAME_ROOM]
    return (zlib.crc32(body).to_bytes(4, "big") + body).ljust(128, b"\0")


def _read_record(number: int, record: bytes) -> StoredHead | None:
    """Parse a record: the newer intact slot and the name."""
    best: tuple[int, bytes, bytes, int] | None = None
    for place in (0, 1):
        slot = record[place * _SLOT.size : (place + 1) * _SLOT.size]
        crc, seq, mark, digest = _SLOT.unpack(slot)
        if crc == zlib.crc32(slot[4:]) and seq > (best[0] if best else 0):
            best = (seq, mark, digest, place)
    if best is None:
        return None
    seq, mark, digest, place = best
    length = _NAME.unpack_from(record, 2 * _SLOT.size)[1]
    start = record[2 * _SLOT.size + _NAME.size :][: min(length, _NAME_ROOM)].decode(errors="replace")
    name = start if mark == mark_of(start) else None
    return StoredHead(number, name, start, mark, Head(seq, digest), place)


def _is_whole(record: bytes) -> bool:
    """Whether all checksums of a record are right; a slot or a name that was never written is intact."""
    slots = [record[place * _SLOT.size : (place + 1) * _SLOT.size] for place in (0, 1)]
    name = record[2 * _SLOT.size :]
    length = int.from_bytes(name[4:6], "big")
    slots_are_whole = all(
        not slot.strip(b"\0") or zlib.crc32(slot[4:]) == int.from_bytes(slot[:4], "big") for slot in slots
    )
    return slots_are_whole and (
        not name.strip(b"\0")
        or (
            zlib.crc32(name[4 : _NAME.size + min(length, _NAME_ROOM)]) == int.from_bytes(name[:4], "big")
            and not name[_NAME.size + length :].strip(b"\0")
        )
    )
