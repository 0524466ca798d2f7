"""Action support: does a prompt hold what the recorded next action uses from the history? Computed by rule.

The referents of an action are the paths, the identifiers with an underscore or an inner capital and the numbers of
three digits or more in its arguments or commands, as far as they occur earlier in the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from recto.formats.json_spans import Json
from recto.formats.message import Message

REFERENT = re.compile(
    r"[A-Za-z_][\w]*(?:[./][\w.-]+)+|[A-Za-z]+_[A-Za-z0-9_]+|[a-z]+[A-Z][A-Za-z0-9]+|[A-Z][a-z]+[A-Z]\w+|\b\d{3,}\b"
)
COMMAND = re.compile(r"```(?:bash|sh)?\n(.*?)```", re.DOTALL)
_MIN_CHARACTERS = 4
_LAYOUT = ("type", "cache_control")
"""Members of blocks that say how a value is packed."""


def referents(text: str) -> set[str]:
    """Returns the names, paths and numbers in a text."""
    return {name for name in REFERENT.findall(text) if len(name) >= _MIN_CHARACTERS or name.isdigit()}


def action_text(response: Iterable[Message]) -> str:
    """Returns what a response does: the arguments of its calls, or the commands that it writes as text, or its text."""
    messages = list(response)
    calls = [part.text for message in messages for part in message.calls]
    if calls:
        return "\n".join(map(_arguments, calls))
    text = "\n".join(part.text for message in messages for part in message.parts if part.kind == "text")
    return "\n".join(COMMAND.findall(text)) or text


def used_referents(action: str, history: Sequence[str]) -> frozenset[str]:
    """Returns the referents of an action that occur in the texts before it."""
    return frozenset(name for name in referents(action) if any(name in text for text in history))


def strings_in(value: Json) -> str:
    """Returns all values of a JSON value as text, line by line."""
    return "\n".join(_strings(value))


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            if key not in _LAYOUT:
                yield strings_in(member)
    elif isinstance(value, list):
        yield from map(strings_in, value)
    else:
        yield str(value)


def _arguments(text: str) -> str:
    """Returns arguments without JSON's escapes, so that `\\nname_a` is not read as the name `nname_a`."""
    try:
        return strings_in(json.loads(text))
    except (ValueError, RecursionError):
        return text
