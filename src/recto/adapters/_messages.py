"""Chat messages put together and taken apart, for frameworks whose messages are lists of blocks.

Nothing here knows a framework, and nothing is decided.
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
from recto.transcript.entries import MESSAGE
from recto.transcript.session_keys import session_in


def plain(one: Any) -> Any:  # noqa: ANN401  # whatever a client or an application calls a message
    """A message or an answer as JSON has it."""
    return one.model_dump(mode="json", exclude_none=True) if hasattr(one, "model_dump") else one


def answer_in(answer: object, wire: str) -> tuple[list[ChatMessage], Mapping[str, Any] | None]:
    """The messages in what a call returned, and the usage; nothing where it is no answer: a stream, a text."""
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


MOVED = "history_moved"
"""The event after which a history goes on in another session."""


def place_of(conversations: Conversations, session_id: str) -> Following:
    """Where a history is kept now, after all that was taken out of it."""
    found = conversations.of(session_id)
    while moved := found.session.find(MOVED):
        found = conversations.of(json.loads(moved.content)["to"])
    return found


def told_in(following: Following) -> list[tuple[int, ChatMessage]]:
    """Every message, with the number of its entry."""
    entries = following.session.read()
    return [(entry.seq, json.loads(entry.content)) for entry in entries if entry.kind == MESSAGE]


def move(following: Following, at: int = 0) -> None:
    """From here on the history goes on in another session: a copy up to an entry, or an empty one."""
    session = following.session
    parting = hashlib.sha256(f"{session.key}/{at}".encode()).hexdigest()[:12]
    name = f"{session_in(session.key).partition('~')[0]}~{parting}"
    if at:
        session.fork(name, at=at)
    session.record(MOVED, {"to": name, "at": at}, key=f"{MOVED}/0")


def speaking(wire: str, given: Conversations | None, **names: Any) -> Conversations:  # noqa: ANN401
    """Those that are given, if they speak a format; else new ones, with the names of `recto.follow`."""
    if given is None:
        return follow(wire=wire, **names)
    if given.wire != wire:
        raise SettingsError("conversations", f'speak {given.wire}; open them with recto.follow(wire="{wire}")')
    return given
