"""A decision with its messages: what it evicted or shortened, with the text before and after, and how full it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from recto.context.window.report import DecisionSummary
from recto.context.window.state import seqs_in
from recto.engine.pagination import undone_decisions
from recto.engine.projection import DECISIONS
from recto.engine.report import summarize_decision
from recto.engine.window import Window
from recto.errors import InputError
from recto.formats import entry_text
from recto.transcript.entries import MESSAGE

MAX_MESSAGES = 200
"""Messages of a view; a decision may have evicted thousands."""
_MAX_TEXT = 600
"""Characters of a text; the entry has all of it."""


class DecidedMessage(Struct, frozen=True, kw_only=True):
    """A message that a decision evicted or shortened."""

    seq: int
    role: str
    action: Literal["evicted", "trimmed", "cleared"]
    """`cleared`: it stays without its thinking."""
    text: str
    cut: bool
    """Whether the text goes on; the entry has all of it."""
    tokens: int
    shorter: str
    """What is in the prompt instead; empty where nothing is."""
    shorter_tokens: int
    scores: Mapping[str, float] = field(default_factory=dict)
    """What the policy weighed, for the unit that begins with it; empty where it goes by order."""


class DecisionView(Struct, frozen=True, kw_only=True):
    """A decision, with its messages."""

    decision: DecisionSummary
    tokens_before: int
    tokens_after: int
    """The prompt before and after it."""
    room: int
    utilization: float
    """How full the prompt was before it, of the input budget as it is now."""
    ceiling: float
    """How full a prompt may be before something is evicted."""
    messages: tuple[DecidedMessage, ...]
    """Oldest first."""
    more: int
    """Messages that are not among them."""
    summary: str
    """The text that replaces the evicted messages; empty where none was written."""


def decision_view(window: Window, seq: int) -> DecisionView:
    """A decision with its messages.

    Raises:
        InputError: That entry is no decision.
    """
    entry = next(iter(window.store.read(window.session, seq, seq)), None)
    if entry is None or entry.kind not in DECISIONS:
        raise InputError(f"entry {seq} is no decision about the window")
    payload, room = json.loads(entry.content), window.budget.input_budget
    actions = _actions(payload)
    seqs = sorted(actions)
    return DecisionView(
        decision=summarize_decision(entry, undone=seq in undone_decisions(window, seq)),
        tokens_before=payload["tokens_before"],
        tokens_after=payload["tokens_after"],
        room=room,
        utilization=payload["tokens_before"] / max(room, 1),
        ceiling=window.rules.ceiling,
        messages=tuple(_messages(window, seqs[:MAX_MESSAGES], actions, payload)),
        more=max(len(seqs) - MAX_MESSAGES, 0),
        summary=str(payload.get("summary", {}).get("text", "")),
    )


def _actions(payload: Mapping[str, Any]) -> dict[int, Literal["evicted", "trimmed", "cleared"]]:
    actions: dict[int, Literal["evicted", "trimmed", "cleared"]] = {}
    actions |= dict.fromkeys(map(int, payload.get("cleared", ())), "cleared")
    actions |= dict.fromkeys(map(int, payload["shrunk"]), "trimmed")
    return actions | dict.fromkeys(seqs_in(payload["left"]), "evicted")


def _messages(
    window: Window,
    seqs: list[int],
    actions: Mapping[int, Literal["evicted", "trimmed", "cleared"]],
    payload: Mapping[str, Any],
) -> Iterator[DecidedMessage]:
    found = window.store.read(window.session, seqs[0], seqs[-1]) if seqs else ()
    for entry in found:
        if entry.seq not in actions or entry.kind != MESSAGE:
            continue
        action, text = actions[entry.seq], entry_text(entry)
        shorter = payload["shrunk"].get(str(entry.seq), {}) if action == "trimmed" else {}
        left = shorter.get("tokens", 0) if action != "cleared" else payload["cleared"][str(entry.seq)]
        yield DecidedMessage(
            seq=entry.seq,
            role=entry.role,
            action=action,
            text=text[:_MAX_TEXT],
            cut=len(text) > _MAX_TEXT,
            tokens=entry.tokens,
            shorter=str(shorter.get("text", ""))[:_MAX_TEXT],
            shorter_tokens=left,
            scores=payload["scores"].get(str(entry.seq), {}),
        )
