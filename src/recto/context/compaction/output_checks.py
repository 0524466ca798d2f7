"""Whether what a model wrote can be used at all, before its claims are looked at. Pure.

Small and broken models answer with nothing, with the question, with more than they were given, in another language, or
do what a text in the material told them. None of that may stand in a prompt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from recto.text.analyzer import words_of

_LEAST_WORDS = 5
_LOOKED_AT = 200_000
"""Characters of the source that are read to know its language."""
_COMMAND = re.compile(
    r"(?i)^\W{0,6}(?:system|assistant|user|human|developer)\s{0,3}:|<\s{0,3}[/|｜]?\s{0,3}(?:system|assistant|user|s|inst|im_start|im_end)\b"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|all|any|your|the)\b.{0,40}"
    r"\b(?:instructions?|prompts?|rules?|messages?|context|guidelines)\b"
    r"|\b(?:you are now|act as|pretend to be|from now on,? you|your new (?:task|role|instructions?))\b"
    r"|\b(?:new|updated|important) (?:system )?instructions?\s{0,3}:"
    r"|\bdo not (?:tell|inform|mention .{0,20} to) the user\b"
    r"|\b(?:reveal|print|repeat|output|show) (?:your|the) (?:system )?(?:prompt|instructions)\b"
    r"|\b(?:summari[sz]er|compactor|assistant|ai|model|llm)[,:]? (?:please |must |should |shall )?"
    r"(?:write|add|include|state|remember|say|report|record|note|execute|run)\b"
)
"""Words that speak to a model. They may be quoted history, but not a summary's own words."""
_REFUSES = re.compile(
    r"(?i)^\W*(?:i(?:'m| am) sorry|i can(?:no|')t (?:help|assist|do|summari)|as an ai\b|i am unable to)"
)
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s|^\s{0,3}\*\*[^*]{1,60}\*\*:?\s*$")


def why_unusable(text: str, *, asked: str, source: Iterable[str], most: int, tokens: int, given: int) -> str:
    """Why a text is not taken, in words; empty where it may be.

    `asked` is the request as it was sent; `tokens` is what the text has, `most` what was asked for, and `given` what
    the source has.
    """
    words = words_of(text)
    if len(words) < _LEAST_WORDS:
        return "it wrote nothing"
    if _REFUSES.match(text):
        return "it refused"
    if tokens >= given or tokens > 2 * most:
        return f"it wrote {tokens} tokens where at most {most} were asked for"
    if _returns(words, asked):
        return "it gave back what it was asked"
    if _is_stuck(words):
        return "it repeats itself"
    if _is_foreign(words, source):
        return "it wrote in another language"
    return ""


def without_commands(text: str) -> tuple[str, int]:
    """The text without lines that speak to a model, and how many those were."""
    lines = text.splitlines()
    kept = [line for line in lines if not _COMMAND.search(line[:2_000])]
    return "\n".join(kept), len(lines) - len(kept)


def is_heading(line: str) -> bool:
    """Whether a line only names what comes after it."""
    return _HEADING.match(line) is not None


def _returns(words: list[str], asked: str) -> bool:
    """Whether long runs of the request's own instructions come back."""
    begins = words_of(asked[:4_000])
    runs = {tuple(begins[at : at + 12]) for at in range(len(begins) - 11)}
    told = [tuple(words[at : at + 12]) for at in range(0, max(len(words) - 11, 1), 4)]
    return len([run for run in told if run in runs]) > max(len(told) // 3, 1)


def _is_stuck(words: list[str]) -> bool:
    runs = Counter(tuple(words[at : at + 4]) for at in range(len(words) - 3))
    return bool(runs) and runs.most_common(1)[0][1] > max(6, len(words) // 12)


def _is_foreign(words: list[str], source: Iterable[str]) -> bool:
    """Short words are those that every sentence of a language needs: most of them stand in its source."""
    known: set[str] = set()
    room = _LOOKED_AT
    for one in source:
        known.update(words_of(one[:room]))
        room -= len(one[:room])
        if room <= 0:
            break
    short = [word for word in words if word.isalpha() and len(word) <= 4]
    judged = short if len(short) >= 8 else [word for word in words if word.isalpha()]
    if len(judged) < 8 or len(known) < 40:
        return False
    return sum(word in known for word in judged) < 0.5 * len(judged)
