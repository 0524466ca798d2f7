"""Reads metadata of a model from the header of a GGUF file, without loading the model."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_MOST_FIELDS = 10_000
_MOST_ITEMS = 4_000_000
_MOST_BYTES = 16 * 1024 * 1024
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9
_CONTROL = 3
"""Type of a control token."""

Value = bytes | int | float | list[bytes] | list[int | float]


def trained_context(file: Path) -> int:
    """Return the context length of the model; 0 if the file does not say. Raises `ValueError` if it is not GGUF."""
    for name, value in _fields_of(file):
        if name.endswith(b".context_length") and isinstance(value, int):
            return max(value, 0)
    return 0


def control_tokens(file: Path) -> list[str]:
    """Return the spelling of the control tokens. Raises `ValueError` if the file is not GGUF."""
    found = {name: value for name, value in _fields_of(file) if name.startswith(b"tokenizer.ggml.token")}
    tokens, types = found.get(b"tokenizer.ggml.tokens"), found.get(b"tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not isinstance(types, list):
        return []
    pairs = zip(tokens, types, strict=False)
    return [token.decode(errors="replace") for token, kind in pairs if kind == _CONTROL and isinstance(token, bytes)]


def _fields_of(file: Path) -> Iterator[tuple[bytes, Value]]:
    try:
        with file.open("rb") as stream:
            yield from _fields(stream)
    except OSError as error:
        raise ValueError(f"'{file}' cannot be read: {error.strerror or error}") from None
    except (struct.error, EOFError):
        raise ValueError(f"'{file}' is not a GGUF file, or was cut off") from None


def _fields(stream: BinaryIO) -> Iterator[tuple[bytes, Value]]:
    magic, version, _, count = struct.unpack("<4sIQQ", _read(stream, 24))
    if magic != b"GGUF" or version not in (2, 3) or count > _MOST_FIELDS:
        raise EOFError
    for _ in range(count):
        yield _text(stream), _value(stream, _number(stream, "<I"))


def _value(stream: BinaryIO, kind: int) -> Value:
    if kind == _TEXT:
        return _text(stream)
    if kind != _LIST:
        return _number(stream, _NUMBERS[kind] if kind in _NUMBERS else _broken())
    of, count = _number(stream, "<I"), _number(stream, "<Q")
    if count > _MOST_ITEMS or (of != _TEXT and of not in _NUMBERS):
        _broken()
    if of == _TEXT:
        return [_text(stream) for _ in range(count)]
    shape = _NUMBERS[of]
    content = _read(stream, count * struct.calcsize(shape))
    return [number for (number,) in struct.iter_unpack(shape, content)]


def _text(stream: BinaryIO) -> bytes:
    return _read(stream, _number(stream, "<Q"))


def _number(stream: BinaryIO, shape: str) -> int:
    found: int = struct.unpack(shape, _read(stream, struct.calcsize(shape)))[0]
    return found


def _read(stream: BinaryIO, count: int) -> bytes:
    content = stream.read(count) if count <= _MOST_BYTES else b""
    if len(content) != count:
        _broken()
    return content


def _broken() -> str:
    raise EOFError
