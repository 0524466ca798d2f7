"""Short answers of the user to the assistant's questions, kept with what they answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recto.context.facts import patterns
from recto.context.facts.statements import is_momentary
from recto.context.facts.types import Fact, FactKind
from recto.text.lazy_re import lazy_re

_MAX_ANSWER_CHARS = 80
"""Length of a sentence that is an answer rather than a statement of its own."""
_MAX_OWN_WORDS = 5
"""Words up to which even a statement with a kind of its own is understood only together with the question."""
_MAX_QUESTION_CHARS = 160
"""Characters quoted of the questions."""
_OPTION_CHARS = 90
_MAX_OPTIONS = 8
_MAX_READ_CHARS = 3_000
"""Characters at the end of a message that are searched for options."""
_OPTION = lazy_re(
    r"^\s{0,6}(?:[-*•]\s{1,3})?\**(?:[Oo]ption\s)?(\d{1,2}|[A-Fa-f])\s?[.):]\**\s{1,3}(\S[^\n]{2,})$", re.MULTILINE
)
_LABELS = lazy_re(
    r"(?:(?:i think|let's|go with|do|use|option|options|variant|plan|number|no|nr|take|and|und|et|y|or|both|yes|ok"
    r"|the)\b|[\s,+&/.#()!和与]|(?P<label>(?:\d{1,2}|[a-f])(?!\w))){1,24}",
    re.IGNORECASE,
)
_LABEL = lazy_re(r"(?<![\w.])(\d{1,2}|[A-Fa-f])(?![\w%])")
_AGREES = lazy_re(
    r"\W{0,4}(?:yes|yep|yeah|yup|sure|ok|okay|great|perfect|sounds good|looks good|lgtm|fine|works for me|agreed|"
    r"correct|exactly|absolutely|definitely|of course|please do|do it|go|all good|ja|jo|klar|genau|gerne?|oui|ouais|"
    r"bien sûr|d'accord|sí|si|vale|claro|de acuerdo|sim|да|نعم|好|是|可以|对|行|嗯|はい|네)(?!\w)(?!\s{0,2}but\b)",
    re.IGNORECASE,
)


def answer_to(questions: Sequence[Fact], sentence: str, kind: FactKind | None) -> tuple[FactKind, str] | None:
    """The kind and the text of a sentence that answers open questions; None if it is complete on its own."""
    if len(sentence) > _MAX_ANSWER_CHARS or sentence.endswith(("?", "？", "؟", ":", "]")):
        return None
    lowered = sentence.lower().replace("’", "'")
    agrees = _AGREES.match(lowered) is not None
    refuses = patterns.NEGATIVE_START.match(lowered) is not None
    labels = _labels_of(lowered)
    if not (agrees or refuses or labels):
        if kind is not None and len(sentence.split()) > _MAX_OWN_WORDS:
            return None
        if kind is None and is_momentary(sentence):
            return None
    answer_kind: FactKind = "constraint" if refuses and kind not in ("approval", "deferral") else kind or "decision"
    if agrees and kind in (None, "decision", "instruction", "circumstance"):
        answer_kind = "approval"
    return answer_kind, f"{_quoted(questions, labels)} — {sentence}"


def options_in(text: str) -> str:
    """The labelled options at the end of an assistant's message, one per line; empty if there are none."""
    options: list[str] = []
    for label, option in _OPTION.findall(text[-_MAX_READ_CHARS:]):
        if label.upper() in ("1", "A"):
            options.clear()
        options.append(f"{label}. {' '.join(option.replace('*', '').split())[:_OPTION_CHARS]}")
    return "\n".join(options[:_MAX_OPTIONS]) if len(options) > 1 else ""


def _labels_of(lowered: str) -> frozenset[str]:
    """The labels of options, if an answer consists of them."""
    return frozenset(_LABEL.findall(lowered)) if _LABELS.fullmatch(lowered) else frozenset()


def _quoted(questions: Sequence[Fact], labels: frozenset[str]) -> str:
    question = " ".join(fact.text for fact in questions)
    if len(question) > _MAX_QUESTION_CHARS:
        question = f"… {question[-_MAX_QUESTION_CHARS:].partition(' ')[2]}"
    options = questions[-1].about.splitlines() if labels else []
    chosen = [option for option in options if option.partition(".")[0].lower() in labels]
    return f"{question} [{'; '.join(chosen)}]" if chosen else question
