"""Keeps an entry in the prompt, or lets it leave again: for every screen that shows one."""

from __future__ import annotations

from recto.gateway.inspection.values import Stored
from recto.tui.here import Here


async def pin_or_unpin(here: Here, seq: int, *, pinned: bool) -> str:
    """Turns it around, and says what was done."""
    if pinned:
        await here.client.delete("/session/pins", session=here.session, seq=seq)
        return f"entry {seq} may leave the prompt again"
    await here.do(Stored, "pins", {"entries": [seq]})
    return f"entry {seq} is pinned: it stays in the prompt"
