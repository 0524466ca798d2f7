"""A key of the gateway: whose it is and what it may do. The secret itself is known to its holder alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from recto.errors import InputError

Right = Literal["ask", "read", "change"]
"""`ask`: models, through the gateway. `read`: what is stored. `change`: pins, restores, checkpoints, memory."""
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_LONGEST = 64
_LARGEST = 2**53
"""Numbers up to here are read alike by every JSON reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is known of a key. Raises `InputError` for one that could not be told apart, or could do nothing."""

    id: str = ""
    """Public: it stands in lists, logs and events. Given when the key is made."""
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

    def __post_init__(self) -> None:
        for what, name in (("tenant", self.tenant), ("agent", self.agent)):
            if not _NAME.fullmatch(name) and (what == "agent" or name):
                raise InputError(f"{what} {name!r:.80}: a name is 1 to 64 of the characters A-Z a-z 0-9 . _ -")
        for what, text in (("name", self.name), ("upstream", self.upstream), ("profile", self.profile)):
            if len(text) > _LONGEST or not text.isprintable() or (what == "name" and not text.strip()):
                raise InputError(f"{what} {text!r:.80}: at most {_LONGEST} printable characters, and a key has a name")
        if not self.rights or not self.rights <= frozenset(RIGHTS):
            raise InputError(f"a key has at least one of the rights {', '.join(RIGHTS)}, and no other")
        numbers = (self.requests_per_minute, self.concurrency, self.body_bytes, self.created, self.expires)
        if not all(0 <= number <= _LARGEST for number in numbers):
            raise InputError("limits and times of a key are not below zero, and not beyond what JSON can say")

    def is_live(self, now: int) -> bool:
        """Whether it opens anything at a time, in microseconds since 1970."""
        return not self.revoked and (not self.expires or now < self.expires)
