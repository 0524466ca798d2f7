"""A model request as a client sent it: the conversation, and the instructions and tools around it.

Instructions and tools are passed on verbatim; they may change from request to request within one conversation. Messages
are what the transcript stores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recto.errors import InputError, MalformedMessage
from recto.formats import Body, Format, open_body, reopen_body
from recto.formats.cache_control import newest_marks
from recto.formats.context_management import ContextPlan
from recto.formats.json_spans import Json, TextEdit, apply_edits, members, removals, set_member
from recto.formats.message import MAX_CACHE_MARKS, fields_of, object_in
from recto.gateway.known_requests import KnownPrefix
from recto.text.unicode import has_half_characters


def surface_of(format: Format) -> str:
    """Return the surface of messages that arrive at the gateway in this format."""
    return f"gateway {format.short_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One parsed request."""

    body: Body
    fields: Mapping[str, Json]
    """Its members, without the messages."""
    front: tuple[bytes, ...]
    """System messages before the conversation, in formats that have them among the messages."""
    back: tuple[bytes, ...]
    """System messages after it: agents append a reminder to each request."""
    middle: tuple[bytes, ...]
    """System messages inside it. They do not identify the conversation."""
    messages: tuple[bytes, ...]
    """The conversation, without system messages."""
    replies: tuple[int, ...]
    """Positions of the assistant's messages among them."""
    known: KnownPrefix | None = None
    """The earlier request with which this one begins."""
    shared: int = 0
    """How many of the messages are its messages, too."""
    format: Format
    """The wire format of the request."""
    wire: str
    """The name of its wire format, as entries carry it."""
    model: str
    """The requested model."""
    tools: bytes
    """The tool schemas, as sent to the upstream."""
    instructions: bytes
    """The system text around the conversation, as sent."""
    plan: ContextPlan | None = None
    """The context management that is served here; None: the client asks for none, or its upstream serves it."""
    dropped: frozenset[str] = frozenset()
    """Members that are not forwarded."""

    @property
    def stream(self) -> bool:
        """Whether the client wants a streamed response."""
        return self.fields.get("stream") is True

    @property
    def max_output_tokens(self) -> int:
        """The client's limit on the response; 0 without one."""
        for name in self.format.body.output_limits:
            value: Json = dict(self.fields)
            for key in name.split("."):
                value = object_in(value).get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return 0

    @property
    def is_bare(self) -> bool:
        """Whether it is a single message, without tools or history."""
        return not self.body.tools and not self.replies and len(self.messages) == 1

    def with_prompt(self, messages: tuple[bytes, ...], system: str = "") -> bytes:
        """Return the body for the upstream: as it came, with the messages of a prompt and additional system text."""
        body = self.body.with_messages((*self.front, *self._marked(messages), *self.back))
        removed = (self.format.body.stored_history | self.dropped) & self.fields.keys()
        has_own_tools = self.tools != (self.body.tools or b"")
        if not removed and not system and not has_own_tools:
            return body
        text = body.decode()
        parsed = list(members(text))
        spans = [(member.start, member.value.end) for member in parsed]
        edits: list[TextEdit] = removals(spans, [member.key in removed for member in parsed])
        text = apply_edits(text, edits)
        if has_own_tools:
            text = apply_edits(text, [set_member(text, 0, "tools", self.tools.decode())])
        if system:
            value = self.format.with_system((self.body.system or b"").decode(), system)
            text = apply_edits(text, [set_member(text, 0, self.format.body.system or "system", value)])
        return text.encode()

    def _marked(self, messages: tuple[bytes, ...]) -> Sequence[bytes]:
        """Return the messages with no more cache marks than a provider accepts, counting those outside of them."""
        name = f'"{self.format.cache_mark}"'.encode()
        outside = self.instructions.count(name) + self.tools.count(name) + ("cache_control" in self.fields)
        if not outside or not any(name in raw for raw in messages):
            return messages
        return newest_marks(messages, self.wire, max(MAX_CACHE_MARKS - outside, 0))


def open_request(raw: bytes, wire: str, known: KnownPrefix | None = None) -> ClientRequest:
    """Parse a request. Its nesting depth was checked when it arrived. What is known of it is not parsed again.

    Raises:
        MalformedJson, MalformedMessage: It is not a request of this format.
    """
    body = reopen_body(raw, known.request.body, known.count) if known else open_body(raw, wire, shallow=True)
    if has_half_characters(body.model):
        raise MalformedMessage("the model's name contains an unpaired surrogate, half of a character")
    roles = body.roles
    count = len(roles)
    front = next((place for place, role in enumerate(roles) if role != "system"), count)
    back = next((place for place in range(count, front, -1) if roles[place - 1] != "system"), count)
    inner = roles[front:back]
    middle: tuple[bytes, ...] = ()
    messages = body.messages[front:back]
    shared = min(max(known.count - front, 0), len(messages)) if known else 0
    if "system" in inner:
        middle = tuple([raw for raw, role in zip(messages, inner, strict=True) if role == "system"])
        messages = tuple([raw for raw, role in zip(messages, inner, strict=True) if role != "system"])
        shared -= inner[:shared].count("system")
        inner = tuple([role for role in inner if role != "system"])
    if body.format.joined_history is not None:
        # of what is shared, the last message may have gone on
        shared = max(len(body.format.joined_history(messages[:shared])) - 1, 0)
        joined = tuple(body.format.joined_history(messages))
        if joined != messages:
            messages = joined
            inner = tuple(body.format.messages.role_of(fields_of(raw)) for raw in messages)
    before, after = body.messages[:front], body.messages[back:]
    return ClientRequest(
        body=body,
        format=body.format,
        wire=body.format.name,
        model=body.model,
        tools=body.tools or b"",
        instructions=b"\n".join((*((body.system,) if body.system else ()), *before, *after)),
        fields=body.fields,
        front=before,
        back=after,
        middle=middle,
        messages=messages,
        replies=tuple([place for place, role in enumerate(inner) if role == "assistant"]),
        known=known,
        shared=shared,
    )


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a body that is a JSON object. Raises `InputError`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("the body is not an object")
    return found
