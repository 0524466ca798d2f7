"""The Markdown page of a memory: YAML front matter and the text below it.

People edit these pages. Unknown keys, comments and order are preserved: a change replaces the characters of one value
and nothing else. That is why the front matter is composed to PyYAML nodes, whose positions are exact, and not loaded as
objects; scalars are read as written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from recto.continuity.memory import KINDS
from recto.continuity.memory.model import (
    HALF_LIFE_DAYS,
    LONGEST_TAG,
    LONGEST_TEXT,
    LONGEST_TITLE,
    MOST_REPLACED,
    MOST_SOURCES,
    MOST_TAGS,
    STATES,
    Memory,
    memory_id,
    title_of,
)
from recto.errors import InputError, MalformedMemory
from recto.recall.types import format_day
from recto.text.lazy_re import lazy_re
from recto.text.unicode import invisible_characters
from recto.transcript.session_keys import parse_pointer

LARGEST = 64 * 1024
"""Maximum size of a page in bytes."""
_MAX_FRONT_MATTER = 16_000
"""Maximum characters of front matter."""
_DELIMITER = "---"
_NEVER = "never"
_ID = lazy_re(r"[0-9a-f]{12}", re.ASCII)
_NUMBER = lazy_re(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
_TIME = lazy_re(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?Z?)?", re.ASCII)
_SECOND = 1_000_000
_CACHE_SIZE = 128
"""Parsed pages that are cached: one approval reads the same page several times."""
USES = ("hits", "prevented", "last_applied", "state")
"""Fields that Recto updates itself; they need no approval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownPage:
    """A parsed page with its exact text."""

    memory: Memory
    text: str
    places: Mapping[str, tuple[int, int]]
    """Start and end of the value of each key of the front matter."""
    end: int
    """End of the front matter, where keys are added."""
    has_id: bool


def page_of(memory: Memory) -> str:
    """Render a memory as a page. `read_page` returns the same memory."""
    lines = [
        _DELIMITER,
        f"id: {_quote(memory.id)}",
        f"kind: {memory.kind}",
        f"title: {_quote(memory.title)}",
        f"tags: [{', '.join(map(_quote, memory.tags))}]",
        f"created: {_render_time(memory.created)}",
        f"half_life_days: {memory.half_life_days:g}",
        f"critical: {_render_boolean(memory.critical)}",
        f"evergreen: {_render_boolean(memory.evergreen)}",
        f"hits: {memory.hits}",
        f"prevented: {memory.prevented}",
        f"last_applied: {_render_time(memory.last_applied)}",
        *_render_list("sources", memory.sources),
        *_render_list("replaces", memory.replaces),
        f"state: {memory.state}",
        _DELIMITER,
        "",
        memory.text.strip("\n"),
        "",
    ]
    return "\n".join(lines)


@lru_cache(_CACHE_SIZE)
def read_page(raw: bytes, name: str) -> MarkdownPage:
    """Parse a page. Raises `MalformedMemory`, which names the file, the line and the problem."""
    if len(raw) > LARGEST:
        raise MalformedMemory(name, 1, f"it has {len(raw):,} bytes, and a memory has at most {LARGEST:,}")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedMemory(name, raw[: error.start].count(b"\n") + 1, "this is not text in UTF-8") from None
    start, stop, body = _front(text, name)
    front = _FrontMatter(name, text[start:stop], text.count("\n", 0, start) + 1)
    body_text = text[body:].replace("\r\n", "\n").strip("\n")
    memory = front.memory(body_text, text.count("\n", 0, body) + 1)
    for number, line in enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), 1):
        if hidden := invisible_characters(line):
            reason = f"there are characters here that cannot be seen ({', '.join(hidden)}); take them out"
            raise MalformedMemory(name, number, reason)
    return MarkdownPage(
        memory=memory,
        text=text,
        places={key: (start + first, start + last) for key, (first, last) in front.places.items()},
        end=stop,
        has_id="id" in front.nodes,
    )


