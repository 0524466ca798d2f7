"""Chat messages put together and taken apart, for frameworks whose messages are lists of blocks.

Nothing here knows a framework, and nothing is decided.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recto.engine.following import ChatMessage


@dataclass(slots=True, kw_only=True)
class Blocks:
    """What one message of a framework says, sorted into what Chat keeps apart."""

    role: str
    parts: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[ChatMessage] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)

    def text(self, text: str) -> None:
        """Something that is said."""
        if text:
            self.parts.append({"type": "text", "text": text})

    def media(self, mime: str, source: bytes | str, label: str = "") -> None:
        """A picture or a file: its bytes, or where it lies."""
        where = source if isinstance(source, str) else f"data:{mime};base64,{base64.b64encode(source).decode()}"
        if mime.startswith("image/"):
            self.parts.append({"type": "image_url", "image_url": {"url": where}})
        else:
            self.parts.append({"type": "file", "file": {"filename": label or mime, "file_data": where}})

    def call(self, call_id: str, name: str, arguments: object) -> None:
        """A tool that is called."""
        given = arguments if isinstance(arguments, str) else as_text(arguments or {})
        self.calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": given}})

    def result(self, call_id: str, name: str, content: object) -> None:
        """What a tool gave back."""
        named = {"name": name} if name else {}
        self.results.append({"role": "tool", "tool_call_id": call_id, **named, "content": as_text(content)})

    def messages(self) -> Iterator[ChatMessage]:
        """The same as Chat messages; results come before what else a user says, and behind what an assistant says."""
        spoken = self._spoken()
        yield from (*spoken, *self.results) if self.role == "assistant" else (*self.results, *spoken)

    def _spoken(self) -> list[ChatMessage]:
        if not self.parts and not self.calls:
            return []
        only = self.parts[0]["text"] if len(self.parts) == 1 and "text" in self.parts[0] else None
        message: ChatMessage = {"role": self.role, "content": only or self.parts or None}
        if self.thinking:
            message["reasoning_content"] = "\n".join(self.thinking)
        return [message | ({"tool_calls": self.calls} if self.calls else {})]


def as_text(value: object) -> str:
    """A text as it is; anything else as JSON, which is the same each time."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def text_in(message: Mapping[str, Any]) -> str:
    """What a Chat message says in words."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")


def calls_in(message: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The tools that a Chat message calls: id, name and arguments."""
    for call in message.get("tool_calls") or ():
        try:
            arguments = json.loads(call["function"]["arguments"] or "{}")
        except ValueError:
            arguments = None
        yield call["id"], call["function"]["name"], arguments if isinstance(arguments, dict) else {}


def schema(name: str, description: str, parameters: object) -> dict[str, Any]:
    """A tool as Chat tells it to a model."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
