"""Messages that Recto makes itself, and changes inside the messages of others.

A change touches what it is about and nothing else: every byte around it stays. Whether a change is wanted is decided
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count, groupby
from typing import Final, Literal, NamedTuple

from recto.formats.cache_control import cache_marks, newest_marks, with_cache_mark, without_cache_marks
from recto.formats.json_spans import (
    Json,
    JsonSpan,
    Member,
    array_of,
    member_at,
    put_member,
    quoted,
    spliced,
    taken_out,
    text_of,
)
from recto.formats.message import ANTHROPIC, CHAT, fields_of, object_in, stated_role, text_in
from recto.formats.openai_responses import role_of
from recto.formats.ordering import Arrangement, Keep, KeepSome, Piece, SyntheticResult
from recto.formats.validation import THINKING, blocks_of, is_blank, is_empty, ties

_SAYS_WORDS = re.compile(rb'\{\s*"role"\s*:\s*"\w+"\s*,\s*"content"\s*:\s*"')
"""How nearly all Chat messages begin; such a one is not empty, whatever follows."""
_Kind = Literal["result", "thinking", "blank", "other"]


def settled(messages: Iterable[bytes], wire: str) -> list[bytes]:
    """The messages as the provider wants them on the inside."""
    if wire == CHAT:
        return [raw for raw in messages if _SAYS_WORDS.match(raw) or not is_empty(fields_of(raw))]
    return _turns_settled(messages) if wire == ANTHROPIC else _reasoning_settled(messages)


def without_blocks(raw: bytes, goes: Callable[[Json], bool]) -> bytes | None:
    """The message without some of its blocks; nothing where none is left. A message that is one text stays."""
    text = text_of(raw)
    content = member_at(text, 0, "content")
    spans = [] if content is None else array_of(text, content.value)
    if not spans:
        return raw
    gone = [goes(span.value) for span in spans]
    if all(gone):
        return None
    if not any(gone):
        return raw
    return spliced(text, taken_out([(span.start, span.end) for span in spans], gone)).encode()


class _Seen(NamedTuple):
    """A message, looked at once: a prompt holds hundreds, and nearly all of them stay as they are."""

    raw: bytes
    role: str
    kinds: tuple[_Kind, ...]


def _look(raw: bytes) -> _Seen:
    fields = fields_of(raw)
    return _Seen(raw, stated_role(fields), tuple(map(_kind, blocks_of(fields))))


def _kind(block: Json) -> _Kind:
    kind = object_in(block).get("type")
    if kind == "tool_result":
        return "result"
    if kind in THINKING:
        return "thinking"
    return "blank" if is_blank(block) else "other"


def _turns_settled(messages: Iterable[bytes]) -> list[bytes]:
    spoken = [kept for raw in messages if (kept := _without(_look(raw), "blank")) is not None]
    led_on: list[_Seen] = []
    for role, turn in _by_role(spoken):
        led_on += _without_last_thinking(turn) if role == "assistant" else turn
    found: list[_Seen] = []
    for role, turn in _by_role(led_on):
        found += _results_first(turn) if role == "user" else turn
    return [seen.raw for seen in found]


def _by_role(messages: Sequence[_Seen]) -> list[tuple[str, list[_Seen]]]:
    return [(role, list(turn)) for role, turn in groupby(messages, key=lambda seen: seen.role)]


def _without(seen: _Seen, *kinds: _Kind) -> _Seen | None:
    """The message without blocks of these kinds; nothing where none is left."""
    if all(kind in kinds for kind in seen.kinds):
        return None
    if not any(kind in kinds for kind in seen.kinds):
        return seen
    raw = without_blocks(seen.raw, lambda block: _kind(block) in kinds)
    return None if raw is None else _look(raw)


def _without_last_thinking(turn: list[_Seen]) -> list[_Seen]:
    kept = list(turn)
    while kept and kept[-1].kinds[-1] == "thinking":
        last = kept.pop()
        spoken = [place for place, kind in enumerate(last.kinds) if kind != "thinking"]
        raw = _first_blocks(last.raw, spoken[-1] + 1) if spoken else None
        if raw is not None:
            kept.append(_look(raw))
    return kept


def _first_blocks(raw: bytes, many: int) -> bytes | None:
    places = count()
    return without_blocks(raw, lambda _: next(places) >= many)


def _results_first(turn: list[_Seen]) -> list[_Seen]:
    order = [kind == "result" for seen in turn for kind in seen.kinds]
    if order == sorted(order, reverse=True):
        return turn
    results = [_without(seen, "thinking", "blank", "other") for seen in turn]
    words = [_without(seen, "result") for seen in turn]
    return [seen for seen in (*results, *words) if seen is not None]


def _reasoning_settled(items: Iterable[bytes]) -> list[bytes]:
    found: list[bytes] = []
    reasoning: list[bytes] = []
    for raw in items:
        fields = fields_of(raw)
        if fields.get("type") == "reasoning":
            reasoning.append(raw)
            continue
        role = role_of(fields)
        if role == "assistant":
            found += reasoning
        if role != "tool":  # a result that came between reasoning and its call goes before both
            reasoning = []
        found.append(raw)
    return found


__all__ = [
    "cache_marks",
    "newest_marks",
    "only_answers",
    "render_arrangement",
    "result_message",
    "text_message",
    "with_cache_mark",
    "with_results",
    "without_cache_marks",
    "without_thinking",
    "without_thinking_after",
]

OPENING: Final = "[The conversation so far continues below.]"
_REASONS: Final[Mapping[str, str]] = {
    "interrupted": "[No result: the call was interrupted.]",
    "not arrived yet": "[No result yet: the call is still running.]",
}


def text_message(role: Literal["user", "assistant", "system"], text: str, wire: str) -> bytes:
    """A message that only says something."""
    if wire == ANTHROPIC and role == "system":
        role = "user"  # the system's word has a place of its own there, before all messages
    return f'{{"role": "{role}", "content": {quoted(text)}}}'.encode()


def result_message(call_id: str, name: str, text: str, wire: str, *, kind: str = "function_call") -> bytes:
    """A result for a call that has none. In Responses, the result is of the call's own kind."""
    call, words = quoted(call_id), quoted(text)
    if wire == CHAT:
        named = f', "name": {quoted(name)}' if name else ""
        return f'{{"role": "tool", "tool_call_id": {call}{named}, "content": {words}}}'.encode()
    if wire == ANTHROPIC:
        block = f'{{"type": "tool_result", "tool_use_id": {call}, "content": {words}}}'
        return f'{{"role": "user", "content": [{block}]}}'.encode()
    if kind == "shell_call":
        words = f'[{{"stdout": "", "stderr": {words}, "outcome": {{"type": "timeout"}}}}]'
    state = ', "status": "failed"' if kind == "apply_patch_call" else ""
    tie = "id" if kind == "local_shell_call" else "call_id"
    return f'{{"type": "{kind}_output", "{tie}": {call}, "output": {words}{state}}}'.encode()


