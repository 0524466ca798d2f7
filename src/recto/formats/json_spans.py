"""Parses JSON with the position of each value, and edits it in place.

Provider JSON is stored and sent back byte for byte, so Recto needs the position of a value and not only the value. The
parsers work on the text and yield spans of it; an edit replaces one span and leaves the rest as it is.

Input that two JSON parsers would read differently is rejected: NaN and Infinity, a repeated key among those that Recto
reads, and nesting deeper than `MAX_DEPTH`. Lone surrogates, huge numbers and other repeated keys are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # public in fact, missing in the stubs
from typing import NamedTuple, NoReturn, TypeAlias

from recto.errors import MalformedJson

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_DEPTH = 128
"""Deep enough for every real message and tool schema seen; shallow enough for every common JSON parser."""

_KEYS_READ = frozenset({"role", "type", "id", "name", "content", "text", "arguments", "input", "output"}) | frozenset(
    {"function", "tool_calls", "tool_call_id", "tool_use_id", "call_id"}
)
_BRACKET = re.compile(r"[\[\]{}]")
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")


class JsonSpan(NamedTuple):
    """A value and its position: `text[start:end]` is its exact source."""

    start: int
    end: int
    value: Json


class Member(NamedTuple):
    """One `"key": value` of an object; `text[start:value.end]` is the exact source of both."""

    key: str
    start: int
    value: JsonSpan


def text_of(raw: bytes, *, shallow: bool = False) -> str:
    """Decodes the bytes, and checks the nesting depth. Encoding the text gives the same bytes back.

    `shallow` skips the check if the caller did it already: it takes longer than everything else.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedJson(f"byte {raw[error.start]:#04x} is not UTF-8", error.start) from None
    if not shallow:
        _refuse_depth(text)
    return text


def parse(text: str) -> Json:
    """Parses a text that is one JSON value. Raises `MalformedJson`."""
    value: Json
    try:  # the common case, without space around it
        value, end = _SCAN(text, 0)
    except (StopIteration, ValueError, RecursionError):
        end = -1
    if end == len(text):
        return value
    span = value_at(text, _skip_space(text, 0))
    end = _skip_space(text, span.end)
    if end != len(text):
        raise MalformedJson("something follows the value", end)
    return span.value


def parse_shallow(text: str) -> Json:
    """Parses a text that was decoded from UTF-8, as `parse` does, and checks its nesting depth."""
    _refuse_depth(text)
    return parse(text)


def value_at(text: str, at: int) -> JsonSpan:
    """Parses the value that starts at a position. Raises `MalformedJson`."""
    try:
        value, end = _SCAN(text, at)
    except (StopIteration, ValueError, RecursionError):
        value, end = _scan_again(text, at)
    return JsonSpan(at, end, value)


def _scan_again(text: str, at: int) -> tuple[Json, int]:
    """Parses a value that may hold numbers of any length. Raises `MalformedJson` with the reason."""
    value: Json
    try:
        value, end = _SCAN_LONG_NUMBERS(text, at)
    except StopIteration as stop:
        raise MalformedJson("expecting value", stop.value) from None
    except json.JSONDecodeError as error:
        raise MalformedJson(error.msg.lower(), error.pos) from None
    except RecursionError:
        raise MalformedJson(f"nested deeper than {MAX_DEPTH}") from None
    return value, end


def members(text: str, at: int = 0, read: Callable[[str, str, int], JsonSpan] | None = None) -> Iterator[Member]:
    """Yields the members of the object that starts at a position.

    `read` replaces `value_at` for the values; it takes the key, the text and the position.
    """
    at = _expect(text, _skip_space(text, at), "{")
    if text[at : at + 1] == "}":
        return
    member = _member(text, at, read)
    yield member
    yield from members_after(text, member.value.end, read)


def members_after(text: str, at: int, read: Callable[[str, str, int], JsonSpan] | None = None) -> Iterator[Member]:
    """Yields the members of an object that follow one whose value ends at a position."""
    at = _skip_space(text, at)
    while text[at : at + 1] != "}":
        member = _member(text, _expect(text, at, ","), read)
        yield member
        at = _skip_space(text, member.value.end)


def _member(text: str, at: int, read: Callable[[str, str, int], JsonSpan] | None) -> Member:
    start = at
    if text[at : at + 1] != '"':
        raise MalformedJson("expected a key", at)
    try:
        key, at = scanstring(text, at + 1)
    except json.JSONDecodeError as error:
        raise MalformedJson(error.msg.lower(), error.pos) from None
    at = _expect(text, _skip_space(text, at), ":")
    return Member(key, start, value_at(text, at) if read is None else read(key, text, at))


def elements(text: str, at: int = 0) -> Iterator[JsonSpan]:
    """Yields the elements of the array that starts at a position."""
    at = _expect(text, _skip_space(text, at), "[")
    if text[at : at + 1] == "]":
        return
    while True:
        value = value_at(text, at)
        yield value
        at = _skip_space(text, value.end)
        if text[at : at + 1] == "]":
            return
        at = _expect(text, at, ",")


