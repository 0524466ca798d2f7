"""The user's own words, sentence by sentence: no code, no quotations, no injected blocks.

Agents put reminders, command output, summaries and skill bodies into messages under the user's name. Such blocks are
recognized by their tags and openings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from recto.text.lazy_re import lazy_re

MAX_SENTENCE_CHARS = 300
"""Characters of a sentence, cut between words."""
CUT_SIGN = " …"
CUT_START = "… "
"""What a text ends with whose end was cut off, and begins with whose beginning was."""
_MAX_OWN_CHARS = 3_000
"""Maximum length of own words; anything longer was pasted."""
_HEAD_CHARS, _TAIL_CHARS = 1_200, 600
"""Characters read of a pasted text: own words come before and after it."""
_MAX_READ_CHARS = 200_000

_INJECTED = (
    "This session is being continued from a previous conversation",
    "Base directory for this skill:",
    "Caveat: The messages below were generated",
    "Stop hook feedback:",
    "[SYSTEM NOTIFICATION",
    "Your task is to create a detailed summary of the conversation",
    "# AGENTS.md instructions for",
    "# CLAUDE.md",
    "# AGENTS.md",
    "Contents of /",
    "Please always provide EXACTLY ONE action",
    "Observation:",
    "OBSERVATION:",
    "The last command <command>",
    "diff --git ",
    *(
        "<returncode>",
        "<exit_code>",
        "<output>",
        "<observation>",
        "<stdout>",
        "<stderr>",
        "<tool_result",
        "<function_re",
    ),
)
"""Openings of messages under the user's name that the user did not write: reminders, instruction files, command bodies,
and outputs and format errors of agents that write their commands as text."""
_INTERRUPTED = "[Request interrupted by user"
"""A line that a client writes; what follows it is the user's."""
_COMMAND_BODY = lazy_re(r"\s*Invoke the \S{1,80} skill and follow it")
_SKILL_ARGUMENTS = "ARGUMENTS:"
"""What the user typed after a command, behind the command's body."""
_COMMAND_ARGUMENTS = lazy_re(r"<command-args>([^<]{1,4000})</command-args>")
"""What the user typed after a command."""
_TAG = lazy_re(r"\s*<([A-Za-z][\w-]{1,60})(?:\s[^<>\n]{0,300})?>")
_INJECTED_TAG = lazy_re(
    r"\s*<(?:system|command|local-command|task|user-prompt|bash|ide|antml)[\w:-]*(?:\s[^<>\n]{0,300})?>"
)
"""Tags after which nothing is the user's, even if they are never closed."""
_FENCE = lazy_re(r"\s{0,12}(```+|~~~+)")
_SPEAKER_LABEL = lazy_re(
    r"\s*[*_#\[]{0,3}(?:user|human|assistant|system|tool|developer|ai|claude|model)[*_\]]{0,3}\s?:", re.IGNORECASE
)
"""A line of a pasted conversation."""
_LIST_MARKER = lazy_re(r"\s*(?:[-*•+]\s+|#{1,6}\s+|\d{1,3}[.)]\s+|\[[ xX~]\]\s+){1,3}")
_SENTENCE = lazy_re(r"[.!?…][\"'”’)\]*_`]{0,3}\s+(?=[^a-z\s])|[。！？؟]")
_BREAK = lazy_re(r"[.!?…][\"'”’)\]*_`]{0,3}\s+(?=[^a-z\s])|[。！？؟]|\n")
"""The end of a sentence or of a line."""
_QUOTED = lazy_re(r"(?<!\w)\"[^\"]{1,600}\"(?!\w)|“[^“”]{1,600}”")
"""A quotation within a line."""
_MIN_WRAPPED_CHARS = 50
_MAX_TYPED_CHARS, _MAX_TYPED_LINES = 1_000, 12
"""Length up to which own words count as typed in one go."""
_MIN_HEADINGS = 2
_HEADING = lazy_re(r"^#{1,6} \S", re.MULTILINE)
_PERSONA = lazy_re(r"\s*you are (?:an?|the|now) ", re.IGNORECASE)
"""How prompts begin that define a role for the model."""


def user_sentences(text: str) -> list[str]:
    """The speaker's own sentences and prose lines. Linear; never raises."""
    return split_sentences("\n".join(own_lines(text)))


def split_sentences(text_lines: str) -> list[str]:
    """The sentences and prose lines of own lines; of a long text only those of its beginning and end."""
    if len(text_lines) > _MAX_OWN_CHARS:
        text_lines = "\n\n".join(_both_ends(text_lines))
    return [
        cut_words(sentence) for line in _join_wrapped(text_lines.split("\n")) for sentence in _split_sentences(line)
    ]


