"""Measures a window: its pressure, its budgets, and what the prompt that is sent is made of."""

from __future__ import annotations

from recto.context.policies.planner import ReliefRules
from recto.context.window.budget import Budget, BudgetVerdict, Component, ComponentUsage
from recto.context.window.pressure import Pressure, PressureReading, VelocitySpike, compare_readings, measure_prompt
from recto.context.window.state import WindowState, component_of, protected_tokens
from recto.context.window.units import WindowMessage
from recto.engine.projection import SPIKE, VIOLATION, WARNING, ZONE
from recto.engine.prompt_builder import BuiltPrompt, PromptBuilder
from recto.engine.recall_injection import EventAppender
from recto.health.metrics import PromptComposition

_LEVELS = ("ok", "warning", "violation")


class Gauge:
    """Reads one window's states. Budget and rules may change between two readings, so they are given each time."""

    def __init__(self, material: PromptBuilder, tell: EventAppender) -> None:
        self._material = material
        self._tell = tell
        self._reading: PressureReading | None = None

    def pressure(self, state: WindowState, room: int, rules: ReliefRules) -> PressureReading:
        """The pressure of a state, without telling anybody."""
        pressure = Pressure(input_budget=room, thresholds=rules.thresholds, growth=state.growth, turns=state.turn)
        counted = self._material.prompt_tokens(state)
        if not state.reported_tokens:
            return pressure.read(counted)
        added, exact = max(counted - state.counted_tokens, 0), self._material.meter.exact
        # What was quoted for the last question alone is gone by now, and what the provider counted for it too.
        gone = max(state.counted_tokens - counted, 0) * state.reported_tokens // max(state.counted_tokens, 1)
        return pressure.read(measure_prompt(counted, state.reported_tokens - gone, added=added, exact=exact).tokens)

    def usage(self, state: WindowState, budget: Budget) -> tuple[ComponentUsage, ...]:
        """How each component stands with its budget."""
        quoted = self._material.recalled.tokens if self._material.recalled else 0
        foreword = self._material.foreword_cost(self._material.wire_of(state))
        system = state.components()["system"] + foreword + self._material.beside
        beside: dict[Component, int] = {"tools": self._schemas, "memory": quoted, "reserve": budget.reserve}
        beside["system"] = system
        return budget.usage({**state.components(), **beside}, state.burn)

    def check(self, line: WindowMessage, state: WindowState, budget: Budget) -> BudgetVerdict:
        """Whether one more message keeps its component of the budget within its limits; asked before it is added."""
        component = component_of(line)
        return budget.check(component, state.components()[component], line.tokens)

    def measure(self, state: WindowState, budget: Budget, rules: ReliefRules) -> PressureReading:
        """The pressure of a state; a new zone, a budget that is passed and a spike are told."""
        reading = self.pressure(state, budget.input_budget, rules)
        if reading.zone != state.zone:
            about = {"before": state.zone, "after": reading.zone, "utilization": round(reading.utilization, 4)}
            self._tell(ZONE, about)
        for usage in self.usage(state, budget):
            told = _LEVELS.index(state.budget_levels.get(usage.component, "ok"))
            if usage.component != "reserve" and _LEVELS.index(usage.level) > told:  # told once, until something leaves
                kind = VIOLATION if usage.level == "violation" else WARNING
                self._tell(kind, {"component": usage.component, "level": usage.level, "used": usage.used})
        for change in compare_readings(self._reading, reading):
            if isinstance(change, VelocitySpike):
                self._tell(SPIKE, {"gain": change.gain, "baseline": round(change.baseline, 1)})
        self._reading = reading
        return reading

    def made_of(
        self, state: WindowState, built: BuiltPrompt, rules: ReliefRules, *, prefix: int, lag: int
    ) -> PromptComposition:
        """What the prompt is made of that is sent now; costs next to nothing, since it is asked at every turn."""
        return PromptComposition(
            tokens=built.tokens,
            room=rules.input_budget,
            prefix=min(prefix, built.tokens),
            results=state.components()["results"],
            protected=self._material.fixed + protected_tokens(state, rules.protection),
            recalled=self._material.recalled.tokens if self._material.recalled else 0,
            tools=max(self._schemas, 0),
            lag=lag,
            model=rules.card.name if rules.card else "",
        )

    @property
    def _schemas(self) -> int:
        return self._material.schemas
