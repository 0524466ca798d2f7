"""JSON that Recto writes itself into streams and replies, and JSON found inside texts."""

from __future__ import annotations

import json
import math
import sys

from recto.core.json_text import Json, parse, text_of
from recto.errors import MalformedJson


def json_of(value: Json) -> str:
    """A value as JSON that can be encoded: lone surrogates are escaped, a number beyond every float is the largest."""
    try:
        source = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        source = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    try:
        source.encode()
    except UnicodeEncodeError:
        return json.dumps(_finite(value), separators=(",", ":"))
    return source


def value_in(text: str) -> Json:
    """The one JSON value that a text is. Raises `MalformedJson` where it is none."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise MalformedJson("a lone surrogate stands in it") from None
    return parse(text_of(raw))


def is_object(text: str) -> bool:
    """Whether a text is one JSON object and nothing else. One that is complete cannot go on."""
    try:
        return isinstance(value_in(text), dict)
    except MalformedJson:
        return False


def _finite(value: Json) -> Json:
    match value:
        case float() if math.isinf(value):
            return math.copysign(sys.float_info.max, value)
        case list():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case _:
            return value
