"""Loss report: which paths, numbers, ids and decisions were evicted with some messages, and where each is stored.

Whatever is also in the remaining text is not lost, and the transcript still has everything.
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
"""Share of the reported losses per kind; unused shares go to the other kinds."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that is no longer in the prompt."""

    kind: LossKind
    text: str
    seq: int
    """The newest entry that contains it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Evicted information, most important first."""

    paths: tuple[Loss, ...] = ()
    numbers: tuple[Loss, ...] = ()
    ids: tuple[Loss, ...] = ()
    """Names, hashes, issue numbers."""
    decisions: tuple[Loss, ...] = ()
    more: dict[LossKind, int] = field(default_factory=dict)
    """Number of further losses of each kind."""

    @property
    def all(self) -> tuple[Loss, ...]:
        """All reported losses."""
        return (*self.decisions, *self.paths, *self.ids, *self.numbers)

    def to_json(self) -> dict[str, Any]:
        """The report as recorded: totals per kind, and the reported losses."""
        reported: dict[LossKind, int] = dict.fromkeys(_SHARES, 0)
        for loss in self.all:
            reported[loss.kind] += 1
        return {
            "counts": {kind: reported[kind] + self.more.get(kind, 0) for kind in _SHARES},
            "told": [asdict(loss) for loss in self.all],
        }


def find_losses(messages: Sequence[MessageView], remaining: str, max_losses: int = 200) -> Losses:
    """What the evicted messages contain and the remaining text does not; at most `max_losses` are reported."""
    index = EntityIndex(remaining)
    weighed: dict[LossKind, list[tuple[float, Loss]]] = {kind: [] for kind in _SHARES}
    end = len(messages) or 1
    for name, use in find_entities(messages).items():
        if not index.has(name, use.kind):
            weighed[use.kind].append((_weight(name, use, use.position / end), Loss(use.kind, name, use.last)))
    decisions = (fact for fact in extract_facts(messages) if fact.kind == "decision")
    weighed["decision"] += (
        (float(fact.seq), Loss("decision", fact.text, fact.seq)) for fact in missing_facts(decisions, remaining)
    )
    ranked = {kind: _rank_losses(losses) for kind, losses in weighed.items()}
    slots = _allocate({kind: len(losses) for kind, losses in ranked.items()}, max(max_losses, 0))
    kinds: dict[LossKind, tuple[Loss, ...]] = {kind: tuple(ranked[kind][: slots[kind]]) for kind in _SHARES}
    more = {kind: len(ranked[kind]) - slots[kind] for kind in _SHARES if len(ranked[kind]) > slots[kind]}
    return Losses(paths=kinds["path"], numbers=kinds["number"], ids=kinds["id"], decisions=kinds["decision"], more=more)


def _weight(name: str, use: EntityUse, age: float) -> float:
    weight = 3 * log2(1 + use.mentions) + 2 * log2(1 + use.edits) + log2(1 + use.calls) + 0.2 * log2(1 + use.results)
    return weight * (0.5 + 0.5 * age) * (0.3 if use.kind == "number" and len(name) < 3 else 1.0)


def _rank_losses(losses: Iterable[tuple[float, Loss]]) -> list[Loss]:
    return [loss for _, loss in sorted(losses, key=lambda pair: (-pair[0], -pair[1].seq, pair[1].text))]


def _allocate(counts: dict[LossKind, int], max_losses: int) -> dict[LossKind, int]:
    """Slots per kind: its share, plus unused slots in the order of the shares."""
    slots = {kind: min(counts[kind], int(max_losses * share)) for kind, share in _SHARES.items()}
    for kind in _SHARES:
        slots[kind] += min(counts[kind] - slots[kind], max_losses - sum(slots.values()))
    return slots
