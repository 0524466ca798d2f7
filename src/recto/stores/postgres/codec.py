"""How values and answers travel: what makes the driver do less for each statement, and changes nothing of what it does.

Columns go out as PostgreSQL keeps them and always with the same types, so that a statement is planned once and no byte
is written as two letters. A connection that has nothing to wait for does not ask its event loop to wait, and what
belongs together leaves in one piece: the server is woken once for it.
"""

from __future__ import annotations

import select
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncPipeline
from psycopg.abc import PQGen
from psycopg.adapt import Dumper
from psycopg.generators import send
from psycopg.pq import ConnStatus, Format
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8
from psycopg.waiting import Ready, Wait

T = TypeVar("T")

_BYTES, _TEXT, _NUMBER = 17, 25, 20
_ARRAYS = {_BYTES: 1001, _TEXT: 1009, _NUMBER: 1016}
"""The types of PostgreSQL, and of arrays of them; their numbers never change."""
_SIZE = struct.Struct("!i")
_ABSENT = _SIZE.pack(-1)
_BEGIN = struct.Struct("!iiIii")
_EIGHT = struct.Struct("!iq")


@dataclass(frozen=True, slots=True)
class Column:
    """An array of one dimension, as it is sent."""

    sent: bytes


class _BytesColumn(Column):
    __slots__ = ()


class _TextColumn(Column):
    __slots__ = ()


class _NumberColumn(Column):
    __slots__ = ()


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Column) -> bytes:
        return obj.sent


class _BytesDumper(_ColumnDumper):
    oid = _ARRAYS[_BYTES]


class _TextDumper(_ColumnDumper):
    oid = _ARRAYS[_TEXT]


class _NumberDumper(_ColumnDumper):
    oid = _ARRAYS[_NUMBER]


def of_bytes(values: Iterable[bytes | None]) -> Column:
    """An array of bytes; None where there are none."""
    return _BytesColumn(_array(_BYTES, [_sized(value) for value in values]))


def of_texts(values: Iterable[str]) -> Column:
    """An array of texts."""
    return _TextColumn(_array(_TEXT, [_sized(value.encode()) for value in values]))


def of_numbers(values: Iterable[int]) -> Column:
    """An array of large numbers."""
    return _NumberColumn(_array(_NUMBER, [_EIGHT.pack(8, value) for value in values]))


def number(value: int) -> Int8:
    """One number, of the same type whatever its size."""
    return Int8(value)


def speak_in_bytes(connection: AsyncConnection[Any]) -> None:
    """Makes these known to a connection."""
    connection.adapters.register_dumper(_BytesColumn, _BytesDumper)
    connection.adapters.register_dumper(_TextColumn, _TextDumper)
    connection.adapters.register_dumper(_NumberColumn, _NumberDumper)


class ReadyConnection(AsyncConnection[TupleRow]):
    """Goes on at once where the socket is ready, as it nearly always is for sending."""

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """What the steps of an operation end with."""
        return await super().wait(_at_once(gen, self.pgconn.socket), interval, timeout)

    @asynccontextmanager
    async def in_one_piece(self) -> AsyncIterator[None]:
        """What is executed inside leaves at the end, together, and is one transaction. Nothing is fetched before."""
        if self._pipeline is not None:
            raise psycopg.ProgrammingError("a connection sends one thing at a time")
        self._check_connection_ok()
        pipeline = self._pipeline = _InOnePiece(self)
        try:
            async with pipeline:
                yield
        finally:
            self._pipeline = None


class _InOnePiece(AsyncPipeline):
    """A pipeline that sends nothing until its end. Its driver writes to the socket after every statement."""

    def _communicate_gen(self) -> PQGen[None]:
        return
        yield  # it is a step that never waits

    def _exit_gen(self) -> PQGen[None]:
        self._enqueue_sync()
        commands = tuple(self.command_queue)
        self.command_queue.clear()
        self.command_queue.append(lambda: _each(commands))
        try:
            yield from super()._communicate_gen()
            yield from send(self.pgconn)  # what is large does not leave at one stroke
        finally:
            if self.pgconn.status == ConnStatus.OK:  # else nothing comes any more, and what was lost is told already
                yield from self._fetch_gen(flush=False)


def _each(commands: Iterable[Callable[[], None]]) -> None:
    for command in commands:
        command()


def _at_once(steps: PQGen[T], socket: int) -> PQGen[T]:
    """The same steps; only those are left that have to wait."""
    poll = select.poll()
    try:
        wanted = next(steps)
        while True:
            wants_to_read, wants_to_write = wanted & Wait.R, wanted & Wait.W
            poll.register(socket, (select.POLLIN if wants_to_read else 0) | (select.POLLOUT if wants_to_write else 0))
            found = poll.poll(0)
            seen = found[0][1] if found else 0
            ready = 0
            if wants_to_read and seen & ~select.POLLOUT:
                ready |= Ready.R
            if wants_to_write and seen & ~select.POLLIN:
                ready |= Ready.W
            wanted = steps.send(ready or (yield wanted))
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]  # what the steps end with


def _sized(value: bytes | None) -> bytes:
    return _ABSENT if value is None else _SIZE.pack(len(value)) + value


def _array(kind: int, values: list[bytes]) -> bytes:
    return _BEGIN.pack(1, 1, kind, len(values), 1) + b"".join(values) if values else struct.pack("!iiI", 0, 0, kind)
