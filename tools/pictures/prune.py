"""Before and after a prune: a small session that is carried out here, with the tokens that were counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import recto
from pictures.drawing import BY_RULE, Picture, shortened

_WINDOW: Final = 1_580
"""Small enough for the last question to pass the ceiling, and none before it."""
_COLOURS: Final = {"system": "system", "user": "history", "assistant": "tools", "tool": "results"}
_ROW, _TOP, _WIDE = 25, 134, 412
_LEFT, _RIGHT = 32, 516


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What is drawn: the messages before, and which of them stood in the prompt that was sent."""

    messages: Mapping[int, Mapping[str, Any]]
    tokens: Mapping[int, int]
    kept: frozenset[int]
    before: int
    after: int
    room: int
    freed: int
    marker: str
    recalled: tuple[int, str, int]
    """The entry that came back, its text, and what quoting it cost."""


def carried_out() -> Pruned:
    """Goes through the session; its last question makes the oldest exchanges leave, and brings one message back."""
    small = {"gpt-4o": {"window": _WINDOW, "max_input": _WINDOW}}
    spare = {
        "min_recent_messages": 4,
        "ceiling_percent": 92,
        "floor_percent": 70,
        "shorten_outputs": False,
        "record_percent": 0,
        "look_ahead": False,
    }
    with recto.open("memory:", model="gpt-4o", models=small, window=spare, recall=BY_RULE) as session:
        messages = {}
        for message in _story():
            if message["role"] == "assistant":
                session.prompt()
            messages[session.append(message).seq] = message
        state = session.window.state
        tokens = {seq: state.cost(seq) for seq in state.messages}
        prompt = session.prompt()
        [decided] = (json.loads(entry.content) for entry in prompt.decisions)
        [hit] = prompt.recalled
        told = next(str(one["content"]) for one in prompt.messages if "are not shown here" in str(one["content"]))
        return Pruned(
            messages=messages,
            tokens=tokens,
            kept=frozenset(session.window.state.messages),
            before=decided["tokens_before"],
            after=prompt.tokens,
            room=session.window.budget.input_budget,
            freed=decided["frees"],
            marker=told,
            recalled=(hit.seq, hit.text, session.report().recalled_tokens),
        )


def drawn() -> Picture:
    """The picture."""
    run = carried_out()
    gone = [seq for seq in run.messages if seq not in run.kept]
    picture = Picture(
        name="prune",
        title="Before and after a prune",
        description=(
            f"Two lists of the same {len(run.messages)} messages. Before, they take {run.before:,} of {run.room:,} "
            f"tokens. After, {len(gone)} of them have left, a line says so in their place, one of them is quoted "
            f"before the question that needs it, and the prompt has {run.after:,} tokens."
        ),
        width=960,
        height=_TOP + _ROW * (len(run.messages) + 2) + 64,
    )
    picture.words(_LEFT, 40, "What was said", size=19, bold=True)
    picture.words(_RIGHT, 40, "What the model is sent", size=19, bold=True)
    _gauge(picture, _LEFT, "before", run.before, run.room)
    _gauge(picture, _RIGHT, "after", run.after, run.room)
    most = max(run.tokens.values())
    for place, (seq, message) in enumerate(run.messages.items()):
        y = _TOP + place * _ROW
        _row(picture, _LEFT, y, seq, message, run.tokens[seq], most)
        if seq in run.kept:
            _row(picture, _RIGHT, y, seq, message, run.tokens[seq], most)
            _kept(picture, y, _why(place, len(run.messages)))
    _hole(picture, run, gone)
    _came_back(picture, run)
    y = picture.height - 28
    for x, role in zip((32, 132, 210, 322), _COLOURS, strict=True):
        picture.box(x, y - 10, 12, 12, _COLOURS[role])
        picture.words(x + 18, y, {"system": "system", "tool": "tool result"}.get(role, role), size=12, fill="muted")
    picture.words(928, y, "numbers: entry of the transcript, tokens", size=12, fill="muted", at="end")
    return picture


def _gauge(picture: Picture, x: int, when: str, tokens: int, room: int) -> None:
    picture.words(x, 68, f"{when}: {tokens:,} of {room:,} tokens", size=13, fill="muted")
    picture.box(x, 80, _WIDE, 14, "free")
    share = tokens / room
    picture.box(x, 80, _WIDE * share, 14, "orange" if share > 0.92 else "green")
    for name, at in (("floor 70 %", 0.70), ("ceiling 92 %", 0.92)):
        picture.line((x + _WIDE * at, 76), (x + _WIDE * at, 100), edge="ink")
        picture.words(x + _WIDE * at, 115, name, size=11, fill="muted", at="middle")


def _why(place: int, messages: int) -> str:
    return {0: "system", 1: "the task", messages - 1: "in flight"}.get(place, "")


def _kept(picture: Picture, y: int, why: str) -> None:
    if why:
        picture.words(_LEFT + _WIDE + 8, y + 15, why, size=11, fill="muted")
    else:
        picture.line((_LEFT + _WIDE + 8, y + 11), (_RIGHT - 8, y + 11), edge="line")


