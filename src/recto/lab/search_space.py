"""The settings that `recto lab tune` tries, their bounds, and how a candidate becomes settings and a file.

Only settings that change what a replay measures are tried, and none that keeps a promise: pins, the task, the output
reserve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from recto.config import Settings
from recto.config.factory import model_card
from recto.config.loader import override
from recto.config.modes import floor_share, make_budget
from recto.context.window.budget import Budget, Thresholds
from recto.lab.isolation import isolated
from recto.lab.objective import Candidate, Dimension, Value, changed_values

WINDOW = "window"
"""The dimension that is no setting but the model's context window."""
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
"""Parameters of the eviction policies: name, default, bounds and step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The settings to tune and the window they are tuned in."""

    settings: Settings
    """The current settings, isolated from the user's data."""
    smallest: int | None = None
    """The smallest window to try; None to try only the current one."""
    model: str = ""
    """The model name from the command line or the settings; may be empty."""

    @property
    def budget(self) -> Budget:
        """The token budget in the largest window."""
        return make_budget(self.settings.window, model_card(self.settings))

    def space(self) -> tuple[Dimension, ...]:
        """Returns the dimensions to try. Bounds are widened to contain the current value."""
        return tuple(_widened(dimension) for dimension in self._dimensions())

    def apply(self, values: Candidate) -> Settings:
        """Returns the settings with the values of a candidate."""
        settings = isolated(self.settings, window=int(values[WINDOW])) if WINDOW in values else self.settings
        return override(settings, self.tree(values))

    def tree(self, values: Candidate) -> dict[str, Any]:
        """Returns what a candidate changes, in the structure of a settings file. The window is the model's and not
        included.
        """
        changes = changed_values(self.space(), values)
        changes.pop(WINDOW, None)
        scorer = self.settings.window.scorer
        if _POLICY in changes:
            tree = _nested(changes)
            if scorer:  # settings of one policy mean nothing to another
                tree["window"].setdefault("scorer", {})
            return tree
        # A scorer is replaced as a whole, so its settings that are not tried are repeated.
        unchanged = (
            {f"{_SCORER}{name}": value for name, value in _leaves_of(scorer)} if _changes_weights(changes) else {}
        )
        return _nested({**unchanged, **changes})

    def _dimensions(self) -> Iterator[Dimension]:
        mode, window, input_budget = self.settings.window.mode, self.settings.window, self.budget.input_budget
        if self.smallest is not None:
            yield Dimension(name=WINDOW, current=self.budget.window, low=self.smallest, high=self.budget.window)
        yield from self._recall_dimensions(input_budget)
        highest = min(90, int(window.ceiling_percent) - 2) if mode == "sliding_window" else 74
        floor = round(floor_share(window, self.budget.window) * 100)
        yield _percent("window.floor_percent", floor, 40, max(highest, floor))
        if mode == "auto_compact":
            yield from self._compaction_dimensions(input_budget)
            return
        if mode == "zones":
            yield from self._zone_dimensions(input_budget)
        else:
            lowest = min(max(75, floor + 2), int(window.ceiling_percent))
            yield _percent("window.ceiling_percent", window.ceiling_percent, lowest, 98)
        yield _integer("window.min_recent_messages", window.min_recent_messages, 4, 48, 1)
        yield from self._policy_dimensions()

    def _policy_dimensions(self) -> Iterator[Dimension]:
        window = self.settings.window
        yield Dimension(name=_POLICY, current=window.policy, options=_POLICIES)
        weights_now = dict(_leaves_of(window.scorer))
        for policy, weights in _WEIGHTS.items():
            for name, default, low, high, step in weights:
                value = default
                if policy == window.policy:  # with explicit weights, one that is not named is 0
                    value = type(default)(weights_now.get(name, 0 if "weights" in window.scorer else default))
                only_with = (_POLICY, policy)
                yield Dimension(
                    name=f"{_SCORER}{name}", current=value, low=low, high=high, step=step, only_with=only_with
                )

    def _recall_dimensions(self, input_budget: int) -> Iterator[Dimension]:
        recall = self.settings.recall
        if recall.enabled and recall.inject:
            tokens = recall.tokens or self.budget.limits["memory"].hard
            yield _integer("recall.tokens", tokens, input_budget // 50, input_budget // 4)
            yield Dimension(name="recall.threshold", current=recall.threshold, low=0.05, high=0.9, step=0.05)
            yield _integer("recall.most", recall.most, 4, 32, 1)

    def _compaction_dimensions(self, input_budget: int) -> Iterator[Dimension]:
        window = self.settings.window
        yield _percent("window.compact_target_percent", window.compact_target_percent, 85, 98)
        yield _percent("window.checkpoint_warning_percent", window.checkpoint_warning_percent, 60, 84)
        yield from self._summary_dimensions(input_budget)
        yield _integer(
            "compress.handoff_tokens",
            min(self.settings.compress.handoff_tokens, input_budget // 20),
            100,
            input_budget // 20,
        )

    def _summary_dimensions(self, input_budget: int) -> Iterator[Dimension]:
        recent = min(self.settings.window.keep_recent_tokens, input_budget * 2 // 5)
        yield _integer("window.keep_recent_tokens", recent, input_budget // 10, input_budget * 2 // 5)
        summary = min(self.settings.compress.summary_tokens, input_budget // 8)
        yield _integer("compress.summary_tokens", max(summary, 200), 200, max(input_budget // 8, 201))

    def _zone_dimensions(self, input_budget: int) -> Iterator[Dimension]:
        window, compress = self.settings.window, self.settings.compress
        defaults = Thresholds.for_window(self.budget.window)
        orange = window.orange_percent or round(100 * defaults.orange)
        red = window.red_percent or round(100 * defaults.red)
        yield _percent("window.yellow_percent", window.yellow_percent or round(100 * defaults.yellow), 30, 60)
        yield _percent("window.orange_percent", orange, 62, min(84, red - 1))
        yield _percent("window.red_percent", red, 86, 97)
        yield _integer("compress.result_tokens", compress.result_tokens, 150, 2_000)
        yield Dimension(name="compress.result_share", current=compress.result_share, low=0.05, high=0.5, step=0.05)
        yield _integer("window.trim.keep_newest", window.trim.keep_newest, 1, 12, 1)
        yield _integer("compress.key_points_turns", compress.key_points_turns, 1, 12, 1)
        yield _integer("compress.line_turns", compress.line_turns, 12, 60, 1)
        yield from self._summary_dimensions(input_budget)


def _changes_weights(values: Candidate) -> bool:
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


def _percent(name: str, current: float, low: float, high: float) -> Dimension:
    return Dimension(name=name, current=float(current), low=low, high=high, step=1)


def _integer(name: str, current: int, low: int, high: int, step: int = 0) -> Dimension:
    return Dimension(name=name, current=current, low=max(low, 1), high=max(high, low + 1, 2), step=step)


def _widened(dimension: Dimension) -> Dimension:
    if dimension.options:
        return (
            dimension
            if dimension.current in dimension.options
            else replace(dimension, options=(*dimension.options, str(dimension.current)))
        )
    current = float(dimension.current)
    return replace(dimension, low=min(dimension.low, current), high=max(dimension.high, current))
