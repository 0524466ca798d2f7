"""What a recorded conversation comes to in a window: prompts, tokens, cache, money, decisions.

A prompt is judged where the model was asked; what it answered then is taken as it is. Which settings the window has is
not known here: whoever compares them opens a session for each and adds up what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recto.core.caching import bill
from recto.core.cards import ModelCard
from recto.core.entries import Entry
from recto.engine.replaying import replay
from recto.engine.session import Session
from recto.errors import WindowOverflow

if TYPE_CHECKING:
    from recto.engine.prompts import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """What it came to. Two of them can be added."""

    turns: int = 0
    """How often the model was asked."""
    over: int = 0
    """Prompts over what they may have: there are none."""
    refused: int = 0
    """Turns for which what must not leave did not fit: a typed error instead of a prompt."""
    tokens: int = 0
    """Of all prompts."""
    unchanged: int = 0
    """Of these, what stood unchanged at the beginning since the prompt before."""
    largest: int = 0
    decisions: int = 0
    picodollars: int | None = 0
    """What the prompts cost with unchanged beginnings cached; None where the model's prices are not known."""

    @property
    def share(self) -> float:
        """The share of all tokens that stood unchanged."""
        return self.unchanged / max(self.tokens, 1)

    def with_prompt(self, prompt: Prompt, card: ModelCard | None) -> Backtest:
        """With one more turn."""
        known = self.picodollars is not None and card is not None and card.input_price is not None
        cost = bill(card, prompt.prefix, prompt.tokens - prompt.prefix) if known and card is not None else 0
        return replace(
            self,
            turns=self.turns + 1,
            over=self.over + (prompt.tokens > prompt.reading.room),
            tokens=self.tokens + prompt.tokens,
            unchanged=self.unchanged + prompt.prefix,
            largest=max(self.largest, prompt.tokens),
            decisions=self.decisions + len(prompt.decisions),
            picodollars=(self.picodollars or 0) + cost if known else None,
        )

    def __add__(self, other: Backtest) -> Backtest:
        known = self.picodollars is not None and other.picodollars is not None
        return Backtest(
            turns=self.turns + other.turns,
            over=self.over + other.over,
            refused=self.refused + other.refused,
            tokens=self.tokens + other.tokens,
            unchanged=self.unchanged + other.unchanged,
            largest=max(self.largest, other.largest),
            decisions=self.decisions + other.decisions,
            picodollars=(self.picodollars or 0) + (other.picodollars or 0) if known else None,
        )


def backtest(
    session: Session, entries: Iterable[Entry], advance: Callable[[int], object] = lambda by: None
) -> Backtest:
    """Goes through a conversation in an empty session. `advance` is told of every entry."""
    tally = Backtest()
    card = session.window.rules.card

    def asked(answer: Prompt | WindowOverflow) -> None:
        nonlocal tally
        if isinstance(answer, WindowOverflow):
            tally = replace(tally, turns=tally.turns + 1, refused=tally.refused + 1)
        else:
            tally = tally.with_prompt(answer, card)

    replay(session, entries, advance, asked)
    return tally
