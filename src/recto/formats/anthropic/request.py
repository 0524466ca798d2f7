"""Which conversation a request to Anthropic's Messages API belongs to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in

_SESSION_SUFFIX = re.compile(r"_session_([0-9a-fA-F-]{8,64})$", re.ASCII)


def session_id(fields: Mapping[str, Json]) -> str:
    """Returns the session id that Claude Code puts into the user id: in a JSON object, in older versions at its end."""
    user = text_in(object_in(fields.get("metadata")).get("user_id"))
    if user.startswith("{") and len(user) <= 2_000:
        try:
            parsed: Json = json.loads(user)
        except (ValueError, RecursionError):
            return ""
        return text_in(object_in(parsed).get("session_id"))
    match = _SESSION_SUFFIX.search(user[:500])
    return match[1] if match else ""


def conversation_id(fields: Mapping[str, Json]) -> str:
    """Nothing: the server stores no conversations for clients of this API."""
    return ""


def names_history(fields: Mapping[str, Json]) -> bool:
    """Never: a request brings its full history."""
    return False
