"""The tools of Recto's own MCP server, and how hosts write their names.

A host puts the name of the server before that of the tool, each in its own way: `mcp__recto__recall`,
`mcp_recto_recall`, `recto.recall`. A bare `read` could be anybody's. What the tools do is not known here.
"""

from __future__ import annotations

import re
from typing import Final

SERVER: Final = "recto"
"""What the server is called where `recto mcp add` adds it."""
TOOLS: Final = (
    "sessions",
    "recall",
    "read",
    "note",
    "pin",
    "unpin",
    "checkpoint",
    "resume",
    "context_report",
    "decisions",
    "restore",
)
_OWN = re.compile(rf"(?:^|[^A-Za-z0-9]){SERVER}(?:__|[._:/-])(?:{'|'.join(TOOLS)})$")
_LONGEST = 200


def is_own_tool(name: str) -> bool:
    """Whether a tool is one of Recto's own, as a host names it."""
    return _OWN.search(name[-_LONGEST:]) is not None
