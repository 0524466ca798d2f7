"""Recto keeps an LLM agent's prompt inside its context window, and forgets nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from recto import errors
from recto.errors import RectoError
from recto.version import __version__

if TYPE_CHECKING:
    from recto.adapters.conversations import Conversations, follow
    from recto.adapters.decorator import bounded
    from recto.config import Settings
    from recto.config.factory import manager, manager_async, open, open_async
    from recto.config.stateless import PressureMonitor, count, evict, fit
    from recto.engine.async_session import AsyncSession
    from recto.engine.context_window_manager import AsyncContextWindowManager, ContextWindowManager
    from recto.engine.history_sync import Following
    from recto.engine.prompt_builder import Prompt
    from recto.engine.session import Session
    from recto.engine.verification import Verification, verify
    from recto.transcript.entries import Entry, Head
    from recto.transcript.protocols import TranscriptStore

_HOMES = {
    "AsyncContextWindowManager": "recto.engine.context_window_manager",
    "AsyncSession": "recto.engine.async_session",
    "ContextWindowManager": "recto.engine.context_window_manager",
    "Conversations": "recto.adapters.conversations",
    "Entry": "recto.transcript.entries",
    "Following": "recto.engine.history_sync",
    "Head": "recto.transcript.entries",
    "PressureMonitor": "recto.config.stateless",
    "Prompt": "recto.engine.prompt_builder",
    "Session": "recto.engine.session",
    "Settings": "recto.config",
    "TranscriptStore": "recto.transcript.protocols",
    "Verification": "recto.engine.verification",
    "bounded": "recto.adapters.decorator",
    "count": "recto.config.stateless",
    "evict": "recto.config.stateless",
    "fit": "recto.config.stateless",
    "follow": "recto.adapters.conversations",
    "manager": "recto.config.factory",
    "manager_async": "recto.config.factory",
    "open": "recto.config.factory",
    "open_async": "recto.config.factory",
    "verify": "recto.engine.verification",
}

__all__ = [
    "AsyncContextWindowManager",
    "AsyncSession",
    "ContextWindowManager",
    "Conversations",
    "Entry",
    "Following",
    "Head",
    "PressureMonitor",
    "Prompt",
    "RectoError",
    "Session",
    "Settings",
    "TranscriptStore",
    "Verification",
    "__version__",
    "bounded",
    "count",
    "errors",
    "evict",
    "fit",
    "follow",
    "manager",
    "manager_async",
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
