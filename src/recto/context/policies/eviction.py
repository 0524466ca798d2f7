"""Policies that evict whole units: the oldest, the lowest-scored, those of tool work alone, or all but the newest.

What is left of the evicted units depends on the policy: nothing (`Prune`, `Evict`), a short text of each exchange
(`Progressive`), or one text in sections (`Compact`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from recto.context.compaction.levels import level_for
from recto.context.facts.types import Level
from recto.context.policies.features import REPEATS, TOTAL, PolicyFeatures, Scorer
from recto.context.policies.scorers import Fifo
from recto.context.window.state import ranges_of
from recto.context.window.units import MergedUnit, Plan, Policy, PolicyView, TextRequest, Unit


class Prune(Struct, frozen=True, kw_only=True):
    """Evict units in the view's order until enough is free."""

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "prune"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, or all that may be evicted, with no unit more than necessary."""
        evicted, frees = take_until(view, view.eligible, need)
        if not evicted:
            return Plan(policy=self.name)
        return Plan(policy=self.name, evicts=evicted, frees=frees, reason=f"oldest first: {describe_units(evicted)}")


def take_until(view: PolicyView, order: Iterable[Unit], need: int) -> tuple[tuple[Unit, ...], int]:
    """The first units of an order that together free `need` tokens, and the tokens they free."""
    evicted: list[Unit] = []
    frees = 0
    for unit in order:
        if frees >= need:
            break
        evicted.append(unit)
        frees += view.cost(unit)
    # Units without cost free nothing: a plan of such units alone would be no relief.
    return (tuple(evicted), frees) if frees > 0 else ((), 0)


def describe_units(evicted: tuple[Unit, ...]) -> str:
    """Describe in words how many units are evicted, and between which entries."""
    first, last = min(unit.first for unit in evicted), max(unit.last for unit in evicted)
    units = "1 unit" if len(evicted) == 1 else f"{len(evicted)} units"
    return f"{units} of entries {first} to {last}"


_MIN_MERGED_TOKENS = 48
"""Cost of the units merged into one that is worth a line in the prompt."""
_MAX_DIGEST_CHARS = 64
_MAX_NAMED_MERGES = 8
"""Merged units named in the reason; the scores contain them all."""


class Evict(Struct, frozen=True, kw_only=True):
    """Evict the lowest-scored units first until enough is free; among equals, the older."""

    scorer: Scorer = field(default_factory=Fifo)
    """Scores the units."""

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return f"evict.{self.scorer.name}"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, or all that may be evicted, with no unit more than necessary."""
        if need <= 0 or not view.eligible:
            return Plan(policy=self.name)
        features = PolicyFeatures(view)
        part_lists = self.scorer.score(features)
        evicted, frees = take_until(view, _eviction_order(view.eligible, [parts[TOTAL] for parts in part_lists]), need)
        scores = {unit.first: parts for unit, parts in zip(view.eligible, part_lists, strict=True)}
        reason = (
            f"lowest {self.scorer.name} score first: {describe_units(evicted)}{_describe_merges(evicted, scores)}"
            if evicted
            else ""
        )
        merges = _merges(features, evicted, scores)
        return Plan(policy=self.name, evicts=evicted, frees=frees, reason=reason, scores=scores, merges=merges)


def _eviction_order(units: Sequence[Unit], totals: Sequence[float]) -> list[Unit]:
    """Order units by score, then by age; the opener of a long exchange comes after everything that answers it."""
    ranks: list[tuple[float, int, bool]] = [(total, index, False) for index, total in enumerate(totals)]
    exchanges: dict[int, list[int]] = defaultdict(list)
    for index, unit in enumerate(units):
        exchanges[unit.exchange].append(index)
    initial_ranks = list(ranks)
    for indexes in exchanges.values():
        opener = next((index for index in indexes if units[index].opens), None)
        if opener is not None and len(indexes) > 1:
            total, index, _ = max(initial_ranks[index] for index in indexes)
            ranks[opener] = (total, index, True)
    return [units[index] for index in sorted(range(len(units)), key=ranks.__getitem__)]


