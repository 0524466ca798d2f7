"""What is said when what must not leave does not fit."""

from __future__ import annotations

from recto.core.window import WindowState
from recto.engine.material import Material
from recto.errors import WindowOverflow


def overflow(state: WindowState, material: Material, room: int, kept_by: str = "") -> WindowOverflow:
    """The error that says by how much a prompt is too long, what holds the space, and why it may not leave."""
    holders = [(f"entry {seq} ({line.role})", state.cost(seq)) for seq, line in state.lines.items()]
    holders.append(("tools and frame", material.fixed - material.beside - material.answer))
    holders.append(("system text", material.beside))
    holders.append(("the answer", material.answer))
    holders = [holder for holder in holders if holder[1]]
    holders.sort(key=lambda holder: -holder[1])
    return WindowOverflow(material.used(state), room, holders, kept_by)
