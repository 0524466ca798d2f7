"""Measures a window: its pressure, its budgets, and what the prompt that is sent is made of.

Every function here is pure: it takes a state and the builder of its prompt, and returns values. `measure` returns the
events that should be recorded; the window appends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from recto.context.policies.planner import ReliefRules
from recto.context.window.budget import COMPONENTS, Budget, BudgetVerdict, Component, ComponentUsage
from recto.context.window.pressure import (
    PLAUSIBLE_RATIOS,
    Pressure,
    PressureReading,
    PromptSize,
    Source,
    VelocitySpike,
    compare_readings,
    measure_prompt,
    source_of,
)
from recto.context.window.state import WindowState, component_of, lasting_tokens, protected_tokens
from recto.context.window.units import WindowMessage
from recto.engine.projection import SPIKE, VIOLATION, WARNING, ZONE
from recto.engine.prompt_builder import BuiltPrompt, PromptBuilder
from recto.health.metrics import PromptComposition

_LEVELS = ("ok", "warning", "violation")


class Measurement(Struct, frozen=True, kw_only=True):
    """The pressure of a state, and the events to record for it: a new zone, a passed budget, a spike."""

    reading: PressureReading
    events: tuple[tuple[str, Mapping[str, Any]], ...]


def pressure_of(
    state: WindowState, builder: PromptBuilder, rules: ReliefRules, input_budget: int, used: int | None = None
) -> PressureReading:
    """The pressure of a state. `used` are the tokens of its prompt, where they are known already."""
    warned = state.warned_window
    believed = warned >= PLAUSIBLE_RATIOS[0] * input_budget
    pressure = Pressure(
        input_budget=min(input_budget, warned) if believed else input_budget,
        thresholds=rules.thresholds,
        growth=state.growth.over(rules.velocity_turns),
        turns=state.turn,
        spike_factor=rules.spike_factor,
    )
    counted = builder.prompt_tokens(state) if used is None else used
    exact = builder.messages.meter.exact
    size, source = prompt_size(state, counted, exact=exact)
    return pressure.read(size.tokens, source, state.tokens)


def prompt_size(state: WindowState, counted: int, *, exact: bool) -> tuple[PromptSize, Source]:
    """The size of the prompt of a state, by the newest report or budget warning and our own count since; its source."""
    if state.warned_tokens:
        added = max(state.tokens - state.warned_at, 0)
        size = measure_prompt(counted, state.warned_tokens, added=added, exact=exact)
        if size.tokens != counted:
            return size, "warning"
    size = _reported_size(state, counted, exact=exact)
    return size, source_of(size, counted, exact=exact)


def _reported_size(state: WindowState, counted: int, *, exact: bool) -> PromptSize:
    if not state.reported_tokens:
        return PromptSize(counted, None)
    added = max(counted - state.counted_tokens, 0)
    # What was quoted for the last question alone is gone by now, and so is what the provider counted for it.
    removed = max(state.counted_tokens - counted, 0) * state.reported_tokens // max(state.counted_tokens, 1)
    return measure_prompt(counted, state.reported_tokens - removed, added=added, exact=exact)


def usage_of(state: WindowState, builder: PromptBuilder, budget: Budget) -> tuple[ComponentUsage, ...]:
    """What each component uses of its budget."""
    return budget.usage(_used_by(state, builder, budget, builder.marker_cost(state)), state.burn)


def _used_by(state: WindowState, builder: PromptBuilder, budget: Budget, marker: int) -> dict[Component, int]:
    """The tokens of each component; `marker` are those of the marker."""
    extras = builder.extras
    used = state.components()
    used["tools"] = extras.tools
    used["memory"] = extras.digest + (extras.recalled.tokens if extras.recalled else 0)
    used["reserve"] = budget.reserve
    used["system"] += builder.foreword_cost(builder.wire_of(state)) - extras.digest + extras.system
    used["history"] += marker
    return used


def check_budget(line: WindowMessage, state: WindowState, budget: Budget) -> BudgetVerdict:
    """Whether one more message keeps its component of the budget within its limits; called before it is added."""
    component = component_of(line)
    return budget.check(component, state.components()[component], line.tokens)


def measure(
    state: WindowState,
    builder: PromptBuilder,
    used: int,
    rules: ReliefRules,
    budget: Budget,
    previous: PressureReading | None,
    marker: int,
) -> Measurement:
    """The pressure of a state whose prompt has `used` tokens, and what has changed since the previous reading.

    `marker` are the tokens of its marker. Measured for every prompt, so it must stay cheap.
    """
    marker += builder.notes_cost(state)
    reading = pressure_of(state, builder, rules, budget.input_budget, used)
    events: list[tuple[str, Mapping[str, Any]]] = []
    if reading.zone != state.zone:
        change = {"before": state.zone, "after": reading.zone, "utilization": round(reading.utilization, 4)}
        events.append((ZONE, change))
    # A prompt with tokens to spare has no component that takes too many of them.
    if budget.enforced == "per_component" or reading.zone != "green":
        events += _passed_limits(state, rules, budget, _used_by(state, builder, budget, marker), marker)
    spikes = [found for found in compare_readings(previous, reading) if isinstance(found, VelocitySpike)]
    events += [(SPIKE, {"gain": spike.gain, "baseline": round(spike.baseline, 1)}) for spike in spikes]
    return Measurement(reading=reading, events=tuple(events))


def _passed_limits(
    state: WindowState, rules: ReliefRules, budget: Budget, used: Mapping[Component, int], marker: int
) -> list[tuple[str, Mapping[str, Any]]]:
    """The events for components above their limits. A level is recorded once, until an edit takes it back."""
    events: list[tuple[str, Mapping[str, Any]]] = []
    for component in COMPONENTS:
        level, limit = budget.level(component, used[component]), budget.limits[component].hard
        if _LEVELS.index(level) <= _LEVELS.index(state.budget_levels.get(component, "ok")):
            continue
        payload: dict[str, Any] = {"component": component, "level": level, "used": used[component], "limit": limit}
        if level == "violation" and component in rules.component_rules:
            payload["protected"] = lasting_tokens(state, rules.protection, component)
            payload["protected"] += marker if component == "history" else 0
            if payload["protected"] <= limit:
                continue  # relief brings it below the limit before the next prompt
        events.append((VIOLATION if level == "violation" else WARNING, payload))
    return events


def composition_of(
    state: WindowState,
    builder: PromptBuilder,
    built: BuiltPrompt,
    rules: ReliefRules,
    budget: Budget,
    *,
    prefix: int,
    lag: int,
    reader: str,
) -> PromptComposition:
    """What the prompt that is sent consists of, but its pieces. Computed for every prompt, so it must stay cheap."""
    extras = builder.extras
    return PromptComposition(
        tokens=built.tokens,
        room=rules.input_budget,
        prefix=min(prefix, built.tokens),
        results=state.components()["results"],
        protected=extras.fixed + protected_tokens(state, rules.protection),
        recalled=extras.recalled.tokens if extras.recalled else 0,
        tools=max(extras.tools, 0),
        lag=lag,
        model=rules.card.name if rules.card else "",
        system=extras.system,
        window=budget.window,
        reserve=budget.reserve + extras.answer,
        wire=built.wire,
        reader=reader,
    )
