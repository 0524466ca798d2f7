"""Helpers shared by the adapters: Chat messages built from blocks and parsed again, and histories that Recto stores.

This module knows no framework.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recto.adapters.conversations import Conversations, follow
from recto.engine.history_sync import ChatMessage, Following
from recto.errors import InputError, SettingsError
from recto.formats import read_reply
from recto.formats.response_objects import plain
from recto.transcript.entries import MESSAGE
from recto.transcript.session_keys import session_in


def answer_in(answer: object, wire: str) -> tuple[list[ChatMessage], Mapping[str, Any] | None]:
    """Return the messages of a call's result and its usage; empty if it is not a response, as for a stream or a
    text."""
    body = plain(answer)
    if not isinstance(body, dict):
        return [], None
    if body.get("role") == "assistant" and "usage" not in body:
        return [body], None
    try:
        reply = read_reply(json.dumps(body, default=str).encode(), wire)
    except InputError:
        return [], None
    usage = body.get("usage")
    return [json.loads(raw) for raw in reply.messages], usage if isinstance(usage, dict) else None


@dataclass(slots=True, kw_only=True)
class Blocks:
    """The content of one framework message, sorted into what Chat keeps separate."""

    role: str
    parts: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[ChatMessage] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)

    def text(self, text: str) -> None:
        """Add text."""
        if text:
            self.parts.append({"type": "text", "text": text})

    def media(self, mime: str, source: bytes | str, label: str = "") -> None:
        """Add an image or a file: its bytes, or its URL."""
        url = source if isinstance(source, str) else f"data:{mime};base64,{base64.b64encode(source).decode()}"
        if mime.startswith("image/"):
            self.parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            self.parts.append({"type": "file", "file": {"filename": label or mime, "file_data": url}})

    def call(self, call_id: str, name: str, arguments: object) -> None:
        """Add a tool call."""
        encoded = arguments if isinstance(arguments, str) else as_text(arguments or {})
        self.calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": encoded}})

    def result(self, call_id: str, name: str, content: object) -> None:
        """Add a tool result."""
        named = {"name": name} if name else {}
        self.results.append({"role": "tool", "tool_call_id": call_id, **named, "content": as_text(content)})

    def messages(self) -> Iterator[ChatMessage]:
        """Return Chat messages; results come before a user's text and after an assistant's."""
        message = self._text_message()
        yield from (*message, *self.results) if self.role == "assistant" else (*self.results, *message)

    def _text_message(self) -> list[ChatMessage]:
        if not self.parts and not self.calls:
            return []
        only = self.parts[0]["text"] if len(self.parts) == 1 and "text" in self.parts[0] else None
        message: ChatMessage = {"role": self.role, "content": only or self.parts or None}
        if self.thinking:
            message["reasoning_content"] = "\n".join(self.thinking)
        return [message | ({"tool_calls": self.calls} if self.calls else {})]


def as_text(value: object) -> str:
    """Return a text unchanged; anything else as deterministic JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def text_in(message: Mapping[str, Any]) -> str:
    """Return the text of a Chat message."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")


def calls_in(message: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the tool calls of a Chat message: id, name and arguments."""
    for call in message.get("tool_calls") or ():
        try:
            arguments = json.loads(call["function"]["arguments"] or "{}")
        except ValueError:
            arguments = None
        yield call["id"], call["function"]["name"], arguments if isinstance(arguments, dict) else {}


def schema(name: str, description: str, parameters: object) -> dict[str, Any]:
    """Build the Chat schema of a tool."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


MOVED = "history_moved"
"""The event after which a history continues in another session."""


def place_of(conversations: Conversations, session_id: str) -> Following:
    """Return the session in which a history continues now."""
    following = conversations.of(session_id)
    while moved := following.session.find(MOVED):
        following = conversations.of(json.loads(moved.content)["to"])
    return following


def told_in(following: Following) -> list[tuple[int, ChatMessage]]:
    """Return every message with its entry number."""
    entries = following.session.read()
    return [(entry.seq, json.loads(entry.content)) for entry in entries if entry.kind == MESSAGE]


def move(following: Following, at: int = 0) -> None:
    """Continue the history in another session: a copy up to an entry, or an empty one."""
    session = following.session
    digest = hashlib.sha256(f"{session.key}/{at}".encode()).hexdigest()[:12]
    name = f"{session_in(session.key).partition('~')[0]}~{digest}"
    if at:
        session.fork(name, at=at)
    session.record(MOVED, {"to": name, "at": at}, key=f"{MOVED}/0")


def speaking(wire: str, conversations: Conversations | None, **names: Any) -> Conversations:  # noqa: ANN401
    """Return the conversations passed in if they use the format, else new ones with the arguments of `recto.follow`."""
    if conversations is None:
        return follow(wire=wire, **names)
    if conversations.wire != wire:
        raise SettingsError("conversations", f'speak {conversations.wire}; open them with recto.follow(wire="{wire}")')
    return conversations
