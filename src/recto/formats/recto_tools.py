"""Recognises calls of Recto's own MCP tools by their names.

Hosts prefix the name of a tool with that of its server, each in its own way: `mcp__recto__recall`,
`mcp_recto_recall`, `recto.recall`. A bare `read` may be any server's.
"""

from __future__ import annotations

from typing import Final

from recto.text.lazy_re import lazy_re

SERVER: Final = "recto"
"""The name under which `recto mcp add` adds the server."""
TOOLS: Final = (
    "sessions",
    "recall",
    "read",
    "outline",
    "grep",
    "work",
    "note",
    "judge",
    "pin",
    "unpin",
    "checkpoint",
    "resume",
    "context_report",
    "decisions",
    "restore",
)
_OWN = lazy_re(rf"(?:^|[^A-Za-z0-9]){SERVER}(?:__|[._:/-])(?:{'|'.join(TOOLS)})$")
_LONGEST = 200
_RECALL = lazy_re(rb'"name"\s*:\s*"([A-Za-z0-9_.:/-]{1,200}recall)"')


def is_own_tool(name: str) -> bool:
    """Whether a tool name, as a host writes it, is one of Recto's own tools."""
    return _OWN.search(name[-_LONGEST:]) is not None


def recall_tool_in(schemas: bytes) -> str:
    """The name, as its host writes it, of Recto's own `recall` among tool schemas; empty without one."""
    if b"recall" not in schemas:
        return ""
    names = (match[1].decode() for match in _RECALL.finditer(schemas))
    return next((name for name in names if is_own_tool(name)), "")
