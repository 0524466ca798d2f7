"""What sinks have in common beyond being told."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Dropping(Protocol):
    """A sink that can lose something, and counts what it lost."""

    @property
    def name(self) -> str:
        """A short word: `log`, `webhook`."""
        ...

    @property
    def dropped(self) -> int:
        """How often it told nothing where it should have."""
        ...
