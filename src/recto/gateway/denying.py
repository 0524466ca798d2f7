"""How the guard says no: in the words of whatever is spoken at the path."""

from __future__ import annotations

import json

from starlette.responses import Response

from recto.errors import RequestRefused
from recto.wire.names import ANTHROPIC, CHAT, RESPONSES
from recto.wire.refusals import OVERLOADED, refusal, status_for

MCP_PATH = "/mcp"
"""Where the Model Context Protocol is spoken."""
_INVALID_REQUEST = -32600
"""The number that JSON-RPC has for a request that is not taken."""


def wire_of(path: str) -> str:
    """The protocol that is spoken at a path; where none is, errors have the shape that most clients know."""
    if path.startswith("/v1/messages"):
        return ANTHROPIC
    return RESPONSES if path.startswith("/v1/responses") else CHAT


def denied(path: str, refused: RequestRefused) -> Response:
    """The answer to a request that is not taken."""
    wire = wire_of(path)
    status = status_for(wire, OVERLOADED) if refused.code == OVERLOADED else refused.status
    headers = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if path.startswith("/api/"):
        body = json.dumps({"error": {"code": refused.code, "message": refused.message}}).encode()
    elif path == MCP_PATH:
        error = {"code": _INVALID_REQUEST, "message": refused.message}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    else:
        body = refusal(wire, status, refused.code, refused.message)
    return Response(body, status, headers=headers, media_type="application/json")
