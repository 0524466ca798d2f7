"""Which conversation a Chat request belongs to."""

from __future__ import annotations

from collections.abc import Mapping

from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in


def session_id(fields: Mapping[str, Json]) -> str:
    """Returns the session id that a client gives in `metadata`."""
    return text_in(object_in(fields.get("metadata")).get("session_id"))


def conversation_id(fields: Mapping[str, Json]) -> str:
    """Nothing: the server stores no conversations for clients of Chat."""
    return ""


def names_history(fields: Mapping[str, Json]) -> bool:
    """Never: a request brings its full history."""
    return False
