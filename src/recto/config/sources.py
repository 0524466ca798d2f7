"""Every setting with its value and origin, for display. Secrets are shown only as set or unset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from recto.config.loader import Layer, Origin
from recto.config.settings import Settings

_SECRETS = frozenset({"key", "store_key"})
"""Keys with these names are secrets at any level."""
_URLS = frozenset({"url"})
_SECRET_URLS = frozenset({"health.webhook.url"})
"""URLs whose path is a secret."""
_SECRET_VALUES = frozenset({"headers"})
"""Groups whose values may be secrets, such as the headers of an upstream."""
SET, UNSET = "(set)", "(unset)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting."""

    key: str
    value: Any
    """The redacted value."""
    origin: Origin
    where: str
    """The file or the environment variable; empty for defaults and arguments."""
    line: int = 0
    """The line of the file; 0 if there is none."""
    given_as: str = ""
    """The name that the layer uses, if it is another one."""


def all_settings(settings: Settings, layers: Sequence[Layer]) -> list[Setting]:
    """Return every setting, in the order of the tree."""
    return [_setting(key, value, layers) for key, value in _leaves(settings, "")]


def one_line_yaml(value: Any) -> str:  # noqa: ANN401  # any value of the tree
    """Return a value as YAML on one line."""
    import yaml  # noqa: PLC0415  # start-up

    text: str = yaml.safe_dump(value, default_flow_style=True, width=100_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _leaves(tree: object, path: str) -> Iterator[tuple[str, Any]]:
    assert is_dataclass(tree)  # noqa: S101  # the tree has only dataclasses
    for item in fields(tree):
        value = getattr(tree, item.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{path}{item.name}.")
        else:
            yield f"{path}{item.name}", value


def _setting(key: str, value: object, layers: Sequence[Layer]) -> Setting:
    origin: Origin = "default"
    where, line, given_as = "", 0, ""
    for layer in layers:
        if _contains(layer.tree, key.split(".")):
            origin = layer.origin
            name, line = layer.translation.place_of(key) or (key, 0)
            where = f"RECTO_{name.upper().replace('.', '__')}" if origin == "environment" else layer.name
            given_as = "" if name in (key, *key.split(".")) or key.startswith(f"{name}.") else name
    return Setting(key=key, value=redact(key, value), origin=origin, where=where, line=line, given_as=given_as)


def _contains(tree: Any, names: Sequence[str]) -> bool:  # noqa: ANN401  # a value of the tree
    for name in names:
        if not isinstance(tree, Mapping) or name not in tree:
            return False
        tree = tree[name]
    return True


def redact(key: str, value: Any) -> Any:  # noqa: ANN401
    """Return a value without secrets: no keys, and no credentials in URLs."""
    name = key.rpartition(".")[2]
    if name in _SECRETS and not isinstance(value, Mapping):
        return SET if value else UNSET
    if isinstance(value, Mapping):
        if name in _SECRET_VALUES:
            return {str(header): SET for header in value}
        return {str(child): redact(f"{key}.{child}", item) for child, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(key, item) for item in value]
    if isinstance(value, str) and (name in _URLS or (key == "store" and "://" in value)):
        return _redact_url(value, bare=key in _SECRET_URLS)
    return value


def _redact_url(url: str, *, bare: bool) -> str:
    """Return a URL without user, password and query; with `bare`, without its path too."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return SET
    if not url or not host:
        return SET if url else url
    return urlunsplit((parts.scheme, host, "/…" if bare and parts.path.strip("/") else parts.path, "", ""))
