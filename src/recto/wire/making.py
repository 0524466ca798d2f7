"""Messages that Recto makes itself, and changes inside the messages of others.

A change touches what it is about and nothing else: every byte around it stays. Whether a change is wanted is decided
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

from recto.core.json_text import Json, Member, Span, text_of
from recto.core.prompt import Answer, Arrangement, Keep, KeepSome, Piece
from recto.wire.cache_marks import cache_marks, newest_marks, with_cache_mark, without_cache_marks
from recto.wire.names import ANTHROPIC, CHAT
from recto.wire.parts import fields_of, object_in, text_in
from recto.wire.settling import settled, without_blocks
from recto.wire.splicing import array_of, member_at, put_member, quoted, spliced
from recto.wire.validity import THINKING, ties

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
    answer: Callable[[Answer], str] = lambda answer: _REASONS[answer.reason],
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


def _rendered(piece: Piece, raw: bytes | None, wire: str, answer: Callable[[Answer], str]) -> bytes | None:
    if raw is None:
        return None
    match piece:
        case Keep():
            return raw
        case KeepSome():
            return only_answers(raw, wire, piece.answers, rest=piece.rest)
        case Answer():
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


def _blocks(text: str) -> list[Span]:
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
