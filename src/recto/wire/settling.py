"""The last touches on a list of messages, which only someone who sees their blocks can make.

Calls and results are in order already. What is left are rules about the inside of messages: nothing empty, results
before words, thinking and reasoning before what they led to. Where the rules hold, nothing is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count, groupby
from typing import Literal, NamedTuple

from recto.core.json_text import Json, text_of
from recto.wire.names import ANTHROPIC, CHAT
from recto.wire.openai_responses import role_of
from recto.wire.parts import fields_of, object_in, stated_role
from recto.wire.splicing import array_of, member_at, spliced, taken_out
from recto.wire.validity import THINKING, blocks_of, is_blank, is_empty

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
