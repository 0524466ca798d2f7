"""What every adapter is held to: prompts that are valid and fit, and a transcript that holds each message once."""

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
"""What the tests give to `recto.follow`: a window that a conversation outgrows soon."""
DOCS = Path(__file__).parent.parent.parent / "docs" / "adapters"
_METER = make_meter(Settings(model=MODEL))


def sound(prompts: Sequence[Sequence[dict[str, Any]]], tools: Sequence[Any] = TOOLS, window: int = WINDOW) -> None:
    """Every prompt is valid and fits."""
    assert prompts
    for prompt in prompts:
        raws = [json.dumps(message).encode() for message in prompt]
        assert problems(raws, CHAT) == []
        assert _METER.prompt([read(raw, CHAT) for raw in raws], json.dumps(list(tools)) if tools else "") <= window


def closes_itself(make: Callable[..., Any], path: Path, wire: str = DEFAULT_FORMAT.name) -> None:
    """An adapter closes what it opened when its block ends, and leaves open what it shares."""
    with make(store=path, **NAMES) as adapter:
        conversations = adapter.conversations
        conversations.of("1").fitted([{"role": "user", "content": "Hello."}])
    with pytest.raises(StoreError):
        conversations.of("2").fitted([{"role": "user", "content": "Hello."}])
    with recto.follow(path, wire=wire, **NAMES) as shared:
        with make(conversations=shared):
            pass
        assert len(spoken(shared.of("1").session)) == 1


def spoken(session: Session) -> list[dict[str, Any]]:
    """The messages of a session, in order."""
    return [json.loads(entry.content) for entry in session.read() if entry.kind == MESSAGE]


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def fence(page: str, which: str) -> str:
    """The example `which` of a page: what stands in its fence ```python before, or after."""
    found = re.findall(rf"^```python {which}\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert len(found) == 1
    return str(found[0])


@dataclass
class Script:
    """A model that looks up two shelves at once, then one more, and is done; questions it just answers."""

    prompts: list[list[dict[str, Any]]] = field(default_factory=list)
    shelves: list[str] = field(default_factory=list)
    """Those that it looked up, in order."""
    steps: int = 0

    def reply(self, prompt: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The next answer, as a Chat message."""
        self.prompts.append(list(prompt))
        said = [text_of(message) for message in prompt if message["role"] == "user"]
        if said and re.search(r"\?$", said[-1], re.MULTILINE):  # what is quoted may follow the question
            return {"role": "assistant", "content": f"Asked for: {said[-1]}"}
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


def knows(prompt: Sequence[dict[str, Any]], shelf: str) -> bool:
    """Whether the fact of a shelf stands in a prompt."""
    return batch_of(shelf) in json.dumps(list(prompt))
