"""Writes docs/prompts.md: three conversations, each whole and as the prompt that Recto builds of it.

    python tools/make_prompts.py          write the page
    python tools/make_prompts.py --check  fail if the page is not current

The conversations are made up here. Long texts are cut in the page, never in the prompt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recto

PAGE = Path(__file__).parents[1] / "docs" / "prompts.md"
SMALL = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}
_MAX_CHARS, _HEAD, _TAIL = 150, 5, 5
"""Characters of a message in the page; messages at the beginning and at the end of a conversation that it shows."""
_PARTS = ("parser", "reader", "writer", "cache", "index", "report", "config", "client", "server", "queue")

Chat = dict[str, Any]


def tool_call_agent() -> Iterator[Chat]:
    """A coding agent with tool calls."""
    yield {"role": "system", "content": "You are a coding agent. Use the tools."}
    yield {"role": "user", "content": "The export in src/export/report.py drops the last row. Find out why and fix it."}
    yield {"role": "user", "content": "Never change anything under src/vendor/ without my approval."}
    for number, part in enumerate(_PARTS * 9):
        path = f"src/export/{part}_{number // 10}.py"
        arguments = json.dumps({"path": path} if number % 2 else {"command": f"grep -n last_row {path}"})
        name = "read_file" if number % 2 else "run"
        call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        yield {"role": "assistant", "content": f"I look at {path}.", "tool_calls": [call]}
        source = "\n".join(f"{line}: total = total + rows[{line}]  # {part}" for line in range(1, 40))
        yield {"role": "tool", "tool_call_id": f"call_{number}", "content": source}
    yield {"role": "assistant", "content": "The loop in `write_rows` leaves the last row out. Shall I change it?"}
    yield {"role": "user", "content": "Yes, and run the tests."}


def text_agent() -> Iterator[Chat]:
    """An agent that writes commands as text."""
    yield {"role": "system", "content": "Answer with one bash block. Its output comes back as the next message."}
    yield {"role": "user", "content": "Make `tests/test_clock.py` pass. Do not change the tests."}
    for part in _PARTS * 9:
        yield {"role": "assistant", "content": f"Next is {part}.\n\n```bash\npytest tests/test_{part}.py -q\n```"}
        lines = "\n".join(f"tests/test_{part}.py::test_case_{line} PASSED" for line in range(1, 45))
        status = 1 if part == "cache" else 0
        failed = "\nE   KeyError: 'time_zone' in src/clock/zones.py" if status else ""
        output = f"<returncode>{status}</returncode>\n<output>\n{lines}{failed}\n</output>"
        yield {"role": "user", "content": output}


def chat() -> Iterator[Chat]:
    """A conversation without tools."""
    yield {"role": "system", "content": "You are a travel assistant."}
    yield {"role": "user", "content": "Plan two weeks in Portugal in May for two people."}
    yield {"role": "assistant", "content": "Gladly. What matters to you?"}
    yield {
        "role": "user",
        "content": "We never fly: trains only. The budget is 2,400 euros. I am allergic to nuts.",
    }
    places = ("Porto", "Braga", "Aveiro", "Coimbra", "Tomar", "Évora", "Beja", "Faro", "Lagos", "Sintra")
    for place in places:
        yield {"role": "assistant", "content": f"{place}: " + "a walk through the old town and a good market. " * 50}
        yield {"role": "user", "content": f"What else is there in {place}?"}
        yield {"role": "assistant", "content": f"In {place} there is also " + "a museum with a quiet garden. " * 35}
        yield {"role": "user", "content": "And the next place?"}
    yield {"role": "assistant", "content": "That was the last one. Shall I book the way home?"}
    yield {"role": "user", "content": "Yes, the cheapest way."}


def page() -> str:
    """The text of the page."""
    lines = [
        "# Three prompts, before and after",
        "",
        "Written by `python tools/make_prompts.py`; the conversations are made up. Each is given to a session whose",
        "model has a window of 8,000 tokens, with the default settings, and a prompt is built before each answer, as",
        "an agent does it. This page cuts long messages in their middle (`[…]`); the prompt has them whole. Tool",
        "results and outputs that Recto trimmed are one line with a pointer (`recto://…`).",
    ]
    for title, conversation in (
        ("An agent with tool calls", tool_call_agent),
        ("An agent that writes commands as text", text_agent),
        ("A conversation", chat),
    ):
        messages = list(conversation())
        with recto.open("memory:", model="gpt-4o", models=SMALL, recall={"embedder": {"use": "none"}}) as session:
            for message in messages:
                if message["role"] == "assistant":
                    session.prompt()
                session.append(message)
            prompt = session.prompt()
            whole = session.count(messages)
        lines += ["", f"## {title}", "", f"Before: {len(messages)} messages, {whole:,} tokens.", ""]
        lines += _excerpt(messages)
        lines += ["", f"After: {len(prompt.messages)} messages, {prompt.tokens:,} tokens.", ""]
        lines += _excerpt(prompt.messages)
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def _excerpt(messages: list[Chat]) -> list[str]:
    shown = [_line(message) for message in messages]
    if len(shown) > _HEAD + _TAIL:
        left_out = len(shown) - _HEAD - _TAIL
        shown = [*shown[:_HEAD], f"        ({left_out} more messages)", *shown[-_TAIL:]]
    return ["~~~text", *shown, "~~~"]


def _line(message: Chat) -> str:
    calls = [f"{call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls", ())]
    text = "\n".join([*filter(None, [message["content"]]), *calls])
    is_own = text.startswith("[") or "recto://" in text  # what Recto writes is shown whole
    limit = _MAX_CHARS * (40 if is_own else 1)
    if len(text) > limit:
        text = f"{text[: limit * 2 // 3]} […] {text[-limit // 3 :]}"
    return f"{message['role'] + ':':<11}" + text.replace("\n", "\n           ")


if __name__ == "__main__":
    written = page()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != written:
            sys.exit("docs/prompts.md is not current: run python tools/make_prompts.py")
    else:
        PAGE.write_text(written, encoding="utf-8")
