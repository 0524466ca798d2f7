"""The names and numbers that stand in messages: who wrote each, how often, and where last.

Paths are told by their last two parts, so that a file is one thing however far its folder is written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from recto.context.facts.grounding import LONGEST, asked_of, core_of, folded, kind_of, path_of, pieces_of, place_in
from recto.context.facts.tool_errors import told_by
from recto.context.facts.types import MessageView
from recto.text.identifiers import clip_middle
from recto.text.secrets import find_secrets
from recto.text.unicode import visible_text

EntityKind = Literal["path", "number", "id"]

_MOST_SHOWN = 20_000
"""Characters of a tool's output that are looked at."""
_MOST_SAID = 200_000
_EDITS = re.compile(r"edit|write|patch|replace|create|insert|update|apply|rename|move|delete|notebook", re.IGNORECASE)
_ESCAPES = re.compile(r"\\+(?:[nrt]|[\"'])")


_EVERYBODYS = frozenset(("dev/null", "bin/sh", "bin/bash", "usr/bin", "bin/env", "and/or"))


@dataclass(slots=True)
class EntityUse:
    """What is known of one name or number."""

    kind: EntityKind
    last: int
    said: int = 0
    """Messages of people and models in which it stands."""
    shown: int = 0
    """Results of tools in which it stands."""
    called: int = 0
    """Calls in which it stands."""
    edited: int = 0
    place: int = 0
    """How far on in the messages it stood last."""


def entities_in(told: Iterable[MessageView]) -> dict[str, EntityUse]:
    """Everything that would be recognised again, by its short form."""
    found: dict[str, EntityUse] = {}
    for place, one in enumerate(told):
        if one.role == "event":
            continue
        shown = one.role == "tool"
        for name, kind in names_in(one.text, _MOST_SHOWN if shown else _MOST_SAID):
            seen = _seen(found, name, kind, one.seq, place)
            seen.shown += shown
            seen.said += not shown
        for call in one.calls if not shown else ():
            edited = {name for name, _ in names_in(told_by(call))} if _EDITS.search(call.tool) else set()
            for name, kind in names_in(_given(call.arguments), _MOST_SHOWN):
                seen = _seen(found, name, kind, one.seq, place)
                seen.called += 1
                seen.edited += kind == "path" and name in edited
    return _merged(found)


def _given(arguments: str) -> str:
    """What a call is given, without the names of what it is given for."""
    try:
        given = json.loads(arguments[:_MOST_SAID])
    except (ValueError, RecursionError):
        return _ESCAPES.sub(" ", clip_middle(arguments, _MOST_SHOWN))
    values = given.values() if isinstance(given, dict) else (given,)
    return _ESCAPES.sub(" ", "\n".join(value if isinstance(value, str) else str(value) for value in values))


def _merged(found: dict[str, EntityUse]) -> dict[str, EntityUse]:
    """A file that is also told by its name alone is one file, where only one has that name."""
    longer: dict[str, list[str]] = {}
    for name, seen in found.items():
        if seen.kind == "path" and "/" in name:
            longer.setdefault(name.rpartition("/")[2], []).append(name)
    for name in [name for name, seen in found.items() if seen.kind == "path" and len(longer.get(name, ())) == 1]:
        alone, seen = found.pop(name), found[longer[name][0]]
        seen.said, seen.shown = seen.said + alone.said, seen.shown + alone.shown
        seen.called, seen.edited = seen.called + alone.called, seen.edited + alone.edited
        seen.last, seen.place = max(seen.last, alone.last), max(seen.place, alone.place)
    return found


def _seen(found: dict[str, EntityUse], name: str, kind: EntityKind, seq: int, place: int) -> EntityUse:
    seen = found.setdefault(name, EntityUse(kind, seq))
    seen.last, seen.place = max(seen.last, seq), place
    return seen


def names_in(text: str, most: int = _MOST_SAID) -> Iterator[tuple[str, EntityKind]]:
    """The paths, numbers and names of one text, each once."""
    shown = visible_text(clip_middle(text, most))
    for start, end, _ in reversed(find_secrets(shown)):
        shown = f"{shown[:start]} {shown[end:]}"
    met: set[str] = set()
    for core in dict.fromkeys(map(core_of, dict.fromkeys(pieces_of(shown)))):
        kind = kind_of(core) if 1 < len(core) <= LONGEST else None
        if kind is None:
            continue
        name = _short(core, kind)
        if name and name not in met:
            met.add(name)
            yield name, "path" if kind == "path" else "number" if kind == "number" else "id"


def _short(core: str, kind: str) -> str:
    if kind == "path":
        parts = path_of(place_in(core)[0]).split("/")
        short = "/".join(part for part in parts[-2:] if part)
        return short if ("/" in short or "." in short) and short not in _EVERYBODYS else ""
    if kind == "number":
        numbers = asked_of(core)
        return numbers[0] if len(numbers) == 1 else core
    name = core.strip("_*~")
    return name if len(name) > 2 and name[0] not in "-$@%" else ""


class EntityIndex:
    """What stands in a text, to be asked name by name."""

    def __init__(self, text: str) -> None:
        self._names = {name for name, _ in names_in(text, len(text))}
        self._lasts = {name.rpartition("/")[2] for name in self._names}
        self._words = f" {folded(visible_text(text))} "

    def has(self, name: str, kind: EntityKind) -> bool:
        """Whether it stands there; a file also by its name alone."""
        if name in self._names:
            return True
        if kind == "path":
            return name.rpartition("/")[2] in self._lasts or f" {folded(name)} " in self._words
        return kind == "id" and bool(words := folded(name)) and f" {words} " in self._words