def with_results(raw: bytes, wire: str, texts: Mapping[str, str]) -> bytes:
    """The message with these texts in the place of what the tools gave back. Everything else stays."""
    text = text_of(raw)
    fields = fields_of(raw)
    if wire == ANTHROPIC:
        edits = [
            put_member(text, span.start, "content", quoted(texts[call]))
            for span in _blocks(text)
            if (call := _answer_of(span.value)) is not None and call in texts
        ]
        return spliced(text, edits).encode()
    call = next(iter(ties(fields, wire).answers), None)
    if call is None or call not in texts:
        return raw
    if wire == CHAT:
        return spliced(text, [put_member(text, 0, "content", quoted(texts[call]))]).encode()
    source = _output(text, member_at(text, 0, "output"), text_in(fields.get("type")), texts[call])
    return raw if source is None else spliced(text, [put_member(text, 0, "output", source)]).encode()


def only_answers(raw: bytes, wire: str, keep: Collection[str], *, rest: bool = True) -> bytes | None:
    """The message with one result for each of these calls and none for others; nothing where nothing is left.

    What is not a result stays, unless only the results are asked for.
    """
    if wire != ANTHROPIC:
        answers = ties(fields_of(raw), wire).answers
        return raw if (rest and not answers) or (answers and answers[0] in keep) else None
    wanted = set(keep)

    def goes(block: Json) -> bool:
        call = _answer_of(block)
        if call is None:
            return not rest
        if call not in wanted:
            return True
        wanted.remove(call)
        return False

    return without_blocks(raw, goes)


