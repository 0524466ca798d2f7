"""Ids that link tool calls to their results, and the problems with them that all formats report alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from recto.formats.message import ROLES


class ToolCallIds(NamedTuple):
    """The ids of the calls that a message makes and that the caller has to answer, and of the calls it answers."""

    calls: tuple[str, ...]
    answers: tuple[str, ...]


class NewToolCall(NamedTuple):
    """A tool call to be written in some format."""

    id: str
    name: str
    arguments: Mapping[str, str]


class NewToolResult(NamedTuple):
    """The result of a tool call, to be written in some format."""

    call_id: str
    text: str
    name: str = ""
    """The tool, for formats that name it in the result."""


NO_CALLS: Final = ToolCallIds((), ())


def unanswered_calls(open_calls: Mapping[str, int]) -> Iterator[str]:
    """Describes calls without a result. `open_calls` maps a call id to the position of its message."""
    for call, place in open_calls.items():
        yield f"message {place}: call {call!r} has no result where it has to be"


def repeated_ids(calls: Iterable[str], place: int) -> Iterator[str]:
    """Describes call ids that occur more than once in one message."""
    seen: set[str] = set()
    for call in calls:
        if call in seen:
            yield f"message {place}: the id {call!r} names two calls"
        seen.add(call)


def call_defect(ids: ToolCallIds, role: str, answers_by: Sequence[str]) -> str:
    """Returns why calls or results are invalid in a message of this role; `answers_by` are the roles of results."""
    calls, answers = ids
    if not all((*calls, *answers)):
        return "a call or a result has an id that is no text"
    if calls and ROLES.get(role) != "assistant":
        return "only an assistant can call tools"
    if answers and ROLES.get(role, "user") not in answers_by:
        return "only a user or a tool can give results"
    if len(set(calls)) < len(calls):
        return "two of its calls have one id"
    return "two of its results are for one call" if len(set(answers)) < len(answers) else ""
