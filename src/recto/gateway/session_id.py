"""The session that a client names, in Recto's header, in a header of its own, or in the body.

Members that identify a person (`user`, `safety_identifier`) are not sessions and are ignored.
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
"""Headers of known agents, most specific first."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,119}", re.ASCII)


def named_session(headers: Mapping[str, str], request: ClientRequest) -> str:
    """Return the name of the session that a client means; empty where it names none.

    An id that is not valid as a name is hashed, so that two ids never become one name.
    """
    if own := own_name(headers):
        return own
    named = [headers[name] for name in _HEADERS if name in headers]
    for candidate in (*named, _id_in_body(request)):
        if len(candidate) >= 8:  # shorter ids are not meant to be unique
            return valid_name(candidate)
    return ""


def valid_name(id: str) -> str:
    """Return an id as a name; one that is not valid as a name is hashed."""
    return id if _NAME.fullmatch(id) else _hashed(id)


def own_name(headers: Mapping[str, str]) -> str:
    """Return the name in Recto's own header; empty without one."""
    own = headers.get(OWN_HEADER, "")
    return valid_name(own) if own else ""


def _id_in_body(request: ClientRequest) -> str:
    return text_in(request.fields.get("prompt_cache_key")) or request.format.request.session_id(request.fields)


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
