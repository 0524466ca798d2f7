"""An answer of the inspection API, read back into the value it was made of.

What the API tells are the engine's own values as JSON. Read back, they are drawn by the very functions that draw them
for the commands. Whatever the answer says beyond what is known here is left out: the gateway may be newer.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import nan
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from recto.errors import RequestRefused

_Value = TypeVar("_Value")
_hints = cache(get_type_hints)


def value_of(kind: type[_Value], answer: object) -> _Value:
    """The value that an answer tells. Raises `RequestRefused` where it is not one of that kind."""
    return cast(_Value, _read(kind, answer, kind.__name__))


def _read(kind: Any, found: object, where: str) -> object:  # noqa: ANN401  # a type or a special form
    if is_dataclass(kind) and isinstance(kind, type):
        return _object(kind, _held(found, Mapping, where), where)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(parts, found, where)
    if origin is Literal:
        return _listed(parts, found, where)
    if origin is tuple:
        items = _held(found, list, where)
        kinds = [parts[0]] * len(items) if parts[-1:] == (...,) else parts
        if len(kinds) != len(items):
            raise _strange(where)
        return tuple(_read(one, item, where) for one, item in zip(kinds, items, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        held = _held(found, Mapping, where)
        return {str(name): _read(parts[1], value, f"{where}.{name}") for name, value in held.items()}
    return _plain(kind, found, where)


def _object(kind: type, found: Mapping[str, Any], where: str) -> object:
    hints = _hints(kind)
    given = {}
    for one in fields(kind):
        if one.name in found:
            given[one.name] = _read(hints[one.name], found[one.name], f"{where}.{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise _strange(f"{where}.{one.name}")
    return kind(**given)


def _one_of(kinds: tuple[Any, ...], found: object, where: str) -> object:
    if found is None and types.NoneType in kinds:
        return None
    for kind in kinds:
        if kind is not types.NoneType:
            try:
                return _read(kind, found, where)
            except RequestRefused:
                continue
    raise _strange(where)


def _listed(names: tuple[Any, ...], found: object, where: str) -> object:
    if found not in names:
        raise _strange(where)
    return found


def _plain(kind: Any, found: object, where: str) -> object:  # noqa: ANN401
    if kind is Any:
        return found
    if kind is float:
        if found is None:  # JSON has no number for what is not one
            return nan
        return float(_held(found, int | float, where))
    if isinstance(found, bool) is not (kind is bool):
        raise _strange(where)
    return _held(found, kind, where)


def _held(found: object, kind: Any, where: str) -> Any:  # noqa: ANN401
    if not isinstance(found, kind):
        raise _strange(where)
    return found


def _strange(where: str) -> RequestRefused:
    says = f"the gateway's answer is not what this Recto knows ({where}); is it of another version?"
    return RequestRefused(502, "unexpected", says)
