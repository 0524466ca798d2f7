"""The loss record: which paths, numbers, ids and decisions left with some messages, and where each still stands.

What also stands in what is kept is not lost. Nothing is lost for good: the transcript has it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import log2
from typing import Any, Literal

from recto.context.facts.entities import EntityIndex, EntityUse, find_entities
from recto.context.facts.extraction import extract_facts, missing_facts
from recto.context.facts.types import MessageView

LossKind = Literal["path", "number", "id", "decision"]

_SHARES: dict[LossKind, float] = {"decision": 0.25, "path": 0.4, "id": 0.2, "number": 0.15}
"""How the places are shared out; what one kind does not need goes to the others."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that left the prompt."""

    kind: LossKind
    text: str
    seq: int
    """The newest entry in which it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What left, the most important first."""

    paths: tuple[Loss, ...] = ()
    numbers: tuple[Loss, ...] = ()
    ids: tuple[Loss, ...] = ()
    """Names, hashes, issues."""
    decisions: tuple[Loss, ...] = ()
    more: dict[LossKind, int] = field(default_factory=dict)
    """How many more of each kind there were."""

    @property
    def all(self) -> tuple[Loss, ...]:
        """Every loss that is told."""
        return (*self.decisions, *self.paths, *self.ids, *self.numbers)

    def to_json(self) -> dict[str, Any]:
        """As it is recorded: how many of each kind, and those that are told."""
        told: dict[LossKind, int] = dict.fromkeys(_SHARES, 0)
        for loss in self.all:
            told[loss.kind] += 1
        return {
            "counts": {kind: told[kind] + self.more.get(kind, 0) for kind in _SHARES},
            "told": [asdict(loss) for loss in self.all],
        }


def losses_of(told: Sequence[MessageView], kept: str, most: int = 200) -> Losses:
    """What stood in messages that left and does not stand in what is kept. At most so many are told."""
    standing = EntityIndex(kept)
    weighed: dict[LossKind, list[tuple[float, Loss]]] = {kind: [] for kind in _SHARES}
    end = len(told) or 1
    for name, seen in find_entities(told).items():
        if not standing.has(name, seen.kind):
            weighed[seen.kind].append((_weight(name, seen, seen.position / end), Loss(seen.kind, name, seen.last)))
    decided = (fact for fact in extract_facts(told) if fact.kind == "decision")
    weighed["decision"] += (
        (float(fact.seq), Loss("decision", fact.text, fact.seq)) for fact in missing_facts(decided, kept)
    )
    ranked = {kind: _ranked(losses) for kind, losses in weighed.items()}
    room = _rooms({kind: len(losses) for kind, losses in ranked.items()}, max(most, 0))
    kinds: dict[LossKind, tuple[Loss, ...]] = {kind: tuple(ranked[kind][: room[kind]]) for kind in _SHARES}
    more = {kind: len(ranked[kind]) - room[kind] for kind in _SHARES if len(ranked[kind]) > room[kind]}
    return Losses(paths=kinds["path"], numbers=kinds["number"], ids=kinds["id"], decisions=kinds["decision"], more=more)


def _weight(name: str, seen: EntityUse, age: float) -> float:
    spoken = (
        3 * log2(1 + seen.mentions) + 2 * log2(1 + seen.edits) + log2(1 + seen.calls) + 0.2 * log2(1 + seen.results)
    )
    return spoken * (0.5 + 0.5 * age) * (0.3 if seen.kind == "number" and len(name) < 3 else 1.0)


def _ranked(losses: Iterable[tuple[float, Loss]]) -> list[Loss]:
    return [loss for _, loss in sorted(losses, key=lambda one: (-one[0], -one[1].seq, one[1].text))]


def _rooms(counts: dict[LossKind, int], most: int) -> dict[LossKind, int]:
    """Places for each kind: its share, and what others leave over in the order of the shares."""
    room = {kind: min(counts[kind], int(most * share)) for kind, share in _SHARES.items()}
    for kind in _SHARES:
        room[kind] += min(counts[kind] - room[kind], most - sum(room.values()))
    return room
