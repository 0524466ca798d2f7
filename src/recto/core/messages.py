"""What one message says, whatever format it is written in.

`recto.wire` reads provider JSON into a `Message`; everything above decides on it. The bytes themselves stay in the
entry: a `Message` is for looking, never for sending.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recto.core.entries import Role

PartKind = Literal["text", "thinking", "call", "result", "image", "media", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a message that costs tokens."""

    kind: PartKind
    text: str = ""
    """What a person or a search would read: prose, a call's arguments, a result's output."""
    name: str = ""
    """The tool, for a call (and for a result, where the format says it)."""
    call_id: str = ""
    """What ties a result to its call."""
    size: tuple[int, int] | None = None
    """Width and height of an image in pixels, where the data is at hand."""
    detail: str = ""
    """The detail level asked for an image."""
    weight: int = 0
    """Bytes of opaque data that are sent with the part (signatures, encrypted reasoning, base64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message, read."""

    role: Role
    parts: tuple[Part, ...]
    name: str = ""
    """The speaker's name, where the format carries one."""

    @property
    def calls(self) -> tuple[Part, ...]:
        """The tool calls it makes."""
        return tuple(part for part in self.parts if part.kind == "call")

    @property
    def results(self) -> tuple[Part, ...]:
        """The tool results it carries."""
        return tuple(part for part in self.parts if part.kind == "result")

    @property
    def text(self) -> str:
        """What search sees: every piece of text, tool names and arguments included."""
        return "\n".join(
            f"{part.name} {part.text}".strip()
            for part in self.parts
            if part.text or (part.name and part.kind == "call")
        )
