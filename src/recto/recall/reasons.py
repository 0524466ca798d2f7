"""Says in words why a message was recalled: the strongest parts of its score."""

from __future__ import annotations

from collections.abc import Mapping

from recto.text.lazy_re import lazy_re

_WORD = lazy_re(r"\w[\w.:/-]*\w|\w")
_MIN_WORD = 4
"""Characters of a word that says something; of shorter ones, those with a digit do."""
_MAX_WORDS = 3
_MAX_REASONS = 2
_PHRASES = {
    "meaning": "close in meaning to the question",
    "date": "from the days that the question names",
    "standing": "states a rule or a preference of the user",
    "comes along": "belongs to a message that matched",
    "takes back": "corrects an earlier statement that matched",
    "taken back": "was corrected later; the correction is quoted with it",
    "judged": "was judged helpful before",
}


def reasons_in_words(parts: Mapping[str, float], question: str, text: str) -> tuple[str, ...]:
    """The two strongest reasons, the strongest first.

    Args:
        parts: The parts of the score, by name.
        question: What was searched for.
        text: The message, or what is quoted of it.
    """
    weights = {name: abs(value) for name, value in parts.items() if value > 0 or name == "taken back"}
    # Parts are standardized over the candidates: words that match may weigh 0 where there are few others.
    weights.setdefault("words", 0.0)
    if "takes back" in parts:  # its weight is 0: the rank is that of the corrected statement
        weights["takes back"] = max(weights.values())
    strongest = sorted(weights, key=lambda name: -weights[name])
    phrases = [_words(question, text) if name == "words" else _PHRASES.get(name, "") for name in strongest]
    found = [phrase for phrase in phrases if phrase][:_MAX_REASONS]
    return tuple(found) or ("shares words with the question",)


def _words(question: str, text: str) -> str:
    """Name the longest words that both have; empty where only stems are the same."""
    has = set(map(str.casefold, _WORD.findall(text)))
    asked = dict.fromkeys(map(str.casefold, _WORD.findall(question)))
    shared = [word for word in asked if word in has and (len(word) >= _MIN_WORD or any(map(str.isdigit, word)))]
    if not shared:
        return ""
    named = sorted(shared, key=len, reverse=True)[:_MAX_WORDS]
    quoted = ", ".join(f"“{word}”" for word in shared if word in named)
    return f"shares the word{'s' if len(named) > 1 else ''} {quoted} with the question"
