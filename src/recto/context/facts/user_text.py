"""What somebody said in their own words, sentence by sentence: no code, no quotation, nothing put in their mouth.

Agents put reminders, the output of commands, summaries and the bodies of skills into messages that stand under the
user's name. Such blocks are known by their tags and by how they begin. What the words mean is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 300
"""Characters of a sentence that are kept, cut between two words."""
_MOST = 3_000
"""Characters of own words; what is longer was pasted."""
_BEGINNING, _END = 1_200, 600
"""Of something pasted: own words stand before and after it."""
_MOST_READ = 200_000

_INJECTED = (
    "This session is being continued from a previous conversation",
    "Base directory for this skill:",
    "Caveat: The messages below were generated",
    "[Request interrupted by user",
    "Stop hook feedback:",
    "[SYSTEM NOTIFICATION",
    "Your task is to create a detailed summary of the conversation",
)
"""How messages begin that stand under the user's name and are not the user's."""
_ARGUMENTS = re.compile(r"<command-args>([^<]{1,4000})</command-args>")
"""What the user typed behind a command."""
_TAG = re.compile(r"\s*<([A-Za-z][\w-]{1,60})(?:\s[^<>\n]{0,300})?>")
_ENDLESS = re.compile(
    r"\s*<(?:system|command|local-command|task|user-prompt|bash|ide|antml)[\w:-]*(?:\s[^<>\n]{0,300})?>"
)
"""Tags behind which nothing is the user's, even where they do not end."""
_FENCE = re.compile(r"\s{0,12}(```+|~~~+)")
_SPOKEN_BY = re.compile(
    r"\s*[*_#\[]{0,3}(?:user|human|assistant|system|tool|developer|ai|claude|model)[*_\]]{0,3}\s?:", re.IGNORECASE
)
"""A line of a conversation that was pasted."""
_MARK = re.compile(r"\s*(?:[-*•+]\s+|#{1,6}\s+|\d{1,3}[.)]\s+|\[[ xX~]\]\s+){1,3}")
_SENTENCE = re.compile(r"[.!?…][\"'”’)\]*_`]{0,3}\s+(?=[^a-z\s])|[。！？؟]")
_WRAPPED = 50


def sentences_of(text: str) -> list[str]:
    """The sentences and lines of prose that are the speaker's own. Linear; never raises."""
    said = "\n".join(own_lines(text))
    if len(said) > _MOST:
        said = f"{said[:_BEGINNING].rpartition(' ')[0]}\n\n{said[-_END:].partition(' ')[2]}"
    return [cut(sentence) for line in _joined(said.split("\n")) for sentence in _split(line)]


def own_lines(text: str) -> list[str]:
    """The lines that are the speaker's own."""
    text = text[:_MOST_READ]
    if text.lstrip().startswith(_INJECTED):
        return []
    typed = [found[1].strip() for found in _ARGUMENTS.finditer(text)] if "<command-args>" in text else []
    kept: list[str] = []
    fence, tag, announced = "", "", False
    for line in text.splitlines():
        # What is set in under a line that announces it was copied from somewhere.
        announced = announced and (not line.strip() or line.startswith(("  ", "\t"))) and not _MARK.match(line)
        if announced:
            continue
        announced = line.rstrip().endswith(":")
        if tag:
            tag = "" if f"</{tag}>" in line else tag
        elif found := _FENCE.match(line):
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        elif opened := None if fence else _TAG.match(line) or _ENDLESS.match(line):
            name = opened[1] if opened.re is _TAG else ""
            if name and f"</{name}>" in text:
                tag = "" if f"</{name}>" in line else name
            elif _ENDLESS.match(line):
                break
        elif not fence and not line.lstrip().startswith((">", "|")) and not _SPOKEN_BY.match(line):
            kept.append(line)
    return [*kept, *typed]


def cut(text: str, most: int = LONGEST) -> str:
    """The beginning of a text with single spaces, cut between words."""
    plain = " ".join(text[: most * 8].split())
    if len(plain) <= most:
        return plain
    piece = plain[: most + 1]
    space = piece.rfind(" ")
    return piece[:space] if space > most // 2 else plain[:most]


def _joined(lines: list[str]) -> Iterator[str]:
    """Lines of prose; what was broken inside a sentence is joined again."""
    whole = ""
    for line in lines:
        plain = line.strip()
        goes_on = (
            len(whole) >= _WRAPPED and whole[-1] not in ".!?:;。" and plain[:1].islower() and not _MARK.match(line)
        )
        if goes_on and len(whole) < 4 * LONGEST:
            whole += " " + plain
            continue
        if whole:
            yield whole
        marked = _MARK.match(plain)
        whole = plain[marked.end() :] if marked else plain
    if whole:
        yield whole


def _split(line: str) -> Iterator[str]:
    start = 0
    for found in _SENTENCE.finditer(line):
        yield line[start : found.end()].strip()
        start = found.end()
    if rest := line[start:].strip():
        yield rest
