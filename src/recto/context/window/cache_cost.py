"""What a prompt costs when a provider caches its prefix, and whether an edit of it pays.

Providers charge an unchanged prefix a fraction of the price and what follows the first change more than the price. So
taking tokens out of the middle saves a little on every later call, and costs the rewriting of all that stands behind
them once. This module weighs the two; it delays nothing itself and does not know what the tokens say.

Amounts are whole picodollars. A turn is one call of the model here, since that is what is billed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import TypeAlias

from recto.tokens.model_card import ModelCard

Piece: TypeAlias = tuple[Hashable, int]
"""One part of a prompt: what it is known by (its bytes, or a hash of them), and its tokens."""

UNKNOWN_MINIMUM = 1024
"""The shortest prefix that is taken to be cached where a model's own minimum is not known; most have this one."""

COLD_AFTER: Mapping[str, float] = MappingProxyType({"anthropic": 3600.0, "openai": 86_400.0})
"""Seconds of idleness after which nothing can be cached any more: the longest lifetime a provider sells. Others
promise none, so that their caches are never certainly cold."""

FEWEST_TURNS = 5
MOST_TURNS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Prices that hold for a prompt of some length, in picodollars per token."""

    fresh: int
    """What is not cached, where nothing is written to the cache."""
    read: int
    write: int
    output: int
    known: bool = True
    """False where they are relative to each other and no amounts of money."""


RELATIVE = Rates(fresh=1_000_000, read=100_000, write=1_250_000, output=5_000_000, known=False)
"""For models without prices: what most providers charge, with fresh input as 1."""


def rates(card: ModelCard, tokens: int) -> Rates:
    """The prices of a prompt of this length.

    A price list that has no price for reading the cache gives no discount, one that has none for writing asks no more
    than for fresh input. Beyond `long_from`, prices that are not listed rise as the one for input does.
    """
    if card.input_price is None:
        return RELATIVE
    fresh = card.input_price
    read = fresh if card.cache_read_price is None else card.cache_read_price
    write = fresh if card.cache_write_price is None else card.cache_write_price
    output = fresh * RELATIVE.output // RELATIVE.fresh if card.output_price is None else card.output_price
    if card.long_from is None or tokens <= card.long_from:
        return Rates(fresh=fresh, read=read, write=write, output=output)
    long = fresh if card.long_input_price is None else card.long_input_price

    def risen(price: int, listed: int | None) -> int:
        if listed is not None:
            return listed
        return price * long // fresh if fresh else long

    return Rates(
        fresh=long,
        read=risen(read, card.long_cache_read_price),
        write=risen(write, None),
        output=risen(output, card.long_output_price),
    )


def bill(card: ModelCard, prefix_tokens: int, fresh_tokens: int, output: int = 0) -> int:
    """What one call costs whose first `prefix_tokens` were sent before, unchanged.

    A prefix shorter than the provider's minimum is not read from the cache, a prompt shorter than it is not written.
    """
    total = prefix_tokens + fresh_tokens
    least = UNKNOWN_MINIMUM if card.cache_minimum is None else card.cache_minimum
    prices = rates(card, total)
    answer = output * prices.output
    if total < least:
        return total * prices.fresh + answer
    read = prefix_tokens if prefix_tokens >= least else 0
    return read * prices.read + (total - read) * prices.write + answer


def cached_tokens(card: ModelCard | None, prefix_tokens: int, fresh_tokens: int) -> tuple[int, int]:
    """How many tokens of one call are read from the cache, and how many are written to it, as `bill` has them.

    A price list without a price for reading caches nothing; one without a price for writing asks for no more than
    fresh input, so that nothing is written apart. Where no prices are known, what could be read is told.
    """
    total = prefix_tokens + fresh_tokens
    least = UNKNOWN_MINIMUM if card is None or card.cache_minimum is None else card.cache_minimum
    if total < least:
        return 0, 0
    reads = card is None or card.input_price is None or card.cache_read_price is not None
    read = prefix_tokens if reads and prefix_tokens >= least else 0
    writes = card is not None and card.input_price is not None and card.cache_write_price is not None
    return read, total - read if writes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEdit:
    """A change of the prompt that would be made before the next call, in tokens."""

    prefix: int
    """What stands before it, and stays as it is."""
    removed: int
    suffix: int
    """What stands behind it, and must be written to the cache anew."""
    turns: int
    """How many calls are still expected, the next one included."""
    added: int = 0
    """What comes in place of the removed: markers, placeholders, a summary."""
    grows: int = 0
    """What each call adds at the tail. It decides for how long a prompt stays below a price step."""
    output: int = 0
    """What each call answers."""
    idle: float = 0.0
    """Seconds since the last call; infinite where there was none."""
    ttl: float | None = None
    """Seconds a cached prefix lives, where the caller knows; else the longest the provider sells."""

    def __post_init__(self) -> None:
        if min(self.prefix, self.removed, self.suffix, self.turns, self.added, self.grows, self.output) < 0:
            raise ValueError("an edit has no negative amounts")

    def is_cold(self, provider: str) -> bool:
        """Whether nothing of the prompt can be cached any more."""
        return self.idle >= (COLD_AFTER.get(provider, inf) if self.ttl is None else self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostVerdict:
    """What an edit would mean in money, over all the calls still expected."""

    saves: int
    """What the prompt costs less, had it been short all along."""
    costs: int
    """What must be paid once to write anew what was cached."""
    known: bool = True
    """False where the model's prices are not known and the amounts are relative."""

    @property
    def net(self) -> int:
        """What is left over."""
        return self.saves - self.costs

    @property
    def pays(self) -> bool:
        """Whether the edit is cheaper than leaving the prompt as it is."""
        return self.net > 0


