"""What stands in the prompt in place of messages that left, when it is more than a marker. Values only.

A summary is made of facts and files with the entries they stand in, and of parts, each derived from the raw messages of
its range. It is never made from another summary: facts and files are quoted, parts are written anew from the entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from recto.context.facts.types import Fact, Level, WorkedFile
from recto.context.window.plan import Plan

GATE = 0.85
"""The fidelity below which a text gets more room for facts."""
ALARM = 0.75
"""The fidelity below which an alarm is raised."""
PartLevel = Literal["sections", "delegated"] | Level


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPart:
    """The text that stands for a range of entries."""

    first: int
    last: int
    level: PartLevel
    turn: int
    """The exchange it ends in, by which its age is known."""
    text: str
    """Lines as they stand in the prompt, each with the entries it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of everything that left."""

    at: int = 0
    """The decision that wrote it; 0 before it is stored."""
    text: str
    """As it stands in the prompt."""
    known: int = 0
    """The last entry that facts and files are known of."""
    parts: tuple[SummaryPart, ...] = ()
    facts: tuple[Fact, ...] = ()
    touched: tuple[WorkedFile, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a decision keeps it."""
        return {
            "text": self.text,
            "known": self.known,
            "parts": [asdict(part) for part in self.parts],
            "facts": [asdict(fact) for fact in self.facts],
            "touched": [asdict(file) for file in self.touched],
        }

    @classmethod
    def from_json(cls, at: int, about: Mapping[str, Any]) -> Summary:
        """As a decision kept it; what a newer version added is ignored."""
        return cls(
            at=at,
            text=str(about["text"]),
            known=about["known"],
            parts=tuple(_made(SummaryPart, part) for part in about["parts"]),
            facts=tuple(_made(Fact, fact) for fact in about["facts"]),
            touched=tuple(_made(WorkedFile, file) for file in about["touched"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedPlan:
    """A plan with its texts written."""

    plan: Plan
    summary: Summary | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    """How it was written, what was checked, what was lost."""


def _made(kind: type[Any], about: Mapping[str, Any]) -> Any:  # noqa: ANN401  # one of three values
    return kind(**{name: value for name, value in about.items() if name in kind.__slots__})
