"""Cost of a prompt when the provider caches its prefix, and whether an edit pays off.

Providers charge a fraction of the price for an unchanged prefix and more than the price for everything after the first
change. Removing tokens from the middle therefore saves a little on every later call and once costs rewriting everything
after them. This module weighs the two; it postpones nothing itself and does not read the content.

Amounts are whole picodollars. A step is one model call, which is the unit of billing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct, field

from recto.text.lazy_re import lazy_re
from recto.tokens.model_card import ModelCard

PromptPiece: TypeAlias = tuple[Hashable, int]
"""One piece of a prompt: its identity (its bytes or a hash of them) and its tokens."""

DEFAULT_CACHE_MINIMUM = 1024
"""Minimum cacheable prefix assumed for models that do not state one; it is the most common value."""

CACHE_LIFETIMES: Mapping[str, float] = MappingProxyType({"anthropic": 300.0, "openai": 86_400.0})
"""Seconds of idle time after which a cache is cold, where the client's cache marks ask for no other lifetime. Providers
not listed promise none, so their caches are never certainly cold."""
_EXPIRING = 0.8
"""Share of its lifetime after which a cache is about to expire: it may be cold before the prompt arrives."""
_REQUESTED_LIFETIME = lazy_re(
    rb'"(?:cache_control|prompt_cache_breakpoint)"\s{0,9}:\s{0,9}\{[^{}]{0,200}?"ttl"\s{0,9}:\s{0,9}"(\d{1,4})([smh])"'
)

MIN_REMAINING_STEPS = 5
MAX_REMAINING_STEPS = 50


class Rates(Struct, frozen=True, kw_only=True):
    """Prices for a prompt of a certain length, in picodollars per token."""

    fresh: int
    """Input that is neither read from nor written to the cache."""
    read: int
    write: int
    output: int
    known: bool = True
    """False if the values are only relative to each other."""


RELATIVE_RATES = Rates(fresh=1_000_000, read=100_000, write=1_250_000, output=5_000_000, known=False)
"""For models without known prices: typical ratios, with fresh input as 1."""


def rates_for(card: ModelCard, tokens: int) -> Rates:
    """Prices for a prompt of this length.

    Without a cache-read price there is no discount; without a cache-write price writing costs as much as fresh input.
    Above `long_from`, prices that are not listed rise in proportion to the input price.
    """
    if card.input_price is None:
        return RELATIVE_RATES
    fresh = card.input_price
    read = fresh if card.cache_read_price is None else card.cache_read_price
    write = fresh if card.cache_write_price is None else card.cache_write_price
    output = fresh * RELATIVE_RATES.output // RELATIVE_RATES.fresh if card.output_price is None else card.output_price
    if card.long_from is None or tokens <= card.long_from:
        return Rates(fresh=fresh, read=read, write=write, output=output)
    long = fresh if card.long_input_price is None else card.long_input_price

    def scaled_price(price: int, listed: int | None) -> int:
        if listed is not None:
            return listed
        return price * long // fresh if fresh else long

    return Rates(
        fresh=long,
        read=scaled_price(read, card.long_cache_read_price),
        write=scaled_price(write, None),
        output=scaled_price(output, card.long_output_price),
    )


def call_price(card: ModelCard, prefix_tokens: int, fresh_tokens: int, output: int = 0) -> int:
    """Price of one call whose first `prefix_tokens` were sent before, unchanged.

    A prefix shorter than the provider's minimum is not read from the cache, and a prompt shorter than it is not
    written.
    """
    total = prefix_tokens + fresh_tokens
    minimum = DEFAULT_CACHE_MINIMUM if card.cache_minimum is None else card.cache_minimum
    prices = rates_for(card, total)
    output_price = output * prices.output
    if total < minimum:
        return total * prices.fresh + output_price
    read = prefix_tokens if prefix_tokens >= minimum else 0
    return read * prices.read + (total - read) * prices.write + output_price


def cached_tokens(card: ModelCard | None, prefix_tokens: int, fresh_tokens: int) -> tuple[int, int]:
    """Tokens of one call read from the cache and written to it, consistent with `call_price`.

    A price list without a cache-read price means no caching; without a cache-write price, writes are billed as fresh
    input and count as 0. If no prices are known, the tokens that could be read are returned.
    """
    total = prefix_tokens + fresh_tokens
    minimum = DEFAULT_CACHE_MINIMUM if card is None or card.cache_minimum is None else card.cache_minimum
    if total < minimum:
        return 0, 0
    reads = card is None or card.input_price is None or card.cache_read_price is not None
    read = prefix_tokens if reads and prefix_tokens >= minimum else 0
    writes = card is not None and card.input_price is not None and card.cache_write_price is not None
    return read, total - read if writes else 0


class CacheAge(Struct, frozen=True, kw_only=True):
    """How long the provider's cache of a session was not used, and how long it lives."""

    idle: float = 0.0
    """Seconds since the last call; infinite if there was none."""
    ttl: float | None = None
    """Lifetime of a cached prefix in seconds, if the client asked for one; else the provider's default."""

    def lifetime(self, provider: str) -> float:
        """Seconds of idle time after which the cache is cold."""
        return CACHE_LIFETIMES.get(provider, inf) if self.ttl is None else self.ttl

    def is_cold(self, provider: str) -> bool:
        """Whether the cache is certainly cold."""
        return self.idle >= self.lifetime(provider)

    def is_expiring(self, provider: str) -> bool:
        """Whether a call was made before and its cache is cold or about to expire."""
        return _EXPIRING * self.lifetime(provider) <= self.idle < inf


