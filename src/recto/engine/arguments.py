"""Checks of arguments that programs pass in: a wrong type is refused by name, before anything is read or stored."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from recto.errors import InputError, SettingsError
from recto.formats.response_objects import HOW_TO_WRITE
from recto.transcript.entries import to_json
from recto.transcript.session_keys import Scope

if TYPE_CHECKING:
    from recto.formats.arrangement import Arrangement


def check_text(name: str, value: object) -> None:
    """Raises `InputError` unless an argument is a text."""
    if not isinstance(value, str):
        raise InputError(f"{name} is a text, not {describe(value)}. Nothing was changed.")


def check_count(name: str, value: object, least: int) -> None:
    """Raises `InputError` unless an argument is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is a whole number of at least {least}, not {describe(value)}. Nothing was changed.")


def check_entry_number(name: str, value: object) -> None:
    """Raises `InputError` unless an argument is the number of an entry."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} is the number of an entry, not {describe(value)}. Nothing was read.")


def check_listener(value: object) -> None:
    """Raises `InputError` unless an argument can be called."""
    if not callable(value):
        raise InputError(f"a listener is a function, not {describe(value)}. Nothing was changed.")


def check_function(name: str, value: object) -> None:
    """Raises `SettingsError` for a part that a program passes, is not None and cannot be called."""
    if value is not None and not callable(value):
        raise SettingsError(name, f"it is a function, not {describe(value)}")


def check_writer(name: str, value: object) -> None:
    """Raises `SettingsError` for a part that is not None and cannot write a summary."""
    if value is not None and not hasattr(value, "complete"):
        raise SettingsError(name, f"it is a model, an object with the call 'complete', not {describe(value)}")


def check_number(
    name: str, value: object, expected: str, least: float, most: float = sys.float_info.max, *, whole: bool = False
) -> None:
    """Raises `SettingsError` unless a setting that a program passes is a number in a range."""
    types = int if whole else int | float
    if not isinstance(value, types) or isinstance(value, bool) or not least <= value <= most:
        raise SettingsError(name, f"it is {expected}, not {describe(value)}")


def check_messages(name: str, value: object) -> None:
    """Raises `InputError` for what is no list of messages: None, one message, a text."""
    if isinstance(value, list):
        return
    refused = isinstance(value, str | bytes | Mapping) or hasattr(value, "model_dump")
    if refused or not isinstance(value, Iterable):
        raise InputError(f"{name} is a list of messages, not {describe(value)}; {HOW_TO_WRITE}")


def schemas_json(tools: object) -> bytes:
    """The JSON of tool schemas. Raises `InputError` for anything else: one schema, a text, functions."""
    wrong = tools
    if isinstance(tools, list | tuple):
        others = [tool for tool in tools if not isinstance(tool, Mapping)]
        if not others:
            return to_json(tools)
        wrong = others[0]
    raise InputError(
        f"'tools' is a list of tool schemas, each a dict as the provider's API takes it, and not {describe(wrong)}"
    )


def check_search(query: object, most: object, scope: object, project: object, agent: object) -> None:
    """Raises `InputError` for a search that could find nothing whatever is stored."""
    for name, value in (("the query", query), ("project", project), ("agent", agent)):
        if not isinstance(value, str):
            raise InputError(f"{name} of a search is a text, not {describe(value)}. Nothing was searched.")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        reason = f"'most' is how many hits a search returns, at least 1, not {describe(most)}"
        raise InputError(f"{reason}. Nothing was searched.")
    if scope is not None and scope not in get_args(Scope):
        scopes = ", ".join(get_args(Scope))
        raise InputError(f"the scope of a search is {scopes} or None, not {describe(scope)}. Nothing was searched.")


def refuse_only_orphans(arrangement: Arrangement, cure: str) -> None:
    """Raises `InputError` for a prompt without messages, because all there are is tool results without their calls."""
    if not arrangement.omitted:
        return
    named = ", ".join(f"entry {orphan.seq} for call {orphan.call_id!r:.60}" for orphan in arrangement.omitted[:3])
    raise InputError(
        f"there is nothing to send: there are only tool results without their calls ({named}). {cure} the assistant "
        "message with the call and the result behind it, or a user message."
    )


def refuse_only_empty(count: int, system: Sequence[bytes]) -> None:
    """Raises `InputError` for a prompt without messages, because all there are say nothing and may not be sent."""
    if count and not system:
        which = "the only message is empty" if count == 1 else "all messages are empty"
        raise InputError(f"there is nothing to send: {which}; a user message needs a text or another part.")


def describe(value: object) -> str:
    """A value as an error names it: numbers and texts as they are written, anything else by its type."""
    if value is None or isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return f"{value!r:.40}"
    return f"'{type(value).__name__}'"