def _repeated(evicted: Sequence[Unit], scores: Mapping[int, Mapping[str, float]]) -> dict[int, list[Unit]]:
    """The evicted units that another one repeats which stays, by the first entry of that one."""
    evicted_firsts = {unit.first for unit in evicted}
    groups: dict[int, list[Unit]] = defaultdict(list)
    for unit in evicted:
        newer = scores[unit.first].get(REPEATS)
        if newer is not None and int(newer) not in evicted_firsts:
            groups[int(newer)].append(unit)
    return groups


def _merges(
    features: PolicyFeatures, evicted: Sequence[Unit], scores: Mapping[int, Mapping[str, float]]
) -> tuple[MergedUnit, ...]:
    """The evicted units that are merged into a newer one."""
    merges: list[MergedUnit] = []
    for kept, group in _repeated(evicted, scores).items():
        if sum(map(features.view.cost, group)) < _MIN_MERGED_TOKENS:
            continue
        text = " ".join(features.text(features.units[features.index_of[kept]], 4 * _MAX_DIGEST_CHARS).split())
        digest = text if len(text) <= _MAX_DIGEST_CHARS else f"{text[: _MAX_DIGEST_CHARS - 1]}…"
        for unit in group:
            ranges = tuple((first, last) for first, last in ranges_of(unit.seqs))
            merges.append(MergedUnit(first=unit.first, ranges=ranges, kept=kept, digest=digest))
    return tuple(sorted(merges, key=lambda merged: merged.first))


def _describe_merges(evicted: Sequence[Unit], scores: Mapping[int, Mapping[str, float]]) -> str:
    """Describe which units are evicted because another repeats them, and which one that is."""
    groups = _repeated(evicted, scores)
    newer = {unit.first: kept for kept, group in groups.items() for unit in group}
    pairs = [(unit.first, newer[unit.first]) for unit in evicted if unit.first in newer]
    if not pairs:
        return ""
    named = ", ".join(f"{first} repeats {repeat}" for first, repeat in pairs[:_MAX_NAMED_MERGES])
    more = f" and {len(pairs) - _MAX_NAMED_MERGES} more" if len(pairs) > _MAX_NAMED_MERGES else ""
    return f"; {named}{more}"


LEVEL_COSTS: dict[Level, int] = {"full": 140, "key_points": 140, "one_line": 56, "title": 28}
"""Maximum tokens of an exchange at a level, including its source entries."""


