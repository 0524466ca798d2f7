"""The summary shown in the prompt in place of evicted messages. Values only.

A summary consists of facts and files with their source entries, and of parts, each derived from the raw messages of its
range. It is never derived from another summary: facts and files are quoted, parts are rewritten from the entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from recto.context.facts.types import Fact, Level, WorkedFile
from recto.context.window.plan import Plan

FIDELITY_GATE = 0.85
"""Fidelity below which a text is rewritten with more tokens for facts."""
FIDELITY_ALARM = 0.75
"""Fidelity below which an alert is raised."""
PartLevel = Literal["sections", "delegated"] | Level


class SummaryPart(Struct, frozen=True, kw_only=True):
    """The text that replaces a range of entries."""

    first: int
    last: int
    level: PartLevel
    turn: int
    """The user turn it ends in, which determines its age."""
    text: str
    """Lines as shown in the prompt, each with its source entries."""


class Summary(Struct, frozen=True, kw_only=True):
    """Everything known about the evicted messages."""

    decision_seq: int = 0
    """The decision that wrote it; 0 before it is stored."""
    text: str
    """The text shown in the prompt."""
    covered_until: int = 0
    """The last entry from which facts and files were extracted."""
    parts: tuple[SummaryPart, ...] = ()
    facts: tuple[Fact, ...] = ()
    files: tuple[WorkedFile, ...] = ()
    said: tuple[tuple[int, str], ...] = ()
    """The user's sentences that are not over once they are said, with their entries: what fidelity is measured by."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """Files, names and numbers of everything it replaces, with their weights; for the same."""

    def to_json(self) -> dict[str, Any]:
        """The summary as stored in a decision."""
        return {
            "text": self.text,
            "known": self.covered_until,
            "parts": [_to_payload(part) for part in self.parts],
            "facts": [_to_payload(fact) for fact in self.facts],
            "touched": [_to_payload(file) for file in self.files],
            "said": [list(sentence) for sentence in self.said],
            "evidence": dict(self.evidence),
        }

    @classmethod
    def from_json(cls, decision_seq: int, payload: Mapping[str, Any]) -> Summary:
        """Read a summary from a decision; fields added by newer versions are ignored."""
        return cls(
            decision_seq=decision_seq,
            text=str(payload["text"]),
            covered_until=payload["known"],
            parts=tuple(_from_payload(SummaryPart, part) for part in payload["parts"]),
            facts=tuple(_from_payload(Fact, fact) for fact in payload["facts"]),
            files=tuple(_from_payload(WorkedFile, file) for file in payload["touched"]),
            said=tuple((seq, text) for seq, text in payload.get("said", ())),
            evidence=dict(payload.get("evidence", {})),
        )


class ExecutedPlan(Struct, frozen=True, kw_only=True):
    """A plan with its texts written."""

    plan: Plan
    summary: Summary | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    """How the text was written, what was checked, and what was lost."""


def _to_payload(value: SummaryPart | Fact | WorkedFile) -> dict[str, Any]:
    """The fields of a flat value. `asdict` would copy each of them deeply."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _from_payload(kind: type[Any], payload: Mapping[str, Any]) -> Any:  # noqa: ANN401  # one of three values
    return kind(**{name: value for name, value in payload.items() if name in kind.__struct_fields__})