def _row(picture: Picture, x: int, y: int, seq: int, message: Mapping[str, Any], tokens: int, most: int) -> None:
    colour = _COLOURS[str(message["role"])]
    picture.words(x + 18, y + 16, str(seq), size=11, fill="muted", at="end", mono=True)
    picture.box(x + 26, y + 1, 5, 20, colour)
    mono = message["role"] == "tool" or message["content"] is None
    said = shortened(_said(message), 282, 12, mono=mono)
    picture.words(x + 40, y + 16, said, size=12, mono=mono)
    picture.box(x + 326, y + 5, max(2.0, 50 * tokens / most), 12, colour)
    picture.words(x + _WIDE, y + 16, f"{tokens:,}", size=11, fill="muted", at="end", mono=True)


def _hole(picture: Picture, run: Pruned, gone: list[int]) -> None:
    places = list(run.messages)
    top, bottom = _TOP + places.index(gone[0]) * _ROW, _TOP + (places.index(gone[-1]) + 1) * _ROW
    picture.box(_RIGHT, top + 1, _WIDE, bottom - top - 4, "sunk", edge="edge", dashed=True)
    middle = (top + bottom) / 2
    picture.words(_RIGHT + 16, middle - 36, f"{len(gone)} messages left: {run.freed:,} tokens", size=14, bold=True)
    picture.words(_RIGHT + 16, middle - 15, "Indexed before they left; in the transcript for ever.", fill="muted")
    picture.words(_RIGHT + 16, middle + 14, "In their place the model reads:", size=12, fill="muted")
    first, _, rest = run.marker.partition("not shown")
    picture.words(
        _RIGHT + 16, middle + 34, shortened(first.strip(), 384, 11, mono=True), size=11, fill="marker", mono=True
    )
    rest = shortened("not shown" + rest, 384, 11, mono=True)
    picture.words(_RIGHT + 16, middle + 50, rest, size=11, fill="marker", mono=True)


def _came_back(picture: Picture, run: Pruned) -> None:
    seq, text, tokens = run.recalled
    y = _TOP + len(run.messages) * _ROW + 2
    picture.box(_RIGHT, y, _WIDE, 46, "sheet", edge="recalled")
    picture.words(
        _RIGHT + 14, y + 19, f"recalled for this question, from entry {seq}", size=12, fill="recalled", bold=True
    )
    picture.words(_RIGHT + _WIDE - 10, y + 19, f"{tokens:,}", size=11, fill="muted", at="end", mono=True)
    picture.words(_RIGHT + 14, y + 36, shortened("> " + text, 420, 12), size=12)
    source = _TOP + list(run.messages).index(seq) * _ROW + 11
    picture.curve((_LEFT + _WIDE + 8, source), (_RIGHT, y + 23), edge="recalled")


def _said(message: Mapping[str, Any]) -> str:
    if message["content"] is not None:
        return str(message["content"])
    asked = message["tool_calls"][0]["function"]
    return f"{asked['name']}({', '.join(str(value) for value in json.loads(asked['arguments']).values())})"


def _story() -> list[dict[str, Any]]:
    code = "\n".join(
        f"def line_{n}(amount: int, rate: int = {n + 3}) -> int:\n    return amount * rate // {100 + n}"
        for n in range(8)
    )
    tests = "\n".join(f"tests/test_invoice.py::test_due_date_{n} PASSED" for n in range(12))
    log = "\n".join(f"2026-03-{n + 1:02} 06:00 sent {40 + n} invoices, {n % 3} refused" for n in range(14))
    failed = "\nFAILED tests/test_invoice.py::test_month_end - assert 31 == 30"
    change = "take the last day from the calendar"
    return [
        {"role": "system", "content": "You keep the billing of a small firm in order. Amounts are in cents."},
        {"role": "user", "content": "Look after our billing today, as things come up. Never touch migrations/."},
        {"role": "assistant", "content": "I will. What comes first?"},
        {"role": "user", "content": "Marlow & Sons want their invoices on the 5th, not on the 1st."},
        {"role": "assistant", "content": "Noted: the 5th for Marlow & Sons."},
        {"role": "user", "content": "Why does the month-end test fail?"},
        *_work("c1", "read_file", {"path": "billing/invoice.py"}, code),
        *_work("c2", "run", {"command": "pytest tests/test_invoice.py"}, tests + failed),
        {"role": "assistant", "content": "It expects 30 days; the code always says 31."},
        {"role": "user", "content": "Did the invoices of March go out?"},
        *_work("c3", "read_file", {"path": "logs/march.log"}, log),
        {"role": "assistant", "content": "Yes, in fourteen runs; some addresses were refused."},
        {"role": "user", "content": "Mend the test now, please."},
        *_work("c4", "edit", {"path": "billing/invoice.py", "change": change}, "edited 1 file, 3 lines"),
        {"role": "assistant", "content": "Done: the last day comes from the calendar."},
        {"role": "user", "content": "On which day do the invoices for Marlow go out?"},
    ]


def _work(call: str, tool: str, given: Mapping[str, str], result: str) -> list[dict[str, Any]]:
    asked = {"id": call, "type": "function", "function": {"name": tool, "arguments": json.dumps(given)}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": call, "content": result},
    ]
