"""What of a conversation might be worth remembering, told by rule, and whose words may be believed without asking.

Only what people said, what an agent decided and what it learnt is ever suggested; a tool's output suggests nothing,
whatever it says. What the words mean is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from recto.core.ledger import critical_first
from recto.core.memory_kinds import MemoryKind
from recto.core.own_words import sentences_of
from recto.core.recall import Mark
from recto.core.statements import marks_of
from recto.core.told import Fact, FactKind, Told

_KINDS: dict[FactKind, MemoryKind] = {
    "constraint": "preference",
    "preference": "preference",
    "correction": "correction",
    "decision": "decision",
}
_OF_NOTES: dict[str, MemoryKind] = {"learnings": "lesson", "decisions": "decision", "constraints": "preference"}
_WHY: dict[FactKind, str] = {
    "constraint": "the user said what must or must not be done",
    "preference": "the user said how they want it",
    "correction": "the user corrected something",
    "decision": "a decision was made",
}
_LESSON = re.compile(
    r"\b(?:the )?root cause (?:was|is)\b|\bturn(?:s|ed) out (?:that|to)\b|\blessons? (?:learn(?:ed|t)|here)\b"
    r"|\bnext time\b|\bthe (?:real )?(?:problem|reason|cause) was\b|\bfor future reference\b",
    re.IGNORECASE,
)
_LEAST_WORDS, _LEAST = 4, 16
"""Words and characters of something that can be understood by itself."""
_TYPED = 600
"""Characters of a message that somebody typed; longer ones are often pasted."""
_TYPED_LINES = 4
_NOT_TYPED = re.compile(
    r"://|www\.|[`\"“”„«»<>|{}\[\]\\]|^\s*[>#*-]|:(?:\s|$)|\n\s*\n|\bignore\b.{0,40}\binstructions?\b"
    r"|\b(?:says?|said|states?|stated|writes?|wrote|reads|according to|quot\w+|past(?:e|ed|ing)|forward(?:ed|ing)"
    r"|copied|attached|e-?mails?|pages?|documents?|files?|outputs?|results?|logs?|system|assistant|developer|admin\w*)\b",
    re.IGNORECASE | re.MULTILINE,
)
"""Signs that a message holds what somebody else said: addresses, quotation marks, markup, something announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that might be remembered, in the words of its source."""

    kind: MemoryKind
    text: str
    seqs: tuple[int, ...]
    """The entries it comes from; the first one says it."""
    why: str
    by: str = "rule"
    """Who suggests it: `rule`, or `agent` for what the agent wrote down itself, or `model`."""
    critical: bool = False
    evergreen: bool = False
    tags: tuple[str, ...] = field(default=())


def candidates(facts: Sequence[Fact], after: int) -> list[Candidate]:
    """What of the facts is worth remembering and was said after an entry, the most important first."""
    took_back = {fact.superseded_by: fact.seq for fact in facts if fact.superseded_by is not None}
    found = []
    for fact in critical_first(facts):
        kind = _KINDS.get(fact.kind)
        speaks = fact.role == "user" or (fact.role == "assistant" and fact.kind == "decision")
        if kind is None or not fact.open or not speaks or fact.seq <= after or not _is_whole(fact.text):
            continue
        marks = marks_of(fact.text, fact.role)
        older = took_back.get(fact.seq) if fact.kind == "correction" else None
        found.append(
            Candidate(
                kind=kind,
                text=fact.text,
                seqs=(fact.seq,) if older is None else (fact.seq, older),
                why=f"{_WHY[fact.kind]} (entry {fact.seq})",
                critical=Mark.CRITICAL in marks,
                evergreen=Mark.EVERGREEN in marks,
                tags=(fact.kind,) if fact.kind != kind else (),
            )
        )
    return found


def lessons(told: Iterable[Told]) -> list[Candidate]:
    """What the agent found out, in its words."""
    return [
        Candidate(kind="lesson", text=sentence, seqs=(one.seq,), why=f"the agent found this out (entry {one.seq})")
        for one in told
        if one.role == "assistant" and one.text.strip()
        for sentence in sentences_of(one.text)
        if _LESSON.search(sentence) and _is_whole(sentence)
    ]


def noted(kind: str, text: str, seq: int, *, critical: bool) -> Candidate | None:
    """What the agent wrote down while it worked; None for what is only of use until the work is done."""
    found = _OF_NOTES.get(kind)
    if found is None or not _is_whole(text):
        return None
    return Candidate(kind=found, text=text, seqs=(seq,), why=f"a note (entry {seq})", by="agent", critical=critical)


def said_in_own_words(text: str, one: Told) -> bool:
    """Whether a user typed this sentence themselves, as far as a rule can tell.

    Only a short message without anything that could come from elsewhere counts. Errs on the side of asking.
    """
    if one.role != "user" or one.calls or len(one.text) > _TYPED or one.text.count("\n") >= _TYPED_LINES:
        return False
    return not _NOT_TYPED.search(one.text) and text in sentences_of(one.text)


def _is_whole(text: str) -> bool:
    return len(text) >= _LEAST and len(text.split()) >= _LEAST_WORDS and not text.rstrip().endswith(("?", "？", ":"))
