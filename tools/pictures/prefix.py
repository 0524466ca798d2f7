"""Prefix and cache: how much of each prompt stood unchanged at the beginning of the one before.

One session is carried out here twice: with Recto, and with the oldest messages left out until the rest fits. Both are
counted with the same tokenizer, message by message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import recto
from pictures.drawing import BY_RULE, Picture
from recto.testing import scripted_session

_WINDOW: Final = 24_000
_EXCHANGES: Final = 26
_LEFT, _WIDE, _HIGH = 64, 860, 132


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One prompt: its tokens, and how many of them the provider had seen before."""

    tokens: int
    unchanged: int


def carried_out() -> tuple[list[Sent], list[Sent], int]:
    """What was sent with Recto, what with plain trimming, and the room that both had."""
    small = {"gpt-4o": {"window": _WINDOW, "max_input": _WINDOW}}
    with recto.open("memory:", model="gpt-4o", models=small, recall=BY_RULE) as session:
        room = session.window.budget.input_budget
        history: list[tuple[dict[str, Any], int]] = []
        ours: list[list[dict[str, Any]]] = []
        plain: list[list[dict[str, Any]]] = []
        for message in scripted_session(exchanges=_EXCHANGES):
            if message["role"] == "assistant":
                ours.append(session.prompt().messages)
                plain.append(_trimmed(history, room))
            history.append((message, session.append(message).tokens))
        known: dict[str, int] = {json.dumps(message): tokens for message, tokens in history}

        def cost(message: dict[str, Any]) -> int:
            said = json.dumps(message)
            if said not in known:
                known[said] = session.count(message)
            return known[said]

        return _measured(ours, cost), _measured(plain, cost), room


def _trimmed(history: Sequence[tuple[dict[str, Any], int]], room: int) -> list[dict[str, Any]]:
    """The system text and as many of the newest messages as fit; no result without its call."""
    (first, tokens), rest = history[0], history[1:]
    used, start = tokens, len(rest)
    while start and used + rest[start - 1][1] <= room:
        used, start = used + rest[start - 1][1], start - 1
    while start < len(rest) and rest[start][0]["role"] == "tool":
        start += 1
    return [first, *(message for message, _ in rest[start:])]


def _measured(prompts: Sequence[Sequence[dict[str, Any]]], cost: Callable[[dict[str, Any]], int]) -> list[Sent]:
    found: list[Sent] = []
    before: Sequence[dict[str, Any]] = ()
    for prompt in prompts:
        same = next(
            (place for place, (one, other) in enumerate(zip(prompt, before, strict=False)) if one != other), None
        )
        same = min(len(prompt), len(before)) if same is None else same
        costs = [cost(message) for message in prompt]
        found.append(Sent(tokens=sum(costs), unchanged=sum(costs[:same])))
        before = prompt
    return found


def drawn() -> Picture:
    """The picture."""
    ours, plain, room = carried_out()
    shares = [sum(sent.unchanged for sent in run) / sum(sent.tokens for sent in run) for run in (ours, plain)]
    picture = Picture(
        name="prefix",
        title="A prefix that stays is a cache that stays warm",
        description=(
            f"{len(ours)} prompts of one session as bars, with Recto and with plain trimming. The part of a prompt "
            f"that stood unchanged at the beginning of the one before is {shares[0]:.0%} with Recto: it grows at its "
            f"end and falls back in a few large steps. With plain trimming it is {shares[1]:.0%}: once the window is "
            "full, most prompts begin differently."
        ),
        width=960,
        height=506,
    )
    picture.words(_LEFT, 42, "A prefix that stays is a cache that stays warm", size=19, bold=True)
    _bars(picture, 92, ours, room, "Recto: grows at its end, falls in a few large steps", shares[0])
    _bars(picture, 290, plain, room, "Plain trimming: the oldest message leaves with each new one", shares[1])
    for x, colour, told in (
        (_LEFT, "history", "unchanged since the prompt before: read from the cache"),
        (_LEFT + 400, "orange", "new, or behind a change: paid in full"),
    ):
        picture.box(x, 470, 12, 12, colour)
        picture.words(x + 20, 481, told, size=12, fill="muted")
    return picture


def _bars(picture: Picture, y: int, run: Sequence[Sent], room: int, about: str, share: float) -> None:
    picture.words(_LEFT, y - 12, about, size=14, bold=True)
    picture.words(924, y - 12, f"{share:.0%} unchanged", size=14, at="end", bold=True)
    picture.line((_LEFT, y), (_LEFT + _WIDE, y), edge="edge", dashed=True)
    picture.words(_LEFT - 8, y + 4, f"{room // 1000} K", size=11, fill="muted", at="end")
    picture.words(_LEFT - 8, y + _HIGH + 4, "0", size=11, fill="muted", at="end")
    step = _WIDE / len(run)
    for place, sent in enumerate(run):
        x, tall, kept = _LEFT + place * step, _HIGH * sent.tokens / room, _HIGH * sent.unchanged / room
        picture.bar(x, y + _HIGH - tall, step - 1, tall - kept, "orange")
        picture.bar(x, y + _HIGH - kept, step - 1, kept, "history")
    picture.line((_LEFT, y + _HIGH), (_LEFT + _WIDE, y + _HIGH), edge="edge")
    picture.words(
        _LEFT + _WIDE, y + _HIGH + 18, f"{len(run)} prompts, one after the other", size=11, fill="muted", at="end"
    )
