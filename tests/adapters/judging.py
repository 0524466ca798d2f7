"""Checks for every adapter: prompts are valid and fit, and the transcript stores each message once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bench.adapters.scenario import TOOLS, batch_of

import recto
from recto.config import Settings
from recto.config.factory import make_meter
from recto.engine.session import Session
from recto.errors import StoreError
from recto.formats import DEFAULT_FORMAT, problems, read
from recto.formats.openai_chat import CHAT
from recto.transcript.entries import MESSAGE

MODEL = "gpt-4o"
WINDOW = 6_000
NAMES: dict[str, Any] = {"model": MODEL, "max_tokens": WINDOW, "recall": {"embedder": {"use": "none"}}}
"""Arguments for `recto.follow`: a window that a conversation soon outgrows."""
DOCS = Path(__file__).parent.parent.parent / "docs" / "adapters"
_METER = make_meter(Settings(model=MODEL))


def assert_prompts_fit(
    prompts: Sequence[Sequence[dict[str, Any]]], tools: Sequence[Any] = TOOLS, window: int = WINDOW
) -> None:
    """Asserts that every prompt is valid and fits the window."""
    assert prompts
    for prompt in prompts:
        raws = [json.dumps(message).encode() for message in prompt]
        assert problems(raws, CHAT) == []
        assert _METER.prompt([read(raw, CHAT) for raw in raws], json.dumps(list(tools)) if tools else "") <= window


def assert_closes_what_it_opened(make: Callable[..., Any], path: Path, wire: str = DEFAULT_FORMAT.name) -> None:
    """Asserts that an adapter closes the conversations it opened at the end of its block, and no shared ones."""
    with make(store=path, **NAMES) as adapter:
        conversations = adapter.conversations
        conversations.of("1").fitted([{"role": "user", "content": "Hello."}])
    with pytest.raises(StoreError):
        conversations.of("2").fitted([{"role": "user", "content": "Hello."}])
    with recto.follow(path, wire=wire, **NAMES) as shared:
        with make(conversations=shared):
            pass
        assert len(stored_messages(shared.of("1").session)) == 1


def stored_messages(session: Session) -> list[dict[str, Any]]:
    """The stored messages of a session, in order."""
    return [json.loads(entry.content) for entry in session.read() if entry.kind == MESSAGE]


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def page_example(page: str, which: str) -> str:
    """The example of a page in its fence ```python before, or ```python after."""
    found = re.findall(rf"^```python {which}\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert len(found) == 1
    return str(found[0])


@dataclass
class Script:
    """A model that looks up two shelves in parallel, then a third, then finishes; it answers questions directly."""

    prompts: list[list[dict[str, Any]]] = field(default_factory=list)
    shelves: list[str] = field(default_factory=list)
    """The shelves that it looked up, in order."""
    steps: int = 0

    def reply(self, prompt: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The next answer, as a Chat message."""
        self.prompts.append(list(prompt))
        questions = [text_of(message) for message in prompt if message["role"] == "user"]
        if questions and re.search(r"\?$", questions[-1], re.MULTILINE):  # recalled quotations may follow the question
            return {"role": "assistant", "content": f"Asked for: {questions[-1]}"}
        self.steps += 1
        wanted = (0, 2, 1)[self.steps % 3]
        if not wanted:
            return {"role": "assistant", "content": f"Done ({self.steps})."}
        new = [f"S-{len(self.shelves) + place}" for place in range(wanted)]
        self.shelves += new
        calls = [
            {
                "id": f"call_{shelf}",
                "type": "function",
                "function": {"name": "look_up", "arguments": json.dumps({"shelf": shelf})},
            }
            for shelf in new
        ]
        return {"role": "assistant", "content": "", "tool_calls": calls}


def question_about(shelf: str) -> str:
    return f"Which batch number does shelf {shelf} have?"


def has_fact(prompt: Sequence[dict[str, Any]], shelf: str) -> bool:
    """Whether a prompt contains the batch number of a shelf."""
    return batch_of(shelf) in json.dumps(list(prompt))
