"""A key of the gateway: whose it is and what it may do. The secret itself is known to its holder alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

Right = Literal["ask", "read", "change"]
"""`ask`: models, through the gateway. `read`: what is stored. `change`: pins, restores, checkpoints, memory."""
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is known of a key."""

    id: str
    """Public: it stands in lists, logs and events."""
    name: str
    """What people call it."""
    rights: frozenset[Right] = frozenset(RIGHTS)
    tenant: str = ""
    """Whose sessions it sees; no others exist for it."""
    agent: str = "default"
    """The agent whose sessions its requests belong to: `agent:<agent>:…`."""
    upstream: str = ""
    """The only upstream it may ask; empty: by the model's name."""
    profile: str = ""
    """The budget's profile; empty: as the settings say."""
    canonical: bool = True
    """Whether a request with neither tools nor history is a turn in the agent's main session. If not, it opens one."""
    requests_per_minute: int = 0
    """0: as many as the gateway takes."""
    concurrency: int = 0
    """Requests under way at once; 0: as many as the gateway takes."""
    body_bytes: int = 0
    """Largest request; 0: as the settings say."""
    created: int = 0
    """Microseconds since 1970."""
    expires: int = 0
    """The same; 0: never."""
    revoked: bool = False
