"""Strategies for realistic conversations, with late, duplicate, missing and orphaned results, in any wire format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count

from hypothesis import strategies as st

from recto.context.window.units import WindowMessage
from recto.formats import format_named
from recto.formats.arrangement import Arrangement, arrange
from recto.formats.message import fields_of
from recto.formats.prompt_layout import render_arrangement

CHAT, RESPONSES, ANTHROPIC, GEMINI = WIRES = ("openai.chat", "openai.responses", "anthropic.messages", "google.gemini")
ADJACENCY = {CHAT: "strict", RESPONSES: "anywhere", ANTHROPIC: "merging", GEMINI: "merging"}

# Few ids, so that results match a call once, twice or not at all; real providers also reuse ids in later turns.
IDS = st.sampled_from([f"c{number}" for number in range(6)])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("user")),
        st.tuples(st.just("system")),
        st.tuples(
            st.just("assistant"),
            st.lists(IDS, max_size=4, unique=True),
            st.sampled_from(["", "thinks", "speaks", "thinks and speaks", "ends thinking"]),
        ),
        st.tuples(st.just("results"), st.lists(IDS, min_size=1, max_size=4), st.sampled_from(["", "before", "after"])),
    ),
    max_size=24,
)


@st.composite
def fine_conversations(draw):
    """Conversations in which every call is followed by its result, in any order, in one message or several."""
    events = []
    for _ in range(draw(st.integers(1, 4))):
        events.append(("user",))
        for _ in range(draw(st.integers(0, 3))):
            calls = draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
            events.append(("assistant", calls, draw(st.sampled_from(["", "thinks", "thinks and speaks"]))))
            answers = draw(st.permutations(calls))
            cut = draw(st.integers(0, len(calls) - 1))
            events += [("results", answers[:cut], "")] if cut else []
            events.append(("results", answers[cut:], draw(st.sampled_from(["", "after"]))))
        events += draw(st.sampled_from([[], [("assistant", [], "speaks")]]))
    return events


def written(events: Sequence[tuple], wire: str) -> list[bytes]:
    """Returns the events as messages of the format. Each text is in exactly one message."""
    numbers = count()
    write = {CHAT: _chat, RESPONSES: _items, ANTHROPIC: _anthropic, GEMINI: _gemini}[wire]
    return [json.dumps(fields).encode() for event in events for fields in write(event, numbers)]


def lines_of(messages: Sequence[bytes], wire: str) -> list[WindowMessage]:
    lines = []
    for seq, raw in enumerate(messages, 1):
        fields = fields_of(raw)
        calls, answers = format_named(wire).validation.tool_call_ids(fields)
        role = format_named(wire).messages.role_of(fields)
        lines.append(
            WindowMessage(seq=seq, id=str(seq), role=role, tokens=1, calls=calls, answers=answers, tools=("look",))
        )
    return lines


def rendered(messages: Sequence[bytes], wire: str) -> tuple[list[bytes], Arrangement]:
    arrangement = arrange(lines_of(messages, wire), ADJACENCY[wire])
    return render_arrangement(arrangement, dict(enumerate(messages, 1)), wire), arrangement


def _chat(event, numbers):
    match event:
        case ("assistant", calls, manner):
            message = {"role": "assistant", "content": f"says-{next(numbers)}." if "speaks" in manner else None}
            if "think" in manner:
                message["reasoning_content"] = "hm"
            if calls:
                message["tool_calls"] = [
                    {"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call in calls
                ]
            yield message
        case ("results", calls, _):
            for call in calls:
                yield {"role": "tool", "tool_call_id": call, "content": f"gave-{next(numbers)}."}
        case (role,):
            yield {"role": role, "content": f"{role}-{next(numbers)}."}


def _items(event, numbers):
    match event:
        case ("assistant", calls, manner):
            if manner.startswith("thinks"):
                yield {"type": "reasoning", "id": f"rs_{next(numbers)}", "summary": []}
            if "speaks" in manner:
                text = {"type": "output_text", "text": f"says-{next(numbers)}."}
                yield {"type": "message", "role": "assistant", "content": [text]}
            for call in calls:
                yield {"type": "function_call", "call_id": call, "name": "look", "arguments": "{}"}
            if manner == "ends thinking":
                yield {"type": "reasoning", "id": f"rs_{next(numbers)}", "summary": []}
        case ("results", calls, _):
            for call in calls:
                yield {"type": "function_call_output", "call_id": call, "output": f"gave-{next(numbers)}."}
        case (role,):
            yield {"role": role, "content": f"{role}-{next(numbers)}."}


def _anthropic(event, numbers):
    match event:
        case ("assistant", calls, manner):
            thinking = {"type": "thinking", "thinking": "hm", "signature": "x"}
            blocks = [thinking] if manner.startswith("thinks") else []
            if "speaks" in manner:
                blocks.append({"type": "text", "text": f"says-{next(numbers)}."})
            blocks += [{"type": "tool_use", "id": call, "name": "look", "input": {}} for call in calls]
            blocks += [thinking] if manner == "ends thinking" else []
            yield {"role": "assistant", "content": blocks}
        case ("results", calls, words):
            blocks = [
                {"type": "tool_result", "tool_use_id": call, "content": f"gave-{next(numbers)}."} for call in calls
            ]
            text = [{"type": "text", "text": f"user-{next(numbers)}."}]
            yield {"role": "user", "content": {"": blocks, "before": text + blocks, "after": blocks + text}[words]}
        case (role,):
            yield {"role": role, "content": f"{role}-{next(numbers)}."}


def _gemini(event, numbers):
    match event:
        case ("assistant", calls, manner):
            thought = {"text": "hm", "thought": True}
            parts = [thought] if manner.startswith("thinks") else []
            if "speaks" in manner:
                parts.append({"text": f"says-{next(numbers)}."})
            for place, call in enumerate(calls):
                signature = {} if place else {"thoughtSignature": "c2lnbmVk"}
                parts.append({"functionCall": {"id": call, "name": "look", "args": {}}, **signature})
            parts += [thought] if manner == "ends thinking" else []
            yield {"role": "model", "parts": parts}
        case ("results", calls, words):
            parts = [
                {"functionResponse": {"id": call, "name": "look", "response": {"output": f"gave-{next(numbers)}."}}}
                for call in calls
            ]
            text = [{"text": f"user-{next(numbers)}."}]
            yield {"role": "user", "parts": {"": parts, "before": text + parts, "after": parts + text}[words]}
        case ("system",):  # as a message that all other formats share
            yield {"role": "system", "content": f"system-{next(numbers)}."}
        case (role,):
            yield {"role": role, "parts": [{"text": f"{role}-{next(numbers)}."}]}