def _both_ends(text: str) -> tuple[str, str]:
    """The beginning and the end of a long text, in whole sentences; half a sentence may say the opposite.

    Where no sentence ends nearby, a sign says that the rest is missing.
    """
    start = len(text) - _TAIL_CHARS
    end = _BREAK.search(text, _HEAD_CHARS, _HEAD_CHARS + MAX_SENTENCE_CHARS)
    before = [match.end() for match in _BREAK.finditer(text, start - MAX_SENTENCE_CHARS, start)]
    head = text[: end.end()] if end else f"{text[:_HEAD_CHARS].rpartition(' ')[0]}{CUT_SIGN}"
    return head, text[before[-1] :] if before else f"{CUT_START}{text[start:].partition(' ')[2]}"


def own_lines(text: str) -> list[str]:
    """The lines that are the speaker's own."""
    text = text[:_MAX_READ_CHARS]
    if text.lstrip().startswith(_INJECTED) or _COMMAND_BODY.match(text):
        return text.partition(f"\n{_SKILL_ARGUMENTS}")[2].splitlines()
    typed = [match[1].strip() for match in _COMMAND_ARGUMENTS.finditer(text)] if "<command-args>" in text else []
    own: list[str] = []
    fence, tag, announced = "", "", False
    for line in text.splitlines():
        # An indented block after a line that ends with a colon was copied from elsewhere.
        announced = announced and (not line.strip() or line.startswith(("  ", "\t"))) and not _LIST_MARKER.match(line)
        if announced:
            continue
        announced = line.rstrip().endswith(":")
        if tag:
            tag = "" if f"</{tag}>" in line else tag
        elif match := _FENCE.match(line):
            fence = "" if fence and match[1].startswith(fence) else fence or match[1]
        elif not fence and (_TAG.match(line) or _INJECTED_TAG.match(line)):
            opened = _TAG.match(line)
            name = opened[1] if opened else ""
            if name and f"</{name}>" in text:
                tag = "" if f"</{name}>" in line else name
            elif _INJECTED_TAG.match(line):
                break
        elif (
            not fence
            and not line.lstrip().startswith((">", "|", _INTERRUPTED))
            and not _SPEAKER_LABEL.match(line)
            and not _is_quoted_object(own, line)
        ):
            own.append(line)
    return [*own, *typed]


def _is_quoted_object(own: list[str], line: str) -> bool:
    """Whether a line is a quotation that the unfinished line before it speaks of: `change`, `"…"`, `to …`."""
    if not _QUOTED.fullmatch(line.strip()):
        return False
    before = next((each.rstrip() for each in reversed(own) if each.strip()), "")
    return before[-1:].isalpha()


def is_document(text: str) -> bool:
    """Whether own lines read as a document that was pasted or generated, such as a plan or a command's body."""
    return (
        len(text) > _MAX_TYPED_CHARS
        or text.count("\n") >= _MAX_TYPED_LINES
        or len(_HEADING.findall(text[:_MAX_OWN_CHARS])) >= _MIN_HEADINGS
        or _PERSONA.match(text) is not None
    )


def cut_words(text: str, max_chars: int = MAX_SENTENCE_CHARS) -> str:
    """The beginning of a text with single spaces; a long one is cut between words and ends with `CUT_SIGN`."""
    plain = " ".join(text[: max_chars * 8].split())
    if len(plain) <= max_chars:
        return plain
    most = max_chars - len(CUT_SIGN)
    space = plain.rfind(" ", 0, most + 1)
    return f"{plain[:space] if space > max_chars // 2 else plain[:most]}{CUT_SIGN}"


def _join_wrapped(lines: list[str]) -> Iterator[str]:
    """Lines of prose; sentences broken across lines are joined."""
    paragraph = ""
    for line in lines:
        plain = line.strip()
        continues = (
            len(paragraph) >= _MIN_WRAPPED_CHARS
            and paragraph[-1] not in ".!?:;。"
            and plain[:1].islower()
            and not _LIST_MARKER.match(line)
        )
        if continues and len(paragraph) < 4 * MAX_SENTENCE_CHARS:
            paragraph += " " + plain
            continue
        if paragraph:
            yield paragraph
        marker = _LIST_MARKER.match(plain)
        paragraph = plain[marker.end() :] if marker else plain
    if paragraph:
        yield paragraph


def _split_sentences(line: str) -> Iterator[str]:
    """The sentences of a line. What is in quotation marks is not divided: half a quotation says something else."""
    quoted = [match.span() for match in _QUOTED.finditer(line)]
    start = 0
    for match in _SENTENCE.finditer(line):
        if any(begin < match.start() and match.end() < end for begin, end in quoted):
            continue
        yield line[start : match.end()].strip()
        start = match.end()
    if rest := line[start:].strip():
        yield rest
