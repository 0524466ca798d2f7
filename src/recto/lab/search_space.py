"""Which settings `recto tune` tries, within which bounds, and how a candidate becomes settings and a file.

Only what changes what a replay measures is tried. What keeps a promise is not: what is pinned, the task, the reserve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from recto.config import Settings
from recto.config.factory import model_card
from recto.config.loader import override
from recto.context.window.budget import Budget
from recto.context.window.pressure import Thresholds
from recto.lab.isolation import apart
from recto.lab.objective import Candidate, Dimension, Value, changed

WINDOW = "window"
"""The name of the dimension that is no setting but the model's: how large its window is."""
_POLICIES = ("prune", "fifo", "lru", "priority", "semantic_merge", "type_ttl", "hybrid")
_POLICY = "window.policy"
_SCORER = "window.scorer."
_WEIGHTS: Mapping[str, tuple[tuple[str, Value, float, float, float], ...]] = {
    "lru": (("shared", 2, 1, 4, 1),),
    "priority": (
        ("recency", 0.3, 0, 1, 0.05),
        ("relevance", 0.25, 0, 1, 0.05),
        ("source", 0.2, 0, 1, 0.05),
        ("reuse", 0.15, 0, 1, 0.05),
    ),
    "semantic_merge": (("threshold", 0.85, 0.6, 0.95, 0.05),),
    "type_ttl": (("tool", 6, 2, 30, 1), ("assistant", 16, 4, 40, 1)),
    "hybrid": (
        ("weights.fifo", 0.0, 0, 1, 0.05),
        ("weights.lru", 0.4, 0, 1, 0.05),
        ("weights.priority", 0.4, 0, 1, 0.05),
        ("weights.type_ttl", 0.2, 0, 1, 0.05),
        ("weights.semantic_merge", 0.0, 0, 1, 0.05),
    ),
}
"""What an eviction policy weighs: name, usual value, bounds and step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The settings that are tuned, and the window they are tuned in."""

    settings: Settings
    """As they are, set apart from everything of the user's."""
    smallest: int | None = None
    """The smallest window that may be tried; None: only the one that it is."""
    model: str = ""
    """As somebody named it; empty where nobody did."""

    @property
    def budget(self) -> Budget:
        """What a prompt may have, in the largest window."""
        given = self.settings.window
        card = model_card(self.settings)
        return Budget.for_model(card, given.profile, reserve=given.reserve or None, enforced=given.enforced)

    def space(self) -> tuple[Dimension, ...]:
        """What is tried. Bounds are widened where a value lies outside of them as it is."""
        return tuple(_widened(one) for one in self._dimensions())

    def under(self, values: Candidate) -> Settings:
        """The settings with the values of a candidate."""
        settings = apart(self.settings, window=int(values[WINDOW])) if WINDOW in values else self.settings
        return override(settings, self.tree(values))

    def tree(self, values: Candidate) -> dict[str, Any]:
        """What a candidate changes, as a file of settings has it. The window is the model's, and not among it."""
        own = changed(self.space(), values)
        own.pop(WINDOW, None)
        given = self.settings.window.scorer
        if _POLICY in own:
            tree = _nested(own)
            if given:  # what was set for one policy means nothing to another
                tree["window"].setdefault("scorer", {})
            return tree
        # A scorer is replaced as a whole: what is set for it and not tried goes with what is.
        kept = {f"{_SCORER}{name}": value for name, value in _leaves_of(given)} if _weighed(own) else {}
        return _nested({**kept, **own})

    def _dimensions(self) -> Iterator[Dimension]:
        mode, window, room = self.settings.window.mode, self.settings.window, self.budget.input_budget
        if self.smallest is not None:
            yield Dimension(name=WINDOW, given=self.budget.window, low=self.smallest, high=self.budget.window)
        yield from self._recalling(room)
        yield _percent("window.floor_percent", window.floor_percent, 40, 90 if mode == "sliding_window" else 74)
        if mode == "auto_compact":
            yield from self._compacting(room)
            return
        if mode == "zones":
            yield from self._cascade(room)
        else:
            yield _percent("window.ceiling_percent", window.ceiling_percent, 75, 98)
        yield _whole("window.min_recent_messages", window.min_recent_messages, 4, 48, 1)
        yield from self._leaving()

    def _leaving(self) -> Iterator[Dimension]:
        given = self.settings.window
        yield Dimension(name=_POLICY, given=given.policy, options=_POLICIES)
        own = dict(_leaves_of(given.scorer))
        for policy, weights in _WEIGHTS.items():
            for name, usual, low, high, step in weights:
                value = usual
                if policy == given.policy:  # a weight that is not named beside others is none
                    value = type(usual)(own.get(name, 0 if "weights" in given.scorer else usual))
                beside = (_POLICY, policy)
                yield Dimension(name=f"{_SCORER}{name}", given=value, low=low, high=high, step=step, only_with=beside)

    def _recalling(self, room: int) -> Iterator[Dimension]:
        given = self.settings.recall
        if given.enabled and given.inject:
            usual = given.tokens or self.budget.limits["memory"].hard
            yield _whole("recall.tokens", usual, room // 50, room // 4)
            yield Dimension(name="recall.threshold", given=given.threshold, low=0.05, high=0.9, step=0.05)
            yield _whole("recall.most", given.most, 4, 32, 1)

    def _compacting(self, room: int) -> Iterator[Dimension]:
        window = self.settings.window
        yield _percent("window.compact_target_percent", window.compact_target_percent, 85, 98)
        yield _percent("window.checkpoint_warning_percent", window.checkpoint_warning_percent, 60, 84)
        yield from self._summaries(room)
        yield _whole("compress.handoff_tokens", min(self.settings.compress.handoff_tokens, room // 20), 100, room // 20)

    def _summaries(self, room: int) -> Iterator[Dimension]:
        kept = min(self.settings.window.keep_recent_tokens, room * 2 // 5)
        yield _whole("window.keep_recent_tokens", kept, room // 10, room * 2 // 5)
        written = min(self.settings.compress.summary_tokens, room // 8)
        yield _whole("compress.summary_tokens", max(written, 200), 200, max(room // 8, 201))

    def _cascade(self, room: int) -> Iterator[Dimension]:
        window, compress = self.settings.window, self.settings.compress
        usual = Thresholds.for_window(self.budget.window)
        orange = window.orange_percent or round(100 * usual.orange)
        red = window.red_percent or round(100 * usual.red)
        yield _percent("window.yellow_percent", window.yellow_percent or round(100 * usual.yellow), 30, 60)
        yield _percent("window.orange_percent", orange, 62, min(84, red - 1))
        yield _percent("window.red_percent", red, 86, 97)
        yield _whole("compress.result_tokens", compress.result_tokens, 150, 2_000)
        yield Dimension(name="compress.result_share", given=compress.result_share, low=0.05, high=0.5, step=0.05)
        yield _whole("window.trim.keep_newest", window.trim.keep_newest, 1, 12, 1)
        yield _whole("compress.key_points_turns", compress.key_points_turns, 1, 12, 1)
        yield _whole("compress.line_turns", compress.line_turns, 12, 60, 1)
        yield from self._summaries(room)


def _weighed(values: Candidate) -> bool:
    return any(name.startswith(_SCORER) for name in values)


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[last] = value
    return tree


def _leaves_of(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves_of(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _percent(name: str, given: float, low: float, high: float) -> Dimension:
    return Dimension(name=name, given=float(given), low=low, high=high, step=1)


def _whole(name: str, given: int, low: int, high: int, step: int = 0) -> Dimension:
    return Dimension(name=name, given=given, low=max(low, 1), high=max(high, low + 1, 2), step=step)


def _widened(one: Dimension) -> Dimension:
    if one.options:
        return one if one.given in one.options else replace(one, options=(*one.options, str(one.given)))
    given = float(one.given)
    return replace(one, low=min(one.low, given), high=max(one.high, given))
