"""Parameters of the inspection API: each with its bounds, its parser and its JSON Schema.

One value defines both what is accepted and how the API describes it, so the two cannot differ. Unknown parameters are
refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qsl

from msgspec import Struct

from recto.errors import InputError, RequestRefused
from recto.formats.json_spans import text_of
from recto.gateway.api_keys import Key
from recto.transcript.entries import MAX_SEQ

MAX_BODY_BYTES = 256 * 1024
"""Size limit of a body: a checkpoint that sets everything is far smaller."""
_MAX_QUERY_BYTES = 8 * 1024
_MAX_PARAMETERS = 20


class Param(Protocol):
    """A parameter of a query, or a member of a body."""

    @property
    def required(self) -> bool:
        """Whether a request must have it."""
        ...

    @property
    def default(self) -> object:
        """Its value where a request does not have it."""
        ...

    @property
    def description(self) -> str:
        """What it means."""
        ...

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        ...

    def check(self, value: object) -> object:
        """The validated value. Raises `ValueError` with what it should be."""
        ...

    def parse(self, text: str) -> object:
        """The value that the text of a query parameter represents; `check` refuses what cannot be parsed."""
        ...


class TextParam(Struct, frozen=True, kw_only=True):
    """A text."""

    description: str
    maximum: int
    minimum: int = 0
    required: bool = False
    default: str | None = ""

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"type": "string", "minLength": self.minimum, "maxLength": self.maximum}

    def check(self, value: object) -> str:
        """The text; half of a surrogate pair cannot be stored."""
        if not isinstance(value, str) or not self.minimum <= len(value) <= self.maximum:
            raise ValueError(f"is a text of {self.minimum} to {self.maximum:,} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("contains an unpaired surrogate, half of a character") from None
        return value

    def parse(self, text: str) -> object:
        """Itself."""
        return text


class IntParam(Struct, frozen=True, kw_only=True):
    """A whole number."""

    description: str
    minimum: int = 1
    maximum: int = MAX_SEQ
    required: bool = False
    default: int | None = None

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        bounds: dict[str, Any] = {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
        return bounds if self.default is None else bounds | {"default": self.default}

    def check(self, value: object) -> int:
        """The number."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 5.0 is a whole number in JSON
        if not isinstance(value, int) or isinstance(value, bool) or not self.minimum <= value <= self.maximum:
            raise ValueError(f"is a whole number from {self.minimum} to {self.maximum}")
        return value

    def parse(self, text: str) -> object:
        """Its digits."""
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(text) <= 20 else text


class ChoiceParam(Struct, frozen=True, kw_only=True):
    """One of a fixed set of words."""

    description: str
    choices: Sequence[str]
    required: bool = False
    default: str | None = None

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        schema: dict[str, Any] = {"type": "string", "enum": list(self.choices)}
        return schema if self.default is None else schema | {"default": self.default}

    def check(self, value: object) -> str:
        """The word."""
        if not isinstance(value, str) or value not in self.choices:
            raise ValueError(f"is one of {', '.join(self.choices)}")
        return value

    def parse(self, text: str) -> object:
        """Itself."""
        return text


class FlagParam(Struct, frozen=True, kw_only=True):
    """True or false."""

    description: str
    required: bool = False
    default: bool = False

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"type": "boolean", "default": self.default}

    def check(self, value: object) -> bool:
        """The flag."""
        if not isinstance(value, bool):
            raise ValueError("is true or false")
        return value

    def parse(self, text: str) -> object:
        """`true` or `false`."""
        return {"true": True, "false": False}.get(text, text)


class ListParam(Struct, frozen=True, kw_only=True):
    """A list of values of one kind."""

    description: str
    of: Param
    maximum: int
    minimum: int = 0
    required: bool = False
    default: tuple[Any, ...] = ()

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"type": "array", "items": self.of.schema(), "minItems": self.minimum, "maxItems": self.maximum}

    def check(self, value: object) -> tuple[Any, ...]:
        """The items, each validated."""
        if not isinstance(value, list) or not self.minimum <= len(value) <= self.maximum:
            raise ValueError(f"is a list of {self.minimum} to {self.maximum}")
        try:
            return tuple(self.of.check(item) for item in value)
        except ValueError as error:
            raise ValueError(f"is a list, and each in it {error}") from None

    def parse(self, text: str) -> object:
        """Only bodies have lists."""
        return text


Params = Mapping[str, Param]


class ParsedCall(Struct, frozen=True, kw_only=True):
    """A request with validated parameters."""

    key: Key
    query: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def session(self) -> str:
        """The session that the request names."""
        name: str = self.query["session"]
        return name

    @property
    def caller(self) -> str:
        """The caller, as it is stored with a change."""
        return f"{self.key.name} (key {self.key.id})"


def parse_query(raw: bytes, params: Params) -> dict[str, Any]:
    """Parse the parameters of a query."""
    if len(raw) > _MAX_QUERY_BYTES:
        raise RequestRefused(400, "bad_parameter", f"the query has more than {_MAX_QUERY_BYTES:,} bytes")
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        message = f"the query is not percent-encoded UTF-8 with at most {_MAX_PARAMETERS} parameters"
        raise RequestRefused(400, "bad_parameter", message) from None
    values: dict[str, object] = {}
    for name, text in pairs:
        if name in values:
            raise RequestRefused(400, "bad_parameter", f"the parameter '{name:.40}' is given twice")
        values[name] = params[name].parse(text) if name in params else text
    return _check_all(values, params, "parameter")


def parse_body(raw: bytes, params: Params) -> dict[str, Any]:
    """Parse the members of a JSON body. An empty body has none."""
    if not raw.strip():
        return _check_all({}, params, "member")
    try:
        value = json.loads(text_of(raw), object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, InputError) as error:
        raise RequestRefused(400, "bad_body", f"the body is not usable as JSON: {error}"[:300]) from None
    if not isinstance(value, dict):
        raise RequestRefused(400, "bad_body", "the body is a JSON object")
    return _check_all(value, params, "member")


def _check_all(values: Mapping[str, object], params: Params, what: str) -> dict[str, Any]:
    code = "bad_parameter" if what == "parameter" else "bad_body"
    unknown = [name for name in values if name not in params]
    if unknown:
        named = ", ".join(f"'{name:.40}'" for name in unknown[:5])
        takes = ", ".join(params) or "none"
        raise RequestRefused(400, code, f"there is no {what} {named} here; this takes {takes}")
    missing = [name for name, param in params.items() if param.required and name not in values]
    if missing:
        raise RequestRefused(400, code, f"the {what} '{missing[0]}' is missing: {params[missing[0]].description}")
    checked: dict[str, Any] = {}
    for name, param in params.items():
        try:
            checked[name] = param.check(values[name]) if name in values else param.default
        except ValueError as error:
            raise RequestRefused(400, code, f"the {what} '{name}' {error}") from None
    return checked


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name occurs twice in it")
    return members


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