def array_at(text: str, at: int) -> tuple[JsonSpan, tuple[JsonSpan, ...]]:
    """Parses the array that starts at a position together with the spans of its elements, in one pass."""
    start, at = at, _expect(text, at, "[")
    if text[at : at + 1] == "]":
        return JsonSpan(start, at + 1, []), ()
    spans, end = _elements_to_end(text, at)
    return JsonSpan(start, end, [span.value for span in spans]), tuple(spans)


def elements_after(text: str, at: int) -> tuple[list[JsonSpan], int]:
    """Returns the elements of an array that follow one that ends at a position, and where the array ends."""
    comma = _COMMA.match(text, at)
    if comma is not None:
        return _elements_to_end(text, comma.end())
    at = _skip_space(text, at)
    if text[at : at + 1] != "]":
        raise MalformedJson("expected ','", at)
    return [], at + 1


def _elements_to_end(text: str, at: int) -> tuple[list[JsonSpan], int]:
    spans: list[JsonSpan] = []
    comma: re.Match[str] | None
    while True:
        try:
            value, end = _SCAN(text, at)
        except (StopIteration, ValueError, RecursionError):
            value, end = _scan_again(text, at)
        spans.append(JsonSpan(at, end, value))
        if (comma := _COMMA.match(text, end)) is None:
            break
        at = comma.end()
    end = _skip_space(text, end)
    if text[end : end + 1] != "]":
        raise MalformedJson("expected ','", end)
    return spans, end + 1


def _expect(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise MalformedJson(f"expected '{sign}'", at)
    return _skip_space(text, at + 1)


def _skip_space(text: str, at: int) -> int:
    if text[at : at + 1] > " ":  # the common case; the pattern takes ten times as long
        return at
    spaces = _SPACE.match(text, at)
    return spaces.end() if spaces else at


def _refuse_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    # Without escapes, every second piece between quotes is outside of strings: far quicker than a pattern for strings.
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    depth = 0
    for bracket in _BRACKET.findall(outside):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise MalformedJson(f"nested deeper than {MAX_DEPTH}")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen and key in _KEYS_READ:
                raise MalformedJson(f"the key '{key}' is twice in one object")
            seen.add(key)
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedJson(f"{name} is not a JSON number")


def _integer(digits: str) -> int | float:
    # Python refuses to convert more than 4,300 digits. The bytes are stored; the value only has to be a number.
    return int(digits) if len(digits) <= 4300 else float(digits)


_SCAN = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]  # missing in the stubs
_SCAN_LONG_NUMBERS = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer
).scan_once  # type: ignore[attr-defined]  # missing in the stubs
"""Calls Python for every integer, so it is used where the other fails."""


class TextEdit(NamedTuple):
    """Replaces the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Applies edits, which must not overlap."""
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits):
        pieces += (text[at : edit.start], edit.text)
        at = edit.end
    pieces.append(text[at:])
    return "".join(pieces)


def removals(items: Sequence[tuple[int, int]], gone: Sequence[bool]) -> list[TextEdit]:
    """Returns the edits that remove items of an array or object, each with its comma."""
    edits: list[TextEdit] = []
    has_predecessor = False
    for place, (start, end) in enumerate(items):
        if not gone[place]:
            has_predecessor = True
        elif has_predecessor:
            edits.append(TextEdit(items[place - 1][1], end, ""))
        elif place + 1 < len(items):
            edits.append(TextEdit(start, items[place + 1][0], ""))
        else:
            edits.append(TextEdit(start, end, ""))
    return edits


def member_at(text: str, at: int, key: str) -> Member | None:
    """Returns a member of the object that starts at a position; the last one if the key is repeated, as parsers do."""
    last = None
    for member in members(text, at):
        if member.key == key:
            last = member
    return last


def set_member(text: str, at: int, key: str, source: str) -> TextEdit:
    """Returns the edit that sets a member of the object that starts at a position, or appends it if it is missing."""
    last = None
    existing = None
    for member in members(text, at):
        last = member
        if member.key == key:
            existing = member
    if existing is not None:
        return TextEdit(existing.value.start, existing.value.end, source)
    if last is not None:
        return TextEdit(last.value.end, last.value.end, f", {quoted(key)}: {source}")
    inside = text.index("{", at) + 1
    return TextEdit(inside, inside, f"{quoted(key)}: {source}")


def elements_of(text: str, span: JsonSpan) -> list[JsonSpan]:
    """Returns the elements of an array; an empty list for any other value."""
    return list(elements(text, span.start)) if isinstance(span.value, list) else []


def quoted(text: str) -> str:
    """Serialises text as a JSON string that can be encoded, also with lone surrogates."""
    source = json.dumps(text, ensure_ascii=False)
    try:
        source.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return source
