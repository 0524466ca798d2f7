"""Answers of the inspection API as values: the way back from the JSON that a gateway sends.

A member that is not known is passed over, so that a newer gateway can be looked at; one that is missing is told. What
the values mean is not known here.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from recto.errors import RequestRefused

T = TypeVar("T")
_Reader = Callable[[Any], Any]


def value_of(kind: type[T], told: object) -> T:
    """What was told, as a value of this kind. Raises `RequestRefused` where it is something else."""
    try:
        found: T = _reader(cast(Any, kind))(told)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        says = f"the gateway answered what this screen cannot read ({error}); are both of one version?"
        raise RequestRefused(502, "unreadable", says) from None
    return found


@cache
def _reader(kind: Any) -> _Reader:  # noqa: ANN401  # a type or a special form
    if is_dataclass(kind) and isinstance(kind, type):
        return _object(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = [part for part in parts if part is not types.NoneType]
        reads = _reader(inner[0]) if len(inner) == 1 else _as_it_is
        return lambda told: None if told is None else reads(told)
    if origin is tuple and parts[-1:] == (...,):
        one = _reader(parts[0])
        return lambda told: tuple([one(item) for item in told])
    if origin is tuple:
        each = [_reader(part) for part in parts]
        return lambda told: tuple([read(item) for read, item in zip(each, told, strict=True)])
    if origin is not Literal and origin is not None and issubclass(origin, Mapping):
        held = _reader(parts[1])
        return lambda told: {str(name): held(item) for name, item in told.items()}
    return _PLAIN.get(kind, _as_it_is)


def _object(kind: type) -> _Reader:
    hints = get_type_hints(kind)
    members = [
        (one.name, _reader(hints[one.name]), one.default is MISSING and one.default_factory is MISSING)
        for one in fields(kind)
        if one.init
    ]

    def read(told: Any) -> Any:  # noqa: ANN401  # JSON
        return kind(**{name: reads(told[name]) for name, reads, needed in members if needed or name in told})

    return read


def _as_it_is(told: Any) -> Any:  # noqa: ANN401  # JSON
    return told


def _text(told: Any) -> str:  # noqa: ANN401  # JSON
    if not isinstance(told, str):
        raise TypeError("a text is something else")
    return told


def _whole(told: Any) -> int:  # noqa: ANN401  # JSON
    if not isinstance(told, int):
        raise TypeError("a whole number is something else")
    return told


_PLAIN: dict[Any, _Reader] = {str: _text, int: _whole, float: float}
