"""One plan's look at a view: texts, terms and what is used again, read when first asked for.

A survey lives while its plan is made and is the only place where policies keep anything. However many units
there are, the characters it looks at for terms are bounded, so that a plan over thousands of units stays quick.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import Final, Literal, Protocol, TypeAlias

from recto.context.window.plan import PolicyView
from recto.context.window.units import Line, Unit
from recto.text.identifiers import MOST, Known, ends_of, terms

TOTAL: Final = "total"
"""The part of a score that decides."""
REPEATS: Final = "repeats"
"""The part of a score that names, by its first entry, another unit that says the same."""

Parts: TypeAlias = dict[str, float]
"""A score, taken apart: `TOTAL`, and whatever went into it."""

Kind: TypeAlias = Literal["tool", "assistant", "error", "decision", "user"]

CHARACTERS = 240_000
"""Characters that are looked at for terms in one plan, all units together."""
_LEAST = 60
"""Characters of an entry that are looked at, however many there are."""

_ERRORS = ("rror:", "xception:", "Traceback (", "FAIL", "panic:", "fatal:", "tool_use_error", "ermission denied")
_FAILED = re.compile(r"xit (?:code|status):? [1-9]")
_DECISIONS = ("decided", "ecision:", "e will use", "e'll use", "o with ", "instead of", "must not", "must never")


class Scorer(Protocol):
    """Says what the units of a view are worth. Pure, and total: it has a finite score for every unit."""

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        ...

    def weigh(self, survey: PolicyFeatures) -> list[Parts]:
        """The score of each unit that may leave, in their order. The lowest `TOTAL` leaves first."""
        ...


class PolicyFeatures:
    """What scorers ask about a view."""

    def __init__(self, view: PolicyView) -> None:
        self.view = view
        self.units: list[Unit] = sorted((*view.eligible, *view.protected), key=lambda unit: unit.first)
        """Everything in the prompt, oldest first."""
        self.places: dict[int, int] = {unit.first: place for place, unit in enumerate(self.units)}
        """Where each unit stands in `units`, by its first entry."""
        self._newest = max((unit.exchange for unit in self.units), default=0)
        self._again: dict[tuple[int, float], tuple[list[int], int]] = {}
        self._kinds: dict[int, Kind] = {}
        self._texts: dict[int, tuple[str, ...]] = {}

    def age(self, unit: Unit) -> int:
        """Turns since the unit: exchanges, or inside a long tool loop the steps that came after."""
        return max(self._newest - unit.exchange, len(self.units) - 1 - self.places[unit.first])

    def recency(self, unit: Unit) -> float:
        """From 0 for the oldest unit in the prompt to 1 for the newest."""
        return self.places[unit.first] / max(1, len(self.units) - 1)

    def kind(self, unit: Unit) -> Kind:
        """What a unit is kept for: a unit leaves whole, so the most lasting thing in it decides."""
        found = self._kinds.get(unit.first)
        if found is None:
            found = self._kinds[unit.first] = self._kind(unit)
        return found

    def _kind(self, unit: Unit) -> Kind:
        if any(line.role in ("user", "system") for line in unit.lines):
            return "user"
        said = list(zip((line.role for line in unit.lines), self._look(unit), strict=True))
        if any(role == "assistant" and _any_of(_DECISIONS, text) for role, text in said):
            return "decision"
        if any(role == "tool" and _is_error(text) for role, text in said):
            return "error"
        return "tool" if any(line.role == "tool" for line in unit.lines) else "assistant"

    def text(self, unit: Unit, most: int) -> str:
        """What the unit says, of each entry at most so many characters."""
        return "\n".join(self._ends(line, most) for line in unit.lines)

    @cached_property
    def terms(self) -> list[frozenset[str]]:
        """The terms of each of `units`."""
        known: Known = {}
        return [terms("\n".join(self._look(unit)), MOST, known) for unit in self.units]

    @cached_property
    def goal(self) -> frozenset[str]:
        """The terms of the task."""
        return terms(self.view.goal)

    @cached_property
    def last_seen(self) -> dict[str, int]:
        """The place of the newest unit that has a term, by term."""
        seen: dict[str, int] = {}
        for place, found in enumerate(self.terms):
            seen.update(dict.fromkeys(found, place))
        return seen

    @cached_property
    def spread(self) -> Counter[str]:
        """How many units have a term, by term."""
        number: Counter[str] = Counter()
        for found in self.terms:
            number.update(found)
        return number

    def seen_again(self, unit: Unit, common: float) -> tuple[list[int], int]:
        """Where the unit's terms were last seen after it, and how many of its terms are its own.

        A term that more than the share `common` of all units have is nobody's own and says nothing about use.
        """
        found = self._again.get((unit.first, common))
        if found is None:
            place = self.places[unit.first]
            most = max(3.0, common * len(self.units))
            spread, last = self.spread, self.last_seen
            own = [last[term] for term in self.terms[place] if spread[term] <= most]
            found = self._again[unit.first, common] = [at for at in own if at > place], len(own)
        return found

    def _look(self, unit: Unit) -> tuple[str, ...]:
        """The lines of a unit, each as far as it is looked at."""
        found = self._texts.get(unit.first)
        if found is None:
            share = min(MOST, CHARACTERS // len(self.units)) // len(unit.lines)
            found = tuple(self._ends(line, max(_LEAST, share)) for line in unit.lines)
            self._texts[unit.first] = found
        return found

    def _ends(self, line: Line, most: int) -> str:
        return ends_of(self.view.text_of(line.seq), most)


def _any_of(signs: tuple[str, ...], text: str) -> bool:
    return any(sign in text for sign in signs)


def _is_error(text: str) -> bool:
    return _any_of(_ERRORS, text) or _FAILED.search(text) is not None