def without_thinking(raw: bytes, wire: str) -> bytes | None:
    """The message without thinking that is bound to what stood before it; nothing where nothing is left.

    Only Anthropic binds it. In Chat it has to come back as it went; in Responses it is an item of its own.
    """
    if wire != ANTHROPIC or b"thinking" not in raw:
        return raw
    return without_blocks(raw, lambda block: object_in(block).get("type") in THINKING)


def without_thinking_after(messages: list[bytes], edited: int, wire: str) -> list[bytes]:
    """The messages without thinking from the first edited one on, where thinking is bound to what stands before it.

    The latest assistant turn keeps its own while its results are all that follows: there a provider wants it unchanged.
    """
    if wire != ANTHROPIC:
        return list(messages)
    end = _open_loop(messages)
    kept = messages[:edited]
    for place, raw in enumerate(messages[edited:], edited):
        stripped = raw if place >= end else without_thinking(raw, wire)
        if stripped is not None:
            kept.append(stripped)
    return kept


def render_arrangement(
    arrangement: Arrangement,
    contents: Mapping[int, bytes | None],
    wire: str,
    *,
    opening: str = OPENING,
    answer: Callable[[SyntheticResult], str] = lambda answer: _REASONS[answer.reason],
) -> list[bytes]:
    """The messages of an arrangement, as a provider accepts them. An entry whose content is `None` is passed over."""
    found: list[bytes] = []
    for piece in arrangement.pieces:
        raw = _rendered(piece, contents[piece.seq], wire, answer)
        if raw is not None:
            found.append(raw)
    messages = settled(found, wire)
    # What the user said first may have been nothing, and is gone then.
    needs = arrangement.needs_opening or (wire == ANTHROPIC and bool(messages))
    if needs and not (messages and fields_of(messages[0]).get("role") == "user"):
        messages.insert(0, text_message("user", opening, wire))
    return messages


def _rendered(piece: Piece, raw: bytes | None, wire: str, answer: Callable[[SyntheticResult], str]) -> bytes | None:
    if raw is None:
        return None
    match piece:
        case Keep():
            return raw
        case KeepSome():
            return only_answers(raw, wire, piece.answers, rest=piece.rest)
        case SyntheticResult():
            fields = fields_of(raw)
            if piece.call_id not in ties(fields, wire).calls:
                return None  # the provider runs it, and answers it
            kind = text_in(fields.get("type"))
            return result_message(piece.call_id, piece.tool, answer(piece), wire, kind=kind)


def _open_loop(messages: list[bytes]) -> int:
    """Where the latest assistant turn begins, if nothing but its results follows; else the end."""
    at = len(messages)
    while at and ties(fields_of(messages[at - 1]), ANTHROPIC).answers:
        at -= 1
    if at == len(messages):
        return at
    while at and fields_of(messages[at - 1]).get("role") == "assistant":
        at -= 1
    return at


def _blocks(text: str) -> list[JsonSpan]:
    content = member_at(text, 0, "content")
    return [] if content is None else array_of(text, content.value)


def _answer_of(block: Json) -> str | None:
    held = object_in(block)
    return text_in(held.get("tool_use_id")) if held.get("type") == "tool_result" else None


def _output(text: str, old: Member | None, kind: str, words: str) -> str | None:
    """The new source of an item's output; nothing where a text cannot stand for it."""
    if old is not None and isinstance(old.value.value, dict):
        return None  # a screenshot
    if kind != "shell_call_output":
        return quoted(words)
    outcome = '{"type": "exit", "exit_code": 0}'
    for span in array_of(text, old.value) if old else []:
        found = member_at(text, span.start, "outcome") if isinstance(span.value, dict) else None
        if found is not None:
            outcome = text[found.value.start : found.value.end]
    return f'[{{"stdout": {quoted(words)}, "stderr": "", "outcome": {outcome}}}]'
