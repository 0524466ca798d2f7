"""A prompt as it is handed out, and what is said in it in place of messages that left."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from recto.context.window.notes import render_notes
from recto.context.window.pressure import PressureReading
from recto.context.window.state import WindowState
from recto.engine.prompt_builder import BuiltPrompt
from recto.recall.types import Hit
from recto.transcript.entries import Entry

_NOTES = 2_400
"""Characters of notes that stand in a prompt."""
_NOTED = "[Notes written down on the way, for reference; a number in parentheses is the entry of a note:]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What is sent to the model now."""

    built: BuiltPrompt
    reading: PressureReading
    decisions: tuple[Entry, ...]
    """Decisions that were made for this prompt."""
    prefix: int
    """Tokens that stand unchanged at the beginning, as in the prompt before."""
    recalled: tuple[Hit, ...] = ()
    """What had left and is quoted in this prompt."""

    @property
    def raw(self) -> tuple[bytes, ...]:
        """The messages, byte for byte as they were stored."""
        return self.built.messages

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as provider clients take them."""
        return [json.loads(raw) for raw in self.built.messages]

    @property
    def system(self) -> str:
        """System text that goes beside the messages, where the format wants it there."""
        return "\n\n".join(str(json.loads(raw).get("content", "")) for raw in self.built.system)

    @property
    def tokens(self) -> int:
        """What all of it costs, tools and frame included."""
        return self.built.tokens


def marker(state: WindowState) -> str:
    """What is said of what has left: how much it is, the notes, and what is known of it."""
    tokens = f", {state.evicted_tokens:,} tokens" if state.evicted_tokens else ""
    where = f"entries {state.first_evicted} to {state.last_evicted}{tokens}"
    told = (
        f"[{state.evicted_messages:,} earlier messages ({where}) are not shown here, to keep within the context "
        "window. They are kept in full.]"
    )
    notes = render_notes(state.shown_notes, _NOTES)
    lines = [told, *([_NOTED, *notes] if notes else []), *([state.summary.text] if state.summary else [])]
    return "\n".join(lines)