def requested_lifetime(payloads: Iterable[bytes]) -> float | None:
    """The longest cache lifetime, in seconds, that cache marks in these payloads ask for; None if none does."""
    seconds = {b"s": 1.0, b"m": 60.0, b"h": 3600.0}
    # Looked for in every prompt: tools and system text are long, and most clients name no lifetime.
    named = (payload for payload in payloads if b'"ttl"' in payload)
    asked = [match for payload in named for match in _REQUESTED_LIFETIME.findall(payload)]
    return max((int(number) * seconds[unit] for number, unit in asked), default=None)


class PromptEdit(Struct, frozen=True, kw_only=True):
    """An edit of the prompt before the next call, in tokens."""

    prefix: int
    """Tokens before the edit, unchanged."""
    removed: int
    suffix: int
    """Tokens after the edit, which must be written to the cache again."""
    steps: int
    """Model calls still expected, including the next one."""
    added: int = 0
    """Tokens added in place of the removed ones: markers, placeholders, a summary."""
    grows: int = 0
    """Tokens each call adds at the end. Determines how long a prompt stays below a price step."""
    output: int = 0
    """Output tokens of each call."""
    cache: CacheAge = field(default_factory=CacheAge)

    def __post_init__(self) -> None:
        if min(self.prefix, self.removed, self.suffix, self.steps, self.added, self.grows, self.output) < 0:
            raise ValueError("an edit has no negative amounts")


class CostVerdict(Struct, frozen=True, kw_only=True):
    """Financial effect of an edit over all calls still expected."""

    saves: int
    """Savings, had the prompt been short from the start."""
    costs: int
    """One-time cost of writing to the cache again."""
    known: bool = True
    """False if the model's prices are unknown and the amounts are relative."""

    @property
    def net(self) -> int:
        """Savings minus costs."""
        return self.saves - self.costs

    @property
    def pays(self) -> bool:
        """Whether the edit is cheaper than not editing."""
        return self.net > 0


def weigh_edit(card: ModelCard, edit: PromptEdit) -> CostVerdict:
    """Compute whether an edit pays off.

    With a warm cache and no price step in reach this compares removed × steps × read with suffix × (write − read). With
    a cold cache everything is written again in any case, and the edit is free. A prompt that falls below `long_from`
    saves the price difference as long as it stays there.
    """
    before = edit.prefix + edit.removed + edit.suffix
    after = edit.prefix + edit.added + edit.suffix
    is_cold = edit.cache.is_cold(card.provider)
    unedited = _expected_price(card, edit, before, 0 if is_cold else before)
    ideal = _expected_price(card, edit, after, 0 if is_cold else after)
    edited = _expected_price(card, edit, after, 0 if is_cold else edit.prefix)
    return CostVerdict(saves=unedited - ideal, costs=edited - ideal, known=card.input_price is not None)


def _expected_price(card: ModelCard, edit: PromptEdit, size: int, cached: int) -> int:
    """Price of the expected calls for a prompt of this size, of which `cached` tokens are cached at the first call."""
    total = 0
    for _ in range(edit.steps):
        total += call_price(card, cached, size - cached + edit.grows, edit.output)
        size += edit.grows
        cached = size
    return total


def remaining_steps(done: int) -> int:
    """Estimate how many calls follow after `done` of them.

    As many again, at least 5 and at most 50. The minimum is what short tool-using runs have left at any point. The
    maximum holds because the next relief comes before it, and savings do not outlive their prefix.
    """
    return min(max(done, MIN_REMAINING_STEPS), MAX_REMAINING_STEPS)


def stable_prefix(before: Iterable[PromptPiece], after: Iterable[PromptPiece]) -> int:
    """Tokens of a prompt that are an unchanged prefix of the next one.

    A piece that changed anywhere counts as changed from its beginning: providers look up cached prefixes at such
    boundaries.
    """
    tokens = 0
    for (was, cost), (now, _) in zip(before, after, strict=False):
        if was != now:
            break
        tokens += cost
    return tokens


def cached_share(before: Sequence[PromptPiece], after: Sequence[PromptPiece]) -> float:
    """Share of a prompt's tokens that are an unchanged prefix of the previous one. 0 for an empty prompt."""
    total = sum(tokens for _, tokens in after)
    return min(1.0, stable_prefix(before, after) / total) if total else 0.0
