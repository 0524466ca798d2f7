"""What a provider would refuse in a list of messages: our own judge, for tests and for the last look before sending.

It sees the messages alone, not the system text, the tools or other parameters of a request, and it mends nothing. Kinds
of items and blocks that it does not know pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from recto.errors import InputError, MalformedMessage
from recto.formats.json_spans import Json
from recto.formats.message import ANTHROPIC, CACHE_MARKS, CHAT, RESPONSES, ROLES, fields_of, stated_role, text_in
from recto.formats.openai_responses import role_of

MAX_CACHE_MARKS: Final = 4
THINKING: Final = ("thinking", "redacted_thinking")
"""A tuple, for what is looked for in it may be anything: a set would want to hash it."""


class Ties(NamedTuple):
    """What ties one message to others: calls that somebody has to answer, and the calls it answers itself."""

    calls: tuple[str, ...]
    answers: tuple[str, ...]


def problems(messages: Sequence[bytes], wire: str) -> list[str]:
    """Everything for which a provider would refuse these messages, in words; nothing where it would take them."""
    judge = _JUDGES.get(wire)
    if judge is None:
        raise MalformedMessage(f"'{wire}' is not a wire format; known are {', '.join(_JUDGES)}")
    if not messages:
        return ["there is no message"]
    read: list[dict[str, Json]] = []
    for place, raw in enumerate(messages):
        try:
            read.append(fields_of(raw))
        except InputError as error:
            return [f"message {place}: {error}"]
    return list(judge(read))


def defect(fields: Mapping[str, Json], wire: str) -> str:
    """Why no provider takes a message, whatever stands around it; empty where one might.

    Stored, such a message would spoil every prompt that it is in: its calls can never be answered.
    """
    content = fields.get("content")
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list | None) or not all(isinstance(part, dict) for part in parts):
        return "its 'content' is neither a text nor a list of parts"
    role = text_in(fields.get("role"))
    if wire == RESPONSES:
        needed = text_in(fields.get("type")).removesuffix("_output") in ("function_call", "custom_tool_call")
        return "its 'call_id' is no text" if needed and not text_in(fields.get("call_id")) else ""
    if content is None and (wire == ANTHROPIC or ROLES.get(role, "user") == "user"):
        return "it has no 'content'"
    calls, answers = ties(fields, wire)
    if not all((*calls, *answers)):
        return "a call or a result has an id that is no text"
    if calls and ROLES.get(role) != "assistant":
        return "only an assistant can call tools"
    gives = ("user",) if wire == ANTHROPIC else ("user", "tool")
    return "only a user or a tool can give results" if answers and ROLES.get(role, "user") not in gives else ""


def ties(fields: Mapping[str, Json], wire: str) -> Ties:
    """The calls and results of a message. What a provider runs itself needs no result from outside and is not in it."""
    if wire == CHAT:
        return _chat_ties(fields)
    if wire == RESPONSES:
        return _item_ties(fields)
    blocks = blocks_of(fields)
    return Ties(
        tuple(text_in(block.get("id")) for block in blocks if block.get("type") == "tool_use"),
        tuple(text_in(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"),
    )


def blocks_of(fields: Mapping[str, Json]) -> list[dict[str, Json]]:
    """The blocks of a message; a text is one block."""
    content = fields.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def is_blank(block: Json) -> bool:
    """Whether a block is text that says nothing, which Anthropic refuses."""
    return isinstance(block, dict) and block.get("type") == "text" and not text_in(block.get("text")).strip()


def is_empty(fields: Mapping[str, Json]) -> bool:
    """Whether a Chat message of the assistant holds nothing, which OpenAI refuses."""
    held = ("tool_calls", "function_call", "refusal", "audio")
    return fields.get("role") == "assistant" and fields.get("content") in (None, []) and not any(map(fields.get, held))


def _chat_ties(fields: Mapping[str, Json]) -> Ties:
    if fields.get("role") == "tool":
        return Ties((), (text_in(fields.get("tool_call_id")),))
    calls = fields.get("tool_calls")
    listed = calls if isinstance(calls, list) else []
    return Ties(tuple(text_in(call.get("id")) for call in listed if isinstance(call, dict)), ())


def _item_ties(fields: Mapping[str, Json]) -> Ties:
    kind = text_in(fields.get("type"))
    call_id = fields.get("call_id")
    if kind.endswith("_call_output") or (kind == "tool_search_output" and isinstance(call_id, str)):
        return Ties((), (text_in(call_id) or text_in(fields.get("id")),))
    return Ties((call_id,), ()) if kind.endswith("_call") and isinstance(call_id, str) else Ties((), ())


def _judge_chat(messages: Sequence[dict[str, Json]]) -> Iterator[str]:
    open_calls: dict[str, int] = {}
    answered: set[str] = set()
    for place, fields in enumerate(messages):
        calls, answers = _chat_ties(fields)
        if fields.get("role") not in ("tool", "function"):
            yield from _unanswered(open_calls)
            open_calls, answered = dict.fromkeys(calls, place), set()
        yield from _repeated(calls, place)
        for call in answers:
            if call in answered:
                yield f"message {place}: call {call!r} has a result already"
            elif call not in open_calls:
                yield f"message {place}: the result for {call!r} does not follow its call"
            answered.add(call)
            open_calls.pop(call, None)
        if is_empty(fields):
            yield f"message {place}: the assistant says nothing and calls nothing"
    yield from _unanswered(open_calls)


def _judge_items(items: Sequence[dict[str, Json]]) -> Iterator[str]:
    open_calls: dict[str, int] = {}
    answered: set[str] = set()
    for place, fields in enumerate(items):
        calls, answers = _item_ties(fields)
        if role_of(fields) == "user":
            yield from _unanswered(open_calls)
            open_calls = {}
        for call in calls:
            if call in open_calls:
                yield f"message {place}: the id {call!r} stands for two open calls"
            open_calls[call] = place
            answered.discard(call)
        for call in answers:
            if call in answered:
                yield f"message {place}: call {call!r} has a result already"
            elif call not in open_calls:
                yield f"message {place}: the result for {call!r} does not follow its call"
            answered.add(call)
            open_calls.pop(call, None)
        if fields.get("type") == "reasoning" and (place + 1 == len(items) or role_of(items[place + 1]) != "assistant"):
            yield f"message {place}: the reasoning stands without what it led to"
    yield from _unanswered(open_calls)


class _Turn(NamedTuple):
    """Neighbours with one role, which Anthropic reads as one message."""

    place: int
    role: str
    blocks: list[dict[str, Json]]
    ties: Ties


def _judge_anthropic(messages: Sequence[dict[str, Json]]) -> Iterator[str]:
    turns = list(_turns(messages))
    if turns[0].role != "user":
        yield "message 0: the user has to speak first"
    for place, fields in enumerate(messages):
        if not (blocks := blocks_of(fields)) or any(map(is_blank, blocks)):
            yield f"message {place}: it has no content, or text that says nothing"
    marks = sum(_count_marks(fields) for fields in messages)
    if marks > MAX_CACHE_MARKS:
        yield f"{marks} cache marks, at most {MAX_CACHE_MARKS} are allowed"
    nothing = _Turn(len(messages), "user", [], Ties((), ()))
    for before, turn, after in zip([nothing, *turns], turns, [*turns[1:], nothing], strict=False):
        if turn.role == "assistant":
            yield from _judge_assistant(turn, after)
        else:
            yield from _judge_others(turn, before)


def _judge_assistant(turn: _Turn, after: _Turn) -> Iterator[str]:
    yield from _repeated(turn.ties.calls, turn.place)
    answers = after.ties.answers if after.role == "user" else ()
    yield from _unanswered({call: turn.place for call in turn.ties.calls if call not in answers})
    if turn.ties.answers:
        yield f"message {turn.place}: an assistant cannot give results"
    if turn.blocks and turn.blocks[-1].get("type") in THINKING:
        yield f"message {turn.place}: the assistant's turn ends with thinking"


def _judge_others(turn: _Turn, before: _Turn) -> Iterator[str]:
    for place, call in enumerate(turn.ties.answers):
        if call in turn.ties.answers[:place]:
            yield f"message {turn.place}: call {call!r} has a result already"
        elif call not in before.ties.calls:
            yield f"message {turn.place}: the result for {call!r} does not follow its call"
    if turn.ties.calls:
        yield f"message {turn.place}: only an assistant can call tools"
    kinds = [block.get("type") == "tool_result" for block in turn.blocks]
    if kinds != sorted(kinds, reverse=True):
        yield f"message {turn.place}: results have to come before everything else the user says"


def _turns(messages: Sequence[dict[str, Json]]) -> Iterator[_Turn]:
    place = 0
    for role, group in groupby(messages, key=stated_role):
        together = list(group)
        blocks = [block for fields in together for block in blocks_of(fields)]
        tied = [ties(fields, ANTHROPIC) for fields in together]
        calls = tuple(call for tie in tied for call in tie.calls)
        answers = tuple(call for tie in tied for call in tie.answers)
        yield _Turn(place, role, blocks, Ties(calls, answers))
        place += len(together)


def _count_marks(holder: Mapping[str, Json]) -> int:
    here = sum(holder.get(key) is not None for key in CACHE_MARKS)
    return here + sum(_count_marks(block) for block in blocks_of(holder))


def _unanswered(open_calls: Mapping[str, int]) -> Iterator[str]:
    for call, place in open_calls.items():
        yield f"message {place}: call {call!r} has no result where it has to be"


def _repeated(calls: Iterable[str], place: int) -> Iterator[str]:
    seen: set[str] = set()
    for call in calls:
        if call in seen:
            yield f"message {place}: the id {call!r} stands for two calls"
        seen.add(call)


_JUDGES: Final[Mapping[str, Callable[[Sequence[dict[str, Json]]], Iterator[str]]]] = {
    CHAT: _judge_chat,
    RESPONSES: _judge_items,
    ANTHROPIC: _judge_anthropic,
}
