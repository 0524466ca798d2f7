"""Which session a client says that it means. Many say it in a header of their own; many say nothing.

What names a person is no session: `user` and `safety_identifier` are not looked at.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from recto.formats.message import text_in
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
    return text_in(asked.fields.get("prompt_cache_key")) or asked.format.request.session_id(asked.fields)


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
