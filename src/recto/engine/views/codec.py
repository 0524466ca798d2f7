"""JSON form, JSON Schema and decoding of result models, all derived from their dataclass fields by msgspec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

_Model = TypeVar("_Model")
_PLAIN = (str, int, float)


def to_json(value: object) -> bytes:
    """Encode a result as compact JSON. Numbers that JSON cannot express become null."""
    try:
        return msgspec.json.encode(value, enc_hook=_convert)
    except UnicodeEncodeError:  # half of a surrogate pair is no UTF-8; as an escape it is valid JSON
        return json.dumps(to_builtins(value), separators=(",", ":")).encode()


def to_builtins(value: object) -> Any:  # noqa: ANN401  # JSON
    """Convert a result to the dicts, lists, strings and numbers that its JSON decodes to."""
    builtins = msgspec.to_builtins(value, str_keys=True, enc_hook=_convert)
    return json.loads(json.dumps(builtins), parse_constant=lambda _: None)


def from_builtins(model: type[_Model], payload: object) -> _Model:
    """Build a result from its decoded JSON. Unknown members are ignored, so that a newer server can add some.

    Raises:
        ValueError: The payload does not match; the message names the member.
    """
    return msgspec.convert(payload, model)


def json_schemas(models: Iterable[type], ref_template: str) -> dict[str, dict[str, Any]]:
    """The JSON Schema of every model and of every model inside it, by class name.

    Args:
        models: Result models.
        ref_template: How one schema refers to another, for example `#/$defs/{name}`.
    """
    _, components = msgspec.json.schema_components(models, ref_template=ref_template)
    for schema in components.values():
        del schema["title"]  # it repeats the name
        schema["description"] = " ".join(schema["description"].split())
        schema["required"] = list(schema["properties"])  # a result always has all of its members
        schema["additionalProperties"] = False
        for member in schema["properties"].values():
            member.pop("default", None)
    return dict(sorted(components.items()))


def _convert(value: Any) -> Any:  # noqa: ANN401  # whatever msgspec has no encoding for
    if isinstance(value, Mapping):
        return dict(value)
    for kind in _PLAIN:  # a subclass, such as numpy's float64
        if isinstance(value, kind):
            return kind(value)
    return str(value)
