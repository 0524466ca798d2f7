"""Entities in messages: paths, numbers and ids, who used each, how often, and where last.

A path is identified by its last two parts, so that a file is one entity however its folder is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from recto.context.facts.claims import (
    MAX_TOKEN_CHARS,
    canonical_path,
    claim_kind,
    fold_words,
    required_numbers,
    split_location,
    strip_punctuation,
    tokenize,
)
from recto.context.facts.tool_use import describe_call
from recto.context.facts.types import MessageView
from recto.text.lazy_re import lazy_re
from recto.text.secrets import find_secrets
from recto.text.terms import clip_middle
from recto.text.unicode import visible_text

EntityKind = Literal["path", "number", "id"]

_MAX_OUTPUT_CHARS = 20_000
"""Characters of a tool output that are read."""
_MAX_TEXT_CHARS = 200_000
_MAX_LINE_CHARS = 2_000
_MAX_REMEMBERED_CHARS = 60_000
"""Characters of texts whose names are remembered: many short ones, some longer ones."""
_MAX_NAME_CHARS = 120
"""Characters of tokens whose names are remembered."""
_EDITS = lazy_re(r"edit|write|patch|replace|create|insert|update|apply|rename|move|delete|notebook", re.IGNORECASE)
_ESCAPES = lazy_re(r"\\+(?:[nrt]|[\"'])")


_COMMON_PATHS = frozenset(("dev/null", "bin/sh", "bin/bash", "usr/bin", "bin/env", "and/or"))


@dataclass(slots=True)
class EntityUse:
    """Uses of one entity."""

    kind: EntityKind
    last: int
    """The last entry that contains it."""
    mentions: int = 0
    """Messages of people and models that contain it."""
    results: int = 0
    """Tool results that contain it."""
    calls: int = 0
    """Tool calls that contain it."""
    edits: int = 0
    position: int = 0
    """Index of the last message that contains it."""


def find_entities(messages: Iterable[MessageView]) -> dict[str, EntityUse]:
    """Everything that would be recognized again, by its short form."""
    uses: dict[str, EntityUse] = {}
    for position, message in enumerate(messages):
        if message.role == "event":
            continue
        is_result = message.role == "tool"
        for name, kind in find_names(message.text, _MAX_OUTPUT_CHARS if is_result else _MAX_TEXT_CHARS):
            use = _record_use(uses, name, kind, message.seq, position)
            use.results += is_result
            use.mentions += not is_result
        for call in message.calls if not is_result else ():
            edited = {name for name, _ in find_names(describe_call(call))} if _EDITS.search(call.tool) else set()
            for name, kind in find_names(_argument_values(call.arguments), _MAX_OUTPUT_CHARS):
                use = _record_use(uses, name, kind, message.seq, position)
                use.calls += 1
                use.edits += kind == "path" and name in edited
    return _merge_bare_names(uses)


def _argument_values(arguments: str) -> str:
    """The values of a call's arguments, without their names."""
    try:
        parsed = json.loads(arguments[:_MAX_TEXT_CHARS])
    except (ValueError, RecursionError):
        return _ESCAPES.sub(" ", clip_middle(arguments, _MAX_OUTPUT_CHARS))
    values = parsed.values() if isinstance(parsed, dict) else (parsed,)
    return _ESCAPES.sub(" ", "\n".join(value if isinstance(value, str) else str(value) for value in values))


def _merge_bare_names(uses: dict[str, EntityUse]) -> dict[str, EntityUse]:
    """Merge a file mentioned by name alone into its path, if only one path has that name."""
    paths_by_name: dict[str, list[str]] = {}
    for name, use in uses.items():
        if use.kind == "path" and "/" in name:
            paths_by_name.setdefault(name.rpartition("/")[2], []).append(name)
    for name in [name for name, use in uses.items() if use.kind == "path" and len(paths_by_name.get(name, ())) == 1]:
        bare, use = uses.pop(name), uses[paths_by_name[name][0]]
        use.mentions, use.results = use.mentions + bare.mentions, use.results + bare.results
        use.calls, use.edits = use.calls + bare.calls, use.edits + bare.edits
        use.last, use.position = max(use.last, bare.last), max(use.position, bare.position)
    return uses


def _record_use(uses: dict[str, EntityUse], name: str, kind: EntityKind, seq: int, position: int) -> EntityUse:
    use = uses.setdefault(name, EntityUse(kind, seq))
    use.last, use.position = max(use.last, seq), position
    return use


class _TextReading(NamedTuple):
    """What a text names, and its words."""

    names: tuple[tuple[str, EntityKind], ...]
    """Its paths, numbers and ids, each once."""
    words: str


def find_names(text: str, max_chars: int = _MAX_TEXT_CHARS) -> tuple[tuple[str, EntityKind], ...]:
    """The paths, numbers and ids of one text, each once."""
    return _read_text(clip_middle(text, max_chars)).names


def _read_text(text: str) -> _TextReading:
    """Messages are read again with every relief until they are evicted, and lines with every text that has them."""
    if len(text) <= _MAX_LINE_CHARS:
        return _read_line(text)
    return _read_message(text) if len(text) <= _MAX_REMEMBERED_CHARS else _read(text)


def _read(text: str) -> _TextReading:
    visible = visible_text(text)
    return _TextReading(tuple(_names_in(visible)), fold_words(visible))


_read_line = lru_cache(4096)(_read)
_read_message = lru_cache(256)(_read)


def _names_in(visible: str) -> Iterator[tuple[str, EntityKind]]:
    for start, end, _ in reversed(find_secrets(visible)):
        visible = f"{visible[:start]} {visible[end:]}"
    seen: set[str] = set()
    for token in dict.fromkeys(tokenize(visible)):
        named = _short_name(token) if len(token) <= _MAX_NAME_CHARS else _name_in(token)
        if named is not None and named[0] not in seen:
            seen.add(named[0])
            yield named


def _name_in(token: str) -> tuple[str, EntityKind] | None:
    """The name that a token is; None for a plain word."""
    core = strip_punctuation(token)
    kind = claim_kind(core) if 1 < len(core) <= MAX_TOKEN_CHARS else None
    name = _short_form(core, kind) if kind is not None else ""
    return (name, "path" if kind == "path" else "number" if kind == "number" else "id") if name else None


_short_name = lru_cache(32_768)(_name_in)


def _short_form(core: str, kind: str) -> str:
    if kind == "path":
        parts = canonical_path(split_location(core)[0]).split("/")
        short = "/".join(part for part in parts[-2:] if part)
        return short if ("/" in short or "." in short) and short not in _COMMON_PATHS else ""
    if kind == "number":
        numbers = required_numbers(core)
        return numbers[0] if len(numbers) == 1 else core
    name = core.strip("_*~")
    return name if len(name) > 2 and name[0] not in "-$@%" else ""


class EntityIndex:
    """The entities of some texts, for lookup by name."""

    def __init__(self, texts: Iterable[str]) -> None:
        readings = [_read_text(text) for text in texts]
        self._names = {name for reading in readings for name, _ in reading.names}
        self._file_names = {name.rpartition("/")[2] for name in self._names}
        self._words = f" {' '.join(reading.words for reading in readings if reading.words)} "

    def has(self, name: str, kind: EntityKind) -> bool:
        """Whether the texts contain it; a file also by its name alone."""
        if name in self._names:
            return True
        if kind == "path":
            return name.rpartition("/")[2] in self._file_names or f" {fold_words(name)} " in self._words
        return kind == "id" and bool(words := fold_words(name)) and f" {words} " in self._words
