"""Recto keeps an LLM agent's prompt inside its context window, and forgets nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from recto import errors
from recto.errors import RectoError

if TYPE_CHECKING:
    from recto.adapters.plain import bounded
    from recto.conversations import Conversations, follow
    from recto.core.entries import Entry, Head
    from recto.engine.async_session import AsyncSession
    from recto.engine.following import Following
    from recto.engine.prompts import Prompt
    from recto.engine.session import Session
    from recto.engine.verify import Verification, verify
    from recto.ports import TranscriptStore
    from recto.settings import Settings
    from recto.wiring import fit, open, open_async

__version__ = "0.1.0"

_HOMES = {
    "AsyncSession": "recto.engine.async_session",
    "Conversations": "recto.conversations",
    "Entry": "recto.core.entries",
    "Following": "recto.engine.following",
    "Head": "recto.core.entries",
    "Prompt": "recto.engine.prompts",
    "Session": "recto.engine.session",
    "Settings": "recto.settings",
    "TranscriptStore": "recto.ports",
    "Verification": "recto.engine.verify",
    "bounded": "recto.adapters.plain",
    "fit": "recto.wiring",
    "follow": "recto.conversations",
    "open": "recto.wiring",
    "open_async": "recto.wiring",
    "verify": "recto.engine.verify",
}

__all__ = [
    "AsyncSession",
    "Conversations",
    "Entry",
    "Following",
    "Head",
    "Prompt",
    "RectoError",
    "Session",
    "Settings",
    "TranscriptStore",
    "Verification",
    "__version__",
    "bounded",
    "errors",
    "fit",
    "follow",
    "open",
    "open_async",
    "verify",
]


def __getattr__(name: str) -> object:
    """Loads a public name when it is first used, so that `import recto` alone costs next to nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'recto' has no attribute '{name}'")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found
