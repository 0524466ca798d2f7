"""Which session a client says that it means. Many say it in a header of their own; many say nothing.

What names a person is no session: `user` and `safety_identifier` are not looked at.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import ANTHROPIC, RESPONSES, object_in, text_in
from recto.gateway.request import ClientRequest

OWN_HEADER: Final = "x-recto-session-id"
_HEADERS: Final = (
    "x-claude-code-session-id",
    "x-session-id",
    "x-session-affinity",
    "session-id",
    "session_id",
    "thread-id",
    "conversation_id",
    "x-litellm-session-id",
    "helicone-session-id",
    "x-thread-id",
)
"""What agents call it, the surest first."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,119}", re.ASCII)
_OLDER_USER = re.compile(r"_session_([0-9a-fA-F-]{8,64})$", re.ASCII)


def named_session(headers: Mapping[str, str], asked: ClientRequest) -> str:
    """A name for the session, made of what the client sent; empty where it sent nothing that names one.

    What cannot stand in a session's name is hashed, so that two names never become one.
    """
    if own := own_name(headers):
        return own
    for candidate in (*(headers.get(name, "") for name in _HEADERS), _in_body(asked)):
        if len(candidate) >= 8:  # shorter ones are not meant to be unique
            return candidate if _NAME.fullmatch(candidate) else _hashed(candidate)
    return ""


def own_name(headers: Mapping[str, str]) -> str:
    """The name in Recto's own header; empty where there is none."""
    own = headers.get(OWN_HEADER, "")
    return own if not own or _NAME.fullmatch(own) else _hashed(own)


def _in_body(asked: ClientRequest) -> str:
    fields = asked.fields
    if cached := text_in(fields.get("prompt_cache_key")):
        return cached
    metadata = object_in(fields.get("metadata"))
    if asked.wire == ANTHROPIC:
        return _of_user(text_in(metadata.get("user_id")))
    if asked.wire == RESPONSES and (found := text_in(object_in(fields.get("client_metadata")).get("session_id"))):
        return found
    return text_in(metadata.get("session_id"))


def _of_user(user: str) -> str:
    """Claude Code names its session inside the user's id: as JSON, and before that at its end."""
    if user.startswith("{") and len(user) <= 2_000:
        try:
            held: Json = json.loads(user)
        except (ValueError, RecursionError):
            return ""
        return text_in(object_in(held).get("session_id"))
    found = _OLDER_USER.search(user[:500])
    return found[1] if found else ""


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
