"""Checks whether a model's text is usable at all, before its claims are checked. Pure.

Small and broken models return nothing, the question, more than they were given, another language, or follow
instructions inside the material. None of that may enter a prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from recto.text.analyzer import words_of
from recto.text.lazy_re import lazy_re

_MIN_WORDS = 5
_MAX_SOURCE_CHARS = 200_000
"""Characters of the source that are read to know its language."""
_INSTRUCTION = lazy_re(
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
"""Instructions to a model. They may be quoted history, but not a summary's own words."""
_REFUSAL = lazy_re(r"(?i)^\W*(?:i(?:'m| am) sorry|i can(?:no|')t (?:help|assist|do|summari)|as an ai\b|i am unable to)")
_HEADING = lazy_re(r"^\s{0,3}#{1,6}\s|^\s{0,3}\*\*[^*]{1,60}\*\*:?\s*$")


def rejection_reason(
    text: str, *, request: str, source: Iterable[str], max_tokens: int, tokens: int, source_tokens: int
) -> str:
    """Why a text is rejected, in words; empty if it is usable.

    `request` is the request as sent; `tokens` is the size of the text, `max_tokens` the requested maximum, and
    `source_tokens` the size of the source.
    """
    words = words_of(text)
    if len(words) < _MIN_WORDS:
        return "it wrote nothing"
    if _REFUSAL.match(text):
        return "it refused"
    if tokens >= source_tokens or tokens > 2 * max_tokens:
        return f"it wrote {tokens} tokens where at most {max_tokens} were asked for"
    if _echoes_request(words, request):
        return "it gave back what it was asked"
    if _repeats_itself(words):
        return "it repeats itself"
    if _is_other_language(words, source):
        return "it wrote in another language"
    return ""


def strip_instructions(text: str) -> tuple[str, int]:
    """The text without lines that instruct a model, and the number of lines removed."""
    lines = text.splitlines()
    remaining = [line for line in lines if not _INSTRUCTION.search(line[:2_000])]
    return "\n".join(remaining), len(lines) - len(remaining)


def is_heading(line: str) -> bool:
    """Whether a line is only a heading."""
    return _HEADING.match(line) is not None


def _echoes_request(words: list[str], request: str) -> bool:
    """Whether long runs of the request's own instructions are repeated."""
    request_words = words_of(request[:4_000])
    request_runs = {tuple(request_words[start : start + 12]) for start in range(len(request_words) - 11)}
    text_runs = [tuple(words[start : start + 12]) for start in range(0, max(len(words) - 11, 1), 4)]
    return len([run for run in text_runs if run in request_runs]) > max(len(text_runs) // 3, 1)


def _repeats_itself(words: list[str]) -> bool:
    runs = Counter(tuple(words[start : start + 4]) for start in range(len(words) - 3))
    return bool(runs) and runs.most_common(1)[0][1] > max(6, len(words) // 12)


def _is_other_language(words: list[str], source: Iterable[str]) -> bool:
    """Every sentence needs the short words of its language: most of them occur in the source too."""
    known: set[str] = set()
    remaining = _MAX_SOURCE_CHARS
    for part in source:
        known.update(words_of(part[:remaining]))
        remaining -= len(part[:remaining])
        if remaining <= 0:
            break
    short = [word for word in words if word.isalpha() and len(word) <= 4]
    compared = short if len(short) >= 8 else [word for word in words if word.isalpha()]
    if len(compared) < 8 or len(known) < 40:
        return False
    return sum(word in known for word in compared) < 0.5 * len(compared)
