"""What a client calls a message or an answer, as the messages that belong into a transcript.

Clients have objects of their own for them; what they have in common is that they can be written as the provider's JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recto.engine.following import ChatMessage
from recto.errors import InputError
from recto.wire.replies import read_reply


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