def weigh(card: ModelCard, edit: PromptEdit) -> CostVerdict:
    """Whether an edit pays.

    With a warm cache and no price step in reach this is removed × turns × read against suffix × (write − read). Where
    the cache is cold everything is written anew in any case, and the edit is free. A prompt that falls below
    `long_from` saves the difference between the prices as long as it stays there.
    """
    before = edit.prefix + edit.removed + edit.suffix
    after = edit.prefix + edit.added + edit.suffix
    is_cold = edit.is_cold(card.provider)
    left = _calls(card, edit, before, 0 if is_cold else before)
    ideal = _calls(card, edit, after, 0 if is_cold else after)
    edited = _calls(card, edit, after, 0 if is_cold else edit.prefix)
    return CostVerdict(saves=left - ideal, costs=edited - ideal, known=card.input_price is not None)


def _calls(card: ModelCard, edit: PromptEdit, size: int, cached: int) -> int:
    """What the expected calls cost with a prompt of this size, of which some is cached at the first of them."""
    total = 0
    for _ in range(edit.turns):
        total += bill(card, cached, size - cached + edit.grows, edit.output)
        size += edit.grows
        cached = size
    return total


def remaining_turns(done: int) -> int:
    """How many calls are still to be expected after `done` of them.

    What has lasted long will last: as many again, at least 5 and at most 50. The least is what short tool-using runs
    have left at any point. The most is not passed because the next relief comes before: savings do not outlive the
    prefix they were made in.
    """
    return min(max(done, FEWEST_TURNS), MOST_TURNS)


def stable_prefix(before: Sequence[Piece], after: Sequence[Piece]) -> int:
    """How many tokens of a prompt stand unchanged at the beginning of the next one.

    A piece that changed anywhere counts as changed from its beginning: providers find cached prefixes at such borders.
    """
    tokens = 0
    for (was, cost), (now, _) in zip(before, after, strict=False):
        if was != now:
            break
        tokens += cost
    return tokens


def cached_share(before: Sequence[Piece], after: Sequence[Piece]) -> float:
    """The share of a prompt's tokens that are an unchanged prefix of the one before. 0 for an empty prompt."""
    total = sum(tokens for _, tokens in after)
    return min(1.0, stable_prefix(before, after) / total) if total else 0.0