def amended(page: MarkdownPage, memory: Memory) -> str:
    """Return the page with the fields that Recto updates set as in a memory; every other character is unchanged."""
    values = {
        "hits": str(memory.hits),
        "prevented": str(memory.prevented),
        "last_applied": _render_time(memory.last_applied),
        "state": memory.state,
    }
    text = page.text
    missing = "".join(f"{key}: {value}\n" for key, value in values.items() if key not in page.places)
    text = text[: page.end] + missing + text[page.end :]
    for key in sorted(values.keys() & page.places.keys(), key=lambda key: -page.places[key][0]):
        first, last = page.places[key]
        apart = " " if first == last and text[first - 1] == ":" else ""
        text = f"{text[:first]}{apart}{values[key]}{text[last:]}"
    return text


def essence(page: MarkdownPage) -> str:
    """Return the page with initial values in the fields that Recto updates: what an approval covers."""
    initial = Memory(id="", kind="fact", title="", text="", created=0)
    return amended(page, initial)


def _front(text: str, name: str) -> tuple[int, int, int]:
    """Find the start and end of the front matter, and the start of the text."""
    first = text.find("\n")
    if first < 0 or text[:first].removeprefix("\ufeff").rstrip() != _DELIMITER:
        raise MalformedMemory(name, 1, "a memory begins with a line '---', then keys and values, then '---' again")
    at = first + 1
    while at < len(text) and at - first <= _MAX_FRONT_MATTER:
        after = text.find("\n", at)
        after = len(text) if after < 0 else after
        if text[at:after].rstrip() == _DELIMITER:
            return first + 1, at, min(after + 1, len(text))
        at = after + 1
    reason = "the keys and values do not end with a line '---'"
    raise MalformedMemory(name, 1, reason if at >= len(text) else f"{reason} within {_MAX_FRONT_MATTER:,} characters")


class _FrontMatter:
    """Parses the values of one front matter, with the line of each."""

    def __init__(self, name: str, front: str, line: int) -> None:
        self._name = name
        self._line = line
        import yaml  # noqa: PLC0415  # start-up: most memory folders have no page

        try:  # with the C loader where available; both only build plain nodes
            root = yaml.compose(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or "it cannot be read"
            raise self._error(mark.line if mark else 0, f"this is not YAML: {problem}") from None
        except (RecursionError, ValueError):
            raise self._error(0, "this is not YAML that can be read") from None
        if not isinstance(root, yaml.MappingNode) or root.flow_style:
            raise self._error(0, "keys and values are expected here, one key a line")
        self.nodes: dict[str, Any] = {}
        for key, value in root.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key.start_mark.line, "a key is a word")
            if key.value in self.nodes:
                raise self._error(key.start_mark.line, f"'{key.value[:40]}' is here twice")
            self.nodes[key.value] = value
        self.places = {
            key: (node.start_mark.index, node.end_mark.index)
            for key, node in self.nodes.items()
            if isinstance(node, yaml.ScalarNode)
        }

    def memory(self, text: str, line: int) -> Memory:
        """Build the memory from the front matter and the text below it."""
        if not text.strip():
            raise MalformedMemory(self._name, line, "there is no text below the keys and values")
        if len(text) > LONGEST_TEXT:
            raise MalformedMemory(self._name, line, f"the text has {len(text):,} characters, at most {LONGEST_TEXT:,}")
        kind: Any = self._scalar("kind", "", self._among(KINDS))
        state: Any = self._scalar("state", "approved", self._among(STATES))
        sources = self._list("sources", MOST_SOURCES, self._pointer)
        own_id = self._scalar("id", "", lambda value: value if _ID.fullmatch(value) else "")
        return Memory(
            id=own_id or memory_id(kind, text, sources),
            kind=kind,
            title=self._scalar("title", title_of(text), _short(LONGEST_TITLE)),
            text=text,
            created=self._scalar("created", None, _time),
            tags=self._list("tags", MOST_TAGS, _short(LONGEST_TAG)),
            half_life_days=self._scalar("half_life_days", HALF_LIFE_DAYS, _days),
            critical=self._scalar("critical", False, _boolean),
            evergreen=self._scalar("evergreen", False, _boolean),
            hits=self._scalar("hits", 0, _count),
            prevented=self._scalar("prevented", 0, _count),
            last_applied=self._scalar("last_applied", 0, lambda value: 0 if value == _NEVER else _time(value)),
            sources=sources,
            replaces=self._list("replaces", MOST_REPLACED, lambda value: value if _ID.fullmatch(value) else ""),
            state=state,
        )

    def _scalar(self, key: str, default: Any, parse: Callable[[str], Any]) -> Any:  # noqa: ANN401  # depends on the key
        node = self.nodes.get(key)
        if node is None:
            if default in ("", None) and key != "id":
                raise self._error(0, f"'{key}' is missing; {_EXPECTED[key]}")
            return default
        if node.id != "scalar":
            raise self._error(node.start_mark.line, f"'{key}' is one value; {_EXPECTED[key]}")
        value = parse(node.value)
        if value is None or value == "":
            raise self._error(node.start_mark.line, f"'{key}' is {node.value[:40]!r}; {_EXPECTED[key]}")
        return value

    def _list(self, key: str, limit: int, parse: Callable[[str], str]) -> tuple[str, ...]:
        node = self.nodes.get(key)
        if node is None or (node.id == "scalar" and not node.value):
            return ()
        if node.id != "sequence":
            raise self._error(node.start_mark.line, f"'{key}' is a list; {_EXPECTED[key]}")
        if len(node.value) > limit:
            raise self._error(node.start_mark.line, f"'{key}' has {len(node.value)} values, at most {limit}")
        for item in node.value:
            if item.id != "scalar" or not parse(item.value):
                raise self._error(item.start_mark.line, f"a value of '{key}' cannot be used; {_EXPECTED[key]}")
        return tuple(parse(item.value) for item in node.value)

    def _pointer(self, value: str) -> str:
        try:
            parse_pointer(value)
        except InputError:
            return ""
        return value

    def _among(self, names: Sequence[str]) -> Callable[[str], str]:
        return lambda value: value if value in names else ""

    def _error(self, line: int, reason: str) -> MalformedMemory:
        return MalformedMemory(self._name, self._line + line, reason)


