"""Every setting with its value and where that comes from, for people to look at. Secrets are told as set or unset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from recto.config.loader import Layer, Origin
from recto.config.settings import Settings

_SECRET = frozenset({"key"})
"""What is called so is a secret wherever it stands."""
_ADDRESS = frozenset({"url"})
_SECRET_ADDRESS = frozenset({"health.webhook.url"})
"""Addresses whose path is what others need to know to use them."""
_VALUES_SECRET = frozenset({"headers"})
"""Groups whose values may be secrets: headers of an upstream."""
SET, UNSET = "(set)", "(unset)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting."""

    key: str
    value: Any
    """As it may be shown."""
    origin: Origin
    where: str
    """The file or the variable of the environment; empty for defaults and arguments."""


def all_settings(settings: Settings, given: Sequence[Layer]) -> list[Setting]:
    """Every setting, in the order of the tree."""
    return [_setting(key, value, given) for key, value in _leaves(settings, "")]


def _leaves(tree: object, path: str) -> Iterator[tuple[str, Any]]:
    assert is_dataclass(tree)  # noqa: S101  # the tree is made of nothing else
    for one in fields(tree):
        value = getattr(tree, one.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{path}{one.name}.")
        else:
            yield f"{path}{one.name}", value


def _setting(key: str, value: object, given: Sequence[Layer]) -> Setting:
    origin: Origin = "default"
    where = ""
    for layer in given:
        if _holds(layer.tree, key.split(".")):
            origin = layer.origin
            where = f"RECTO_{key.upper().replace('.', '__')}" if origin == "environment" else layer.name
    return Setting(key=key, value=redact(key, value), origin=origin, where=where)


def _holds(tree: Any, names: Sequence[str]) -> bool:  # noqa: ANN401  # a value of the tree
    for name in names:
        if not isinstance(tree, Mapping) or name not in tree:
            return False
        tree = tree[name]
    return True


def redact(key: str, value: Any) -> Any:  # noqa: ANN401
    """A value as it may be shown: nothing of a secret, and no address with what opens it."""
    name = key.rpartition(".")[2]
    if name in _SECRET and not isinstance(value, Mapping):
        return SET if value else UNSET
    if isinstance(value, Mapping):
        if name in _VALUES_SECRET:
            return {str(one): SET for one in value}
        return {str(one): redact(f"{key}.{one}", held) for one, held in value.items()}
    if isinstance(value, list | tuple):
        return [redact(key, one) for one in value]
    if isinstance(value, str) and (name in _ADDRESS or (key == "store" and "://" in value)):
        return _address(value, bare=key in _SECRET_ADDRESS)
    return value


def _address(url: str, *, bare: bool) -> str:
    """An address without who asks, and without what stands behind the question mark."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return SET
    if not url or not host:
        return SET if url else url
    return urlunsplit((parts.scheme, host, "/…" if bare and parts.path.strip("/") else parts.path, "", ""))
