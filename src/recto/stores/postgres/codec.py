"""How parameters are sent to PostgreSQL: whole columns as binary arrays, always with the same types.

The server plans a statement once per combination of parameter types, so the types must not depend on the values; and
the text form of an array would send every byte as two hexadecimal digits. An array is encoded in one pass over the
values: the driver's own list adaptation would look up a dumper for each of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8

_BYTEA, _TEXT, _BIGINT = 17, 25, 20
_ARRAYS = {_BYTEA: 1001, _TEXT: 1009, _BIGINT: 1016}
"""Object identifiers of the built-in types, and of the arrays of them; they never change."""
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)
_ARRAY_HEADER = struct.Struct("!iiIii")
_EMPTY_HEADER = struct.Struct("!iiI")
_EIGHT_BYTES = struct.Struct("!iq")


@dataclass(frozen=True, slots=True)
class BinaryArray:
    """A one-dimensional array in the binary format of PostgreSQL."""

    data: bytes


class _ByteaArray(BinaryArray):
    __slots__ = ()


class _TextArray(BinaryArray):
    __slots__ = ()


class _BigintArray(BinaryArray):
    __slots__ = ()


class _BinaryArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: BinaryArray) -> bytes:
        return obj.data


class _ByteaArrayDumper(_BinaryArrayDumper):
    oid = _ARRAYS[_BYTEA]


class _TextArrayDumper(_BinaryArrayDumper):
    oid = _ARRAYS[_TEXT]


class _BigintArrayDumper(_BinaryArrayDumper):
    oid = _ARRAYS[_BIGINT]


def bytea_array(values: Iterable[bytes | None]) -> BinaryArray:
    """Encode a `bytea[]`; None becomes NULL."""
    return _ByteaArray(_encode_array(_BYTEA, [_encode_item(value) for value in values]))


def text_array(values: Iterable[str]) -> BinaryArray:
    """Encode a `text[]`."""
    return _TextArray(_encode_array(_TEXT, [_encode_item(value.encode()) for value in values]))


def bigint_array(values: Iterable[int]) -> BinaryArray:
    """Encode a `bigint[]`."""
    return _BigintArray(_encode_array(_BIGINT, [_EIGHT_BYTES.pack(8, value) for value in values]))


def bigint(value: int) -> Int8:
    """Wrap a number, so that it is sent as `bigint` whatever its size."""
    return Int8(value)


def register_dumpers(connection: AsyncConnection[Any]) -> None:
    """Let a connection accept binary arrays as parameters."""
    connection.adapters.register_dumper(_ByteaArray, _ByteaArrayDumper)
    connection.adapters.register_dumper(_TextArray, _TextArrayDumper)
    connection.adapters.register_dumper(_BigintArray, _BigintArrayDumper)


def _encode_item(value: bytes | None) -> bytes:
    return _NULL if value is None else _LENGTH.pack(len(value)) + value


def _encode_array(item_type: int, items: list[bytes]) -> bytes:
    if not items:
        return _EMPTY_HEADER.pack(0, 0, item_type)
    return _ARRAY_HEADER.pack(1, 1, item_type, len(items), 1) + b"".join(items)