class Progressive(Struct, frozen=True, kw_only=True):
    """Evict exchanges, oldest first, and keep a short text of each, written from the raw messages."""

    key_points_turns: int = 5
    """Up to this age in turns, key points are kept."""
    line_turns: int = 20
    """Up to this age, one line is kept; beyond it, a title."""
    most_tokens: int = 3_000
    """Maximum tokens of all texts, including those written before."""

    def __post_init__(self) -> None:
        if not 0 <= self.key_points_turns <= self.line_turns or self.most_tokens < 1:
            raise ValueError("progressive: key_points_turns must not be above line_turns, most_tokens not below 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "progressive"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, or as many as pay off: an exchange is evicted if its text costs less than it does."""
        newest = max((unit.exchange for unit in (*view.eligible, *view.protected)), default=0)
        evicted: list[Unit] = []
        frees, written = 0, view.written
        seen: set[int] = set()
        for unit in view.eligible:
            if frees >= need:
                break
            level = level_for(newest - unit.exchange, self.key_points_turns, self.line_turns)
            text_tokens = 0 if unit.exchange in seen else LEVEL_COSTS[level]
            if view.cost(unit) <= 2 * text_tokens or written + text_tokens > self.most_tokens:
                continue
            seen.add(unit.exchange)
            evicted.append(unit)
            written += text_tokens
            frees += view.cost(unit) - text_tokens
        if not evicted:
            return Plan(policy=self.name)
        reason = f"older exchanges to key points, a line or a title: {describe_units(tuple(evicted))}"
        request = TextRequest(style="levels", max_tokens=max(written, _FRAME_TOKENS))
        return Plan(policy=self.name, evicts=tuple(evicted), frees=frees, reason=reason, writes=request)


_FRAME_TOKENS = 100
"""Tokens of the text's frame."""


class ToolUnitsOnly(Struct, frozen=True):
    """Shows a policy only the units that consist of nothing but calls and their results."""

    policy: Policy

    @property
    def name(self) -> str:
        """Name of the wrapped policy."""
        return self.policy.name

    def plan(self, view: PolicyView, need: int) -> Plan:
        """The wrapped policy's plan for these units."""
        features = PolicyFeatures(view)
        tool_units = [unit for unit in view.eligible if features.kind(unit) == "tool"]
        other_units = [unit for unit in view.eligible if features.kind(unit) != "tool"]
        return self.policy.plan(replace(view, eligible=tool_units, protected=(*view.protected, *other_units)), need)


class Compact(Struct, frozen=True, kw_only=True):
    """Compact the older part of the conversation."""

    name: Literal["compact", "delegate", "new_window"] = "compact"
    """Name in settings and decisions: `delegate` has a sub-agent write, `new_window` is the last resort."""
    keep_recent_tokens: int = 20_000
    """Tokens of the newest messages that stay; whole units only."""
    summary_tokens: int = 3_000
    """Maximum tokens of the text that replaces the evicted messages."""
    least_ratio: float = 2.0
    """Minimum ratio of evicted to written tokens; below it compaction does not pay off."""
    handoff_tokens: int = 600
    """Maximum tokens of a handoff that is shown for one turn afterwards."""
    focus: str = ""
    """What the text must keep above all."""

    def __post_init__(self) -> None:
        if self.keep_recent_tokens < 0 or self.summary_tokens < 1 or self.least_ratio < 1:
            raise ValueError("compact: keep_recent_tokens must not be below 0, summary_tokens and least_ratio below 1")

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Evict all but the newest units, however little is needed, so that a text is written once and not
        repeatedly."""
        evicted = self._older(view)
        frees = sum(view.cost(unit) for unit in evicted)
        # The new text replaces the previous one, whose tokens are freed too.
        max_tokens = min(self.summary_tokens, int((frees + view.written) / self.least_ratio))
        if (
            need <= 0
            or not evicted
            or frees + view.written < self.least_ratio * max_tokens
            or max_tokens < _MIN_SUMMARY_TOKENS
        ):
            return Plan(policy=self.name)
        style: Literal["delegated", "sections"] = "delegated" if self.name == "delegate" else "sections"
        return Plan(
            policy=self.name,
            evicts=evicted,
            frees=frees + view.written - max_tokens,
            reason=f"all but the newest {self.keep_recent_tokens:,} tokens: {describe_units(evicted)}",
            writes=TextRequest(
                style=style, max_tokens=max_tokens, focus=self.focus, handoff_tokens=self.handoff_tokens
            ),
        )

    def _older(self, view: PolicyView) -> tuple[Unit, ...]:
        """Evictable units that are not among the newest."""
        evictable = {unit.first for unit in view.eligible}
        newer_tokens = 0
        older: list[Unit] = []
        for unit in sorted((*view.eligible, *view.protected), key=lambda unit: unit.last, reverse=True):
            newer_tokens += view.cost(unit)
            if newer_tokens > self.keep_recent_tokens and unit.first in evictable:
                older.append(unit)
        return tuple(sorted(older, key=lambda unit: unit.first))


_MIN_SUMMARY_TOKENS = 150
"""Below this many tokens a text in sections carries no information."""
