"""Names that people know from elsewhere, in Recto's own settings: a trigger, what to keep, a summarizer.

Nothing is decided here. A name that is not given changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from recto.context.compaction.protocols import Cancelled, ModelReply, ModelRequest
from recto.errors import ModelFailed, SettingsError
from recto.tokens.meter import Meter

Size: TypeAlias = tuple[Literal["tokens", "messages", "fraction"], float]
"""`("tokens", 4000)`, `("messages", 20)` or `("fraction", 0.8)`, as LangChain writes it."""
_WHOLE = 100.0
_STEP = 0.75
"""How far below the trigger relief goes where nothing is said about what to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    """How a conversation is kept within its window, in names that are known elsewhere."""

    trigger: Size | None = None
    """Where relief starts: at so many tokens, or at a fraction of the room."""
    keep: Size | None = None
    """What relief leaves: so many tokens, a fraction of the room, or at least the newest so many messages."""
    keep_tokens: int | None = None
    """The same as `keep=("tokens", …)`."""
    preserve_recent: int | None = None
    """The newest messages, which stay as long as they fit."""
    exclude_tools: Sequence[str] = ()
    """Tools whose calls and results stay whole."""
    placeholder: str = ""
    """What stands in place of an old tool result; where it can be read is added."""
    clear_at_least: int | None = None
    """Tokens that clearing old tool results must win, or nothing is cleared."""

    def window(self, room: int) -> dict[str, Any]:
        """These wishes as settings of the window, for a prompt that may have `room` tokens."""
        found: dict[str, Any] = {}
        if self.trigger is not None:
            found["ceiling_percent"] = _percent("trigger", self.trigger, room)
            found["floor_percent"] = found["ceiling_percent"] * _STEP
        kept = ("tokens", self.keep_tokens) if self.keep_tokens is not None else self.keep
        if kept is not None and kept[0] == "messages":
            found["min_recent_messages"] = int(kept[1])
        elif kept is not None:
            found["floor_percent"] = _percent("keep", kept, room)
            found["keep_recent_tokens"] = int(found["floor_percent"] / _WHOLE * room)
        if self.preserve_recent is not None:
            found["min_recent_messages"] = self.preserve_recent
        if self.exclude_tools:
            found["keep_tools"] = list(self.exclude_tools)
        return found | self._trim()

    def _trim(self) -> dict[str, Any]:
        """Old tool results are cleared in the whole cascade alone: who says how wants it."""
        trim: dict[str, Any] = {"exclude_tools": list(self.exclude_tools)} if self.exclude_tools else {}
        wants = bool(self.placeholder) or self.clear_at_least is not None
        if self.placeholder:
            trim["placeholder"] = self.placeholder
        if self.clear_at_least is not None:
            trim["clear_at_least"] = self.clear_at_least
        return ({"mode": "zones"} if wants else {}) | ({"trim": trim} if trim else {})


def _percent(name: str, size: tuple[str, float], room: int) -> float:
    kind, amount = size
    if kind == "messages":
        raise SettingsError(name, "goes by tokens or by a fraction of the room, because messages differ in size")
    if kind not in ("tokens", "fraction") or amount <= 0:
        raise SettingsError(name, 'is ("tokens", 4000) or ("fraction", 0.8)')
    return min(_WHOLE * (amount if kind == "fraction" else amount / room), _WHOLE)


def joined(ours: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Two sets of settings as one; what is given by its own name wins."""
    found = dict(ours)
    for name, value in given.items():
        before = found.get(name)
        found[name] = joined(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return found


def meter_of(token_counter: Callable[[str], int]) -> Meter:
    """Counts with a function of the caller's own; what a model adds around messages is assumed to be the most."""
    return Meter(name=f"own/{getattr(token_counter, '__name__', 'counter')}"[:64], count=token_counter)


@dataclass(frozen=True, slots=True)
class Summarizer:
    """A function that writes shorter texts, as a model."""

    write: Callable[[str], str]
    """Gets instructions and the text they are about, and returns the shorter text."""
    name: str = "summarizer"
    window: int = 0

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """What the function writes; whatever it raises means that there is no text from it this time."""
        if cancelled is not None and cancelled.is_set():
            raise ModelFailed(self.name, "the answer is no longer wanted")
        try:
            text = self.write(f"{request.system}\n\n{request.text}")
        except Exception as error:
            raise ModelFailed(self.name, f"{type(error).__name__}: {error}") from error
        return ModelReply(text=text, ending="stop")

    def close(self) -> None:
        """There is nothing to let go of."""
