"""What a request to the inspection API may say: every parameter and member with its bounds, read and described.

One value says both what is taken and how that is written in the API's description, so the two cannot differ. What is
not named here is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl

from recto.errors import InputError, RequestRefused
from recto.formats.json_spans import text_of
from recto.gateway.api_keys import Key
from recto.transcript.entries import MAX_SEQ

MOST_BYTES = 256 * 1024
"""Of a body: a checkpoint that sets everything is far smaller."""
_MOST_QUERY = 8 * 1024
_MOST_PARAMETERS = 20


class Kind(Protocol):
    """What a parameter or a member may be."""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        ...

    @property
    def default(self) -> object:
        """What it is where it is not given."""
        ...

    @property
    def about(self) -> str:
        """What it is, in words."""
        ...

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        ...

    def taken(self, value: object) -> object:
        """The value as it is used. Raises `ValueError` that says what it should be."""
        ...

    def spelled(self, text: str) -> object:
        """What the text of a query parameter stands for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextParam:
    """A text."""

    about: str
    most: int
    least: int = 0
    required: bool = False
    default: str | None = ""

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"type": "string", "minLength": self.least, "maxLength": self.most}

    def taken(self, value: object) -> str:
        """The text; half characters cannot be stored."""
        if not isinstance(value, str) or not self.least <= len(value) <= self.most:
            raise ValueError(f"is a text of {self.least} to {self.most:,} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("holds half a character") from None
        return value

    def spelled(self, text: str) -> object:
        """Itself."""
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class IntParam:
    """A whole number."""

    about: str
    least: int = 1
    most: int = MAX_SEQ
    required: bool = False
    default: int | None = None

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        bounds: dict[str, Any] = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return bounds if self.default is None else bounds | {"default": self.default}

    def taken(self, value: object) -> int:
        """The number."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 5.0 is a whole number in JSON
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            raise ValueError(f"is a whole number from {self.least} to {self.most}")
        return value

    def spelled(self, text: str) -> object:
        """Its digits."""
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(text) <= 20 else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceParam:
    """One of a few words."""

    about: str
    names: Sequence[str]
    required: bool = False
    default: str | None = None

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        told: dict[str, Any] = {"type": "string", "enum": list(self.names)}
        return told if self.default is None else told | {"default": self.default}

    def taken(self, value: object) -> str:
        """The word."""
        if not isinstance(value, str) or value not in self.names:
            raise ValueError(f"is one of {', '.join(self.names)}")
        return value

    def spelled(self, text: str) -> object:
        """Itself."""
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagParam:
    """Yes or no."""

    about: str
    required: bool = False
    default: bool = False

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"type": "boolean", "default": self.default}

    def taken(self, value: object) -> bool:
        """Whether."""
        if not isinstance(value, bool):
            raise ValueError("is true or false")
        return value

    def spelled(self, text: str) -> object:
        """`true` or `false`."""
        return {"true": True, "false": False}.get(text, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """A list of one kind."""

    about: str
    of: Kind
    most: int
    least: int = 0
    required: bool = False
    default: tuple[Any, ...] = ()

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"type": "array", "items": self.of.schema(), "minItems": self.least, "maxItems": self.most}

    def taken(self, value: object) -> tuple[Any, ...]:
        """Each of them."""
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            raise ValueError(f"is a list of {self.least} to {self.most}")
        try:
            return tuple(self.of.taken(one) for one in value)
        except ValueError as error:
            raise ValueError(f"is a list, and each in it {error}") from None

    def spelled(self, text: str) -> object:
        """Lists stand in bodies alone."""
        return text


Kinds = Mapping[str, Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """A request that was understood."""

    key: Key
    query: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def session(self) -> str:
        """The session it is about."""
        name: str = self.query["session"]
        return name

    @property
    def who(self) -> str:
        """Who asks, as it is kept."""
        return f"{self.key.name} (key {self.key.id})"


def query_of(raw: bytes, kinds: Kinds) -> dict[str, Any]:
    """The parameters of a query."""
    if len(raw) > _MOST_QUERY:
        raise RequestRefused(400, "bad_parameter", f"the query has more than {_MOST_QUERY:,} bytes")
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        says = f"the query is not percent-encoded UTF-8 with at most {_MOST_PARAMETERS} parameters"
        raise RequestRefused(400, "bad_parameter", says) from None
    given: dict[str, object] = {}
    for name, text in pairs:
        if name in given:
            raise RequestRefused(400, "bad_parameter", f"the parameter '{name:.40}' is given twice")
        given[name] = kinds[name].spelled(text) if name in kinds else text
    return _taken(given, kinds, "parameter")


def body_of(raw: bytes, kinds: Kinds) -> dict[str, Any]:
    """The members of a JSON body. An empty body has none."""
    if not raw.strip():
        return _taken({}, kinds, "member")
    try:
        value = json.loads(text_of(raw), object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError, InputError) as error:
        raise RequestRefused(400, "bad_body", f"the body is not usable as JSON: {error}"[:300]) from None
    if not isinstance(value, dict):
        raise RequestRefused(400, "bad_body", "the body is a JSON object")
    return _taken(value, kinds, "member")


def _taken(given: Mapping[str, object], kinds: Kinds, what: str) -> dict[str, Any]:
    code = "bad_parameter" if what == "parameter" else "bad_body"
    unknown = [name for name in given if name not in kinds]
    if unknown:
        named = ", ".join(f"'{name:.40}'" for name in unknown[:5])
        takes = ", ".join(kinds) or "none"
        raise RequestRefused(400, code, f"there is no {what} {named} here; this takes {takes}")
    missing = [name for name, kind in kinds.items() if kind.required and name not in given]
    if missing:
        raise RequestRefused(400, code, f"the {what} '{missing[0]}' is missing: {kinds[missing[0]].about}")
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        try:
            found[name] = kind.taken(given[name]) if name in given else kind.default
        except ValueError as error:
            raise RequestRefused(400, code, f"the {what} '{name}' {error}") from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number")
