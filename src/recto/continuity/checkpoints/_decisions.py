"""Splits the sentence of a decision into choice, reason and rejected alternatives, without adding words."""

from __future__ import annotations

import re

from recto.continuity.checkpoints.checkpoint import Speaker, TaskDecision
from recto.text.lazy_re import lazy_re

_REASON = lazy_re(r"(?:,\s{0,3}|\s)(?:because|since|so that|as it|as this|due to)\s{1,3}(\S.{0,400})", re.IGNORECASE)
_ALTERNATIVE = lazy_re(
    r"\b(?:instead of|rather than|in place of|not going with|as opposed to)\s{1,3}(\S.{0,300})", re.IGNORECASE
)
_END = lazy_re(
    r"\s{1,3}[—–-]\s|[;:(]|,\s|\.\s|\b(?:because|since|so that|due to|instead of|rather than)\b", re.IGNORECASE
)
_OR = lazy_re(r"\s{1,3}or\s{1,3}", re.IGNORECASE)
_TRIMMED = " .,;:!)"


def decision_in(text: str, seq: int = 0, by: Speaker = "assistant") -> TaskDecision:
    """Parse a decision; the sentence itself stays complete."""
    why = _REASON.search(text)
    against = _ALTERNATIVE.search(text)
    return TaskDecision(
        decision=text,
        rationale=_until(why[1], _ALTERNATIVE).strip(_TRIMMED) if why else "",
        alternatives=_split_alternatives(against[1]) if against else (),
        seq=seq,
        by=by,
    )


def _until(text: str, end: re.Pattern[str]) -> str:
    match = end.search(text)
    return text[: match.start()] if match else text


def _split_alternatives(text: str) -> tuple[str, ...]:
    alternatives = (text.strip(_TRIMMED) for text in _OR.split(_until(text, _END)))
    return tuple(text for text in alternatives if text)[:5]
