"""Which conversation a request to the Responses API belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in

STORED_HISTORY: Final = frozenset({"previous_response_id", "conversation"})
"""Members that name history on the server."""


def session_id(fields: Mapping[str, Json]) -> str:
    """Returns the session id that a client gives in `client_metadata` (Codex) or in `metadata`."""
    own = text_in(object_in(fields.get("client_metadata")).get("session_id"))
    return own or text_in(object_in(fields.get("metadata")).get("session_id"))


def conversation_id(fields: Mapping[str, Json]) -> str:
    """Returns the id of the conversation that a request names."""
    conversation = fields.get("conversation")
    return text_in(conversation) or text_in(object_in(conversation).get("id"))


def names_history(fields: Mapping[str, Json]) -> bool:
    """Whether the request refers to a previous response, a conversation, or a stored prompt."""
    return any(map(fields.get, (*STORED_HISTORY, "prompt")))
