"""A decision taken apart: what was chosen, why, and against what, as far as its wording tells. No word is added."""

from __future__ import annotations

import re

from recto.continuity.checkpoints.checkpoint import Speaker, TaskDecision

_WHY = re.compile(r"(?:,\s{0,3}|\s)(?:because|since|so that|as it|as this|due to)\s{1,3}(\S.{0,400})", re.IGNORECASE)
_AGAINST = re.compile(
    r"\b(?:instead of|rather than|in place of|not going with|as opposed to)\s{1,3}(\S.{0,300})", re.IGNORECASE
)
_ENDS = re.compile(
    r"\s{1,3}[—–-]\s|[;:(]|,\s|\.\s|\b(?:because|since|so that|due to|instead of|rather than)\b", re.IGNORECASE
)
_OR = re.compile(r"\s{1,3}or\s{1,3}", re.IGNORECASE)
_TRIMMED = " .,;:!)"


def decision_in(text: str, seq: int = 0, by: Speaker = "assistant") -> TaskDecision:
    """The decision a sentence tells; the sentence itself stays whole."""
    why = _WHY.search(text)
    against = _AGAINST.search(text)
    return TaskDecision(
        decision=text,
        rationale=_until(why[1], _AGAINST).strip(_TRIMMED) if why else "",
        alternatives=_each(against[1]) if against else (),
        seq=seq,
        by=by,
    )


def _until(text: str, end: re.Pattern[str]) -> str:
    found = end.search(text)
    return text[: found.start()] if found else text


def _each(text: str) -> tuple[str, ...]:
    named = (one.strip(_TRIMMED) for one in _OR.split(_until(text, _ENDS)))
    return tuple(one for one in named if one)[:5]