_EXPECTED = {
    "id": "twelve of the characters 0-9 a-f",
    "kind": f"one of {', '.join(KINDS)}",
    "state": f"one of {', '.join(STATES)}",
    "title": f"a line of at most {LONGEST_TITLE} characters",
    "created": "a day such as 2026-11-14, or a time such as 2026-11-14T09:30:00Z",
    "last_applied": f"a day, a time, or '{_NEVER}'",
    "half_life_days": "a number of days above 0",
    "critical": "true or false",
    "evergreen": "true or false",
    "hits": "a whole number",
    "prevented": "a whole number",
    "tags": f"words of at most {LONGEST_TAG} characters",
    "sources": "pointers such as recto://agent:default:main/57",
    "replaces": "ids of other memories",
}


def _short(most: int) -> Callable[[str], str]:
    return lambda value: value if value.strip() and len(value) <= most and "\n" not in value else ""


def _count(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _days(value: str) -> float | None:
    return (float(value) or None) if _NUMBER.fullmatch(value) else None


def _boolean(value: str) -> bool | None:
    return {"true": True, "false": False, "yes": True, "no": False}.get(value.lower())


def _time(value: str) -> int | None:
    match = _TIME.fullmatch(value)
    if not match:
        return None
    year, month, day, hour, minute, second = (int(group or 0) for group in match.groups())
    if not (year >= 1970 and 1 <= month <= 12 and hour < 24 and minute < 60 and second < 60):
        return None
    shifted = year - (month <= 2)
    of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    days = (
        shifted // 400 * 146_097 + shifted % 400 * 365 + shifted % 400 // 4 - shifted % 400 // 100 + of_year - 719_468
    )
    when = (((days * 24 + hour) * 60 + minute) * 60 + second) * _SECOND
    return when if format_day(when) == value[:10] else None


def _render_time(when: int) -> str:
    if when <= 0:
        return _NEVER
    second = when // _SECOND % 86_400
    return f"{format_day(when)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _render_boolean(value: bool) -> str:
    return "true" if value else "false"


def _render_list(key: str, values: Sequence[str]) -> list[str]:
    return [f"{key}:", *(f"  - {_quote(value)}" for value in values)] if values else [f"{key}: []"]
