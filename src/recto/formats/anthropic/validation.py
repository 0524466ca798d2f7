"""Which lists of messages Anthropic's Messages API rejects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from recto.formats.json_spans import Json
from recto.formats.message import (
    CACHE_MARKS,
    MAX_CACHE_MARKS,
    THINKING,
    content_blocks,
    content_defect,
    is_blank,
    stated_role,
    text_in,
)
from recto.formats.tool_calls import NO_CALLS, ToolCallIds, call_defect, repeated_ids, unanswered_calls


class _RoleTurn(NamedTuple):
    """Adjacent messages with one role, which Anthropic reads as one message."""

    place: int
    role: str
    blocks: list[dict[str, Json]]
    ids: ToolCallIds


def tool_call_ids(fields: Mapping[str, Json]) -> ToolCallIds:
    """Returns the ids of the calls that a message makes or answers."""
    blocks = content_blocks(fields)
    return ToolCallIds(
        tuple(text_in(block.get("id")) for block in blocks if block.get("type") == "tool_use"),
        tuple(text_in(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"),
    )


def problems(messages: Sequence[dict[str, Json]]) -> Iterator[str]:
    """Yields every reason for which the provider would reject these messages."""
    turns = list(_turns(messages))
    if turns[0].role != "user":
        yield "message 0: the user has to speak first"
    for place, fields in enumerate(messages):
        if not (blocks := content_blocks(fields)) or any(map(is_blank, blocks)):
            yield f"message {place}: it has no content, or text that says nothing"
    marks = sum(_count_marks(fields) for fields in messages)
    if marks > MAX_CACHE_MARKS:
        yield f"{marks} cache marks, at most {MAX_CACHE_MARKS} are allowed"
    nothing = _RoleTurn(len(messages), "user", [], NO_CALLS)
    for before, turn, after in zip([nothing, *turns], turns, [*turns[1:], nothing], strict=False):
        if turn.role == "assistant":
            yield from _assistant_problems(turn, after)
        else:
            yield from _user_problems(turn, before)


def defect(fields: Mapping[str, Json]) -> str:
    """Returns why the provider rejects a message in any context; empty if it might accept it."""
    if wrong := content_defect(fields):
        return wrong
    if fields.get("content") is None:
        return "it has no 'content'"
    return call_defect(tool_call_ids(fields), text_in(fields.get("role")), ("user",))


def leads_on(fields: Mapping[str, Json]) -> bool:
    """Never: thinking is a block of the message that it led to."""
    return False


def _assistant_problems(turn: _RoleTurn, after: _RoleTurn) -> Iterator[str]:
    yield from repeated_ids(turn.ids.calls, turn.place)
    answers = after.ids.answers if after.role == "user" else ()
    yield from unanswered_calls({call: turn.place for call in turn.ids.calls if call not in answers})
    if turn.ids.answers:
        yield f"message {turn.place}: an assistant cannot give results"
    if turn.blocks and turn.blocks[-1].get("type") in THINKING:
        yield f"message {turn.place}: the assistant's turn ends with thinking"


def _user_problems(turn: _RoleTurn, before: _RoleTurn) -> Iterator[str]:
    for place, call in enumerate(turn.ids.answers):
        if call in turn.ids.answers[:place]:
            yield f"message {turn.place}: call {call!r} has a result already"
        elif call not in before.ids.calls:
            yield f"message {turn.place}: the result for {call!r} does not follow its call"
    if turn.ids.calls:
        yield f"message {turn.place}: only an assistant can call tools"
    kinds = [block.get("type") == "tool_result" for block in turn.blocks]
    if kinds != sorted(kinds, reverse=True):
        yield f"message {turn.place}: results have to come before everything else the user says"


def _turns(messages: Sequence[dict[str, Json]]) -> Iterator[_RoleTurn]:
    place = 0
    for role, group in groupby(messages, key=stated_role):
        together = list(group)
        blocks = [block for fields in together for block in content_blocks(fields)]
        ids = [tool_call_ids(fields) for fields in together]
        calls = tuple(call for of_message in ids for call in of_message.calls)
        answers = tuple(call for of_message in ids for call in of_message.answers)
        yield _RoleTurn(place, role, blocks, ToolCallIds(calls, answers))
        place += len(together)


def _count_marks(holder: Mapping[str, Json]) -> int:
    here = sum(holder.get(key) is not None for key in CACHE_MARKS)
    return here + sum(_count_marks(block) for block in content_blocks(holder))
