"""Option names of other frameworks (trigger, keep, summarizer), translated to Recto's settings.

An option that is not set changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeAlias

from recto.context.compaction.protocols import Cancelled, ModelReply, ModelRequest
from recto.errors import ModelFailed, SettingsError

Size: TypeAlias = tuple[Literal["tokens", "messages", "fraction"], float]
"""`("tokens", 4000)`, `("messages", 20)` or `("fraction", 0.8)`, as LangChain writes it."""
_HUNDRED = 100.0
_DEFAULT_FLOOR_RATIO = 0.75
"""How far below the trigger relief goes if `keep` is not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    """Limits of a conversation, with option names from other frameworks."""

    trigger: Size | None = None
    """Where relief starts: a number of tokens, or a fraction of the input budget."""
    keep: Size | None = None
    """What relief leaves: tokens, a fraction of the input budget, or at least the newest messages."""
    keep_tokens: int | None = None
    """The same as `keep=("tokens", …)`."""
    preserve_recent: int | None = None
    """This many of the newest messages stay as long as they fit."""
    exclude_tools: Sequence[str] = ()
    """Tools whose calls and results are never trimmed or evicted."""
    placeholder: str = ""
    """Text that replaces an old tool result; a pointer to the result is added."""
    clear_at_least: int | None = None
    """Clear old tool results only if at least this many tokens are freed."""

    def refuse_counts(self) -> None:
        """Raise `SettingsError` for a number of messages to keep: `auto_compact` keeps the newest tokens."""
        by_messages = self.keep_tokens is None and self.keep is not None and self.keep[0] == "messages"
        if self.preserve_recent is not None or by_messages:
            raise SettingsError(
                "keep" if by_messages else "preserve_recent",
                "counts messages, but a summary, as a 'summarizer' writes it, replaces all but the newest tokens: set"
                " 'keep_tokens', or window={'mode': 'zones'}, which keeps messages",
            )

    def window(self, input_budget: int) -> dict[str, Any]:
        """Return the window settings for these options and an input budget."""
        window_settings: dict[str, Any] = {}
        if self.trigger is not None:
            window_settings["ceiling_percent"] = _percent("trigger", self.trigger, input_budget)
            window_settings["floor_percent"] = window_settings["ceiling_percent"] * _DEFAULT_FLOOR_RATIO
        target = ("tokens", self.keep_tokens) if self.keep_tokens is not None else self.keep
        if target is not None and _checked("keep", target)[0] == "messages":
            window_settings["min_recent_messages"] = int(target[1])
        elif target is not None:
            window_settings["floor_percent"] = _percent("keep", target, input_budget)
            window_settings["keep_recent_tokens"] = int(window_settings["floor_percent"] / _HUNDRED * input_budget)
        if self.preserve_recent is not None:
            window_settings["min_recent_messages"] = self.preserve_recent
        if self.exclude_tools:
            window_settings["keep_tools"] = list(self.exclude_tools)
        return window_settings | self._trim()

    def _trim(self) -> dict[str, Any]:
        """The trim settings. Trimming needs the full cascade, so these options select it."""
        trim: dict[str, Any] = {"exclude_tools": list(self.exclude_tools)} if self.exclude_tools else {}
        selects_cascade = bool(self.placeholder) or self.clear_at_least is not None
        if self.placeholder:
            trim["placeholder"] = self.placeholder
        if self.clear_at_least is not None:
            trim["clear_at_least"] = self.clear_at_least
        return ({"mode": "zones"} if selects_cascade else {}) | ({"trim": trim} if trim else {})


def _percent(name: str, size: tuple[str, float], input_budget: int) -> float:
    kind, amount = _checked(name, size)
    if kind == "messages":
        raise SettingsError(name, "is in tokens or a fraction of the input budget, because messages differ in size")
    return min(_HUNDRED * (amount if kind == "fraction" else amount / input_budget), _HUNDRED)


def _checked(name: str, size: object) -> tuple[str, float]:
    match size:
        case ("tokens" | "messages" | "fraction" as kind, int() | float() as amount) if 0 < amount < inf and not (
            kind == "fraction" and amount > 1
        ):
            return kind, amount
    raise SettingsError(name, f'is ("tokens", 4000) or ("fraction", 0.8), the fraction at most 1, not {size!r:.60}')


def joined(ours: Mapping[str, Any], explicit: Mapping[str, Any]) -> dict[str, Any]:
    """Two sets of settings as one; what is given by its own name wins."""
    found = dict(ours)
    for name, value in explicit.items():
        before = found.get(name)
        found[name] = joined(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return found


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
            raise ModelFailed(self.name, "the result is no longer needed")
        try:
            text = self.write(f"{request.system}\n\n{request.text}")
        except Exception as error:
            raise ModelFailed(self.name, f"{type(error).__name__}: {error}") from error
        return ModelReply(text=text, ending="stop")

    def close(self) -> None:
        """There is nothing to let go of."""
