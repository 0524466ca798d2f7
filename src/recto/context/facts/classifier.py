"""What kind of thing a message says, told by its wording, and whether it takes back an earlier one.

Wording is weak evidence, so what raises the rank of a message is given to people only: a tool or a model that writes
`important` or `remember that` says nothing by it. Of a long message the beginning and the end are looked at, and only
what stands outside code and quotations. Nothing is known here of what the words mean.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain

from recto.context.facts import patterns
from recto.context.facts.patterns import Wording
from recto.context.facts.types import Mark
from recto.text.analyzer import words_of
from recto.text.identifiers import clip_middle
from recto.text.secrets import find_secrets
from recto.transcript.entries import Role

_MOST = 3_000
"""Characters of prose that are somebody's own words; what is longer was pasted."""
_OWN = 1_000
"""Characters that are looked at where something was pasted: own words stand before and after it."""
_MOST_READ = 60_000
"""Characters of a message in which that prose is searched for."""

_BY_USERS = (
    *patterns.CORRECTIONS,
    *patterns.CONSTRAINTS,
    *patterns.DECISIONS,
    *patterns.USER_DECISIONS,
    *patterns.PREFERENCES,
    *patterns.CRITICAL,
    *patterns.EVERGREEN,
)
_BY_ASSISTANTS = (*patterns.STRICT_CONSTRAINTS, *patterns.DECISIONS)
_HEARD: dict[Role, tuple[Wording, ...]] = {
    "user": _BY_USERS,
    "assistant": _BY_ASSISTANTS,
    "system": patterns.CONSTRAINTS,
    "tool": (),
    "event": (),
}
"""Whose words count for what."""

_FENCE = re.compile(r"\s{0,8}(```|~~~)")
_TAG = re.compile(r"<([a-z][a-z_-]{2,40})(?:\s[^<>\n]{0,200})?>")
_ASKS = re.compile(r"\?(?=\s|$|[\"')\]”*?!])|[？؟]|(?:吗|呢|ですか|ますか|나요|까요)(?=\W|$)")
_BEGINS_TO_ASK = re.compile(
    r"\W{0,4}(?:what|who|whom|whose|which|when|where|why|how|is|are|was|were|do|does|did|can|could|would|will|should|shall"
    r"|may|have|has)\s\S+\s\S"
)
_FAILS = re.compile(
    r"^Traceback \(most recent call last\)|^(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Failure)\b(?::"
    r"|$)|^\s{0,8}(?:error|fatal|panic|ERROR|FATAL|Error)(?:\[\w+\])?:"
    r"|^\s{0,4}(?:FAILED|FAIL)[: \t]|\b\d+ (?:failed"
    r"|errors?)\b(?<!\b0 failed)(?<!\b0 errors)(?<!\b0 error)|\b[Ee]xit(?:ed)?(?: with)?(?: code"
    r"| status)?:? [1-9]\d{0,2}\b|\bsegmentation fault|\bSegmentation fault"
    r"|\b[Pp]ermission denied\b|\bNo such file or directory\b|: command not found\b|^npm ERR!"
    r"|\berror TS\d+|\berror\[E\d+\]|\bE(?:CONNREFUSED|NOENT|ACCES|TIMEDOUT|ADDRINUSE)\b|^--- FAIL:",
    re.MULTILINE,
)


_FAIL_CUES = (
    *(
        "Traceback",
        "rror",
        "xception",
        "ailure",
        "FAIL",
        "failed",
        "panic",
        "fatal",
        "FATAL",
        "xit",
        "egmentation",
        "denied",
    ),
    *("No such file", "command not found", "npm ERR", "ECONN", "ENOENT", "EACCES", "ETIMEDOUT", "EADDR"),
)


def marks_of(text: str, role: Role) -> Mark:
    """The marks of a message. Linear in its length; never raises."""
    if role == "event":
        return Mark.NONE
    looked = clip_middle(text, _MOST_READ)
    marks = Mark.SECRET if find_secrets(looked) else Mark.NONE
    if role != "system" and _fails(clip_middle(text, _MOST)):
        marks |= Mark.ERROR
    heard = _HEARD[role]
    if heard:
        prose = _prose(looked).lower().replace("’", "'")
        prose = prose if len(prose) <= _MOST else clip_middle(prose, _OWN)
        for wording in heard:
            if wording.mark not in marks and _is_said(prose, wording):
                marks |= wording.mark
        if role != "system" and _asks(prose):
            marks |= Mark.QUESTION
    return marks


def _fails(text: str) -> bool:
    return any(cue in text for cue in _FAIL_CUES) and _FAILS.search(text) is not None


def _is_said(prose: str, wording: Wording) -> bool:
    return any(cue in prose for cue in wording.cues) and wording.pattern.search(prose) is not None


def _asks(prose: str) -> bool:
    if _ASKS.search(prose):
        return True
    last = prose.rstrip().rpartition("\n")[2][:300]
    return not last.endswith((".", "!", ":")) and _BEGINS_TO_ASK.match(last) is not None


def _prose(text: str) -> str:
    """What a person wrote of it: no code, no quoted lines, no block between tags."""
    kept: list[str] = []
    fence, tag = "", ""
    for line in text.splitlines():
        if tag:
            tag = "" if f"</{tag}>" in line else tag
        elif found := _FENCE.match(line):
            fence = "" if fence == found[1] else fence or found[1]
        elif not fence and not line.lstrip().startswith((">", "|")):
            opened = _TAG.match(line)
            if opened and f"</{opened[1]}>" in text:
                tag = "" if f"</{opened[1]}>" in line else opened[1]
            else:
                kept.append(line)
    return "\n".join(kept)


_COMMON = frozenset(
    """
    a an the this that these those i me my you your he him his she her it its we us our they them their who what which
    where when why how am is are was were be been do does did done have has had will would can could should shall may
    might must and or but if so than then as at by for from in into of off on onto to up with about there here just
    also very too not no any some such yes ok okay please thanks
    actually instead rather wrong right correct correction mistake meant mean scratch forget said say wait sorry now
    longer anymore change changed switched switch updated update renamed postponed rescheduled make made use
    using used let lets set think want need got get go going new old still only more last next really
    """.split()  # noqa: SIM905  read as prose
)
"""Words that say nothing of what a message is about, the wording of corrections among them."""
_DATES = frozenset(
    """
    january february march april june july august september october november december jan feb mar apr jun jul aug sep
    sept oct nov dec monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat
    morning afternoon
    evening noon midnight today tomorrow tonight one two three four five six seven eight nine ten eleven twelve
    """.split()  # noqa: SIM905  read as prose
)
_LIVING = frozenset(("moved", "move", "moving", "live", "lives", "living", "relocated"))
"""Who has moved no longer lives where they did: the commonest correction that names its subject by another word."""
_CAPITAL = re.compile(r"(?<=[^\s.!?:] )[A-Z][\w'-]*")
_DENIED = re.compile(
    r"(?:\bnot|\binstead of|\brather than|\bno longer|n't|\bfrom|\bwas|\bsaid|\bold)\s+(?:the\s|a\s|an\s"
    r"|in\s|on\s|at\s|to\s|use\s|using\s)?([^\s,;!?]+)",
    re.IGNORECASE,
)
_LONGEST_COMPARED = 2_000
_REMEMBERED = 512
"""Texts whose words are remembered: one correction is held against many statements."""


def supersedes(correction: str, earlier: str) -> float:
    """How likely a later message of the user takes back an earlier one, from 0 to 1.

    It does where both speak of the same subject, the later one is worded as a correction, and a value in it differs:
    a number, a date, a name, a path. A value that the later one denies by name is the best sign of all.
    """
    later, before = clip_middle(correction, _LONGEST_COMPARED), clip_middle(earlier, _LONGEST_COMPARED)
    subject_later, values_later = _told(later)
    subject_before, values_before = _told(before)
    if subject_later | values_later == subject_before | values_before:
        return 0.0
    shared = subject_later & subject_before
    denied = _denied(later) & (values_before | subject_before)
    if not shared and not denied:
        return 0.0
    worded = _is_worded(later)
    changed = bool(values_later - values_before) and bool(values_before - values_later)
    replaced = changed or bool(subject_later - subject_before and subject_before - subject_later)
    likeness = _likeness(shared | denied, subject_later | denied, subject_before | denied)
    signs = 0.45 * worded + 0.25 * changed + 0.1 * replaced + 0.35 * bool(denied)
    score = min(1.0, likeness * 1.6) * min(1.0, 0.1 + signs)
    return score * (0.3 if _is_question(before) else 1.0)


@lru_cache(_REMEMBERED)
def _told(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words that name a subject, and the words that are values."""
    names = {name.lower() for name in _CAPITAL.findall(text)}
    words = set(words_of(text)) - _COMMON
    values = {word for word in words if word in names or word in _DATES or not word.isalpha()}
    return frozenset(_stem(word) for word in words - values if len(word) > 1), frozenset(values)


def _stem(word: str) -> str:
    if word in _LIVING:
        return "live"
    for ending in ("ing", "ed", "es", "s"):
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word


@lru_cache(_REMEMBERED)
def _denied(text: str) -> frozenset[str]:
    found = chain.from_iterable(words_of(word) for word in _DENIED.findall(text))
    words = {word for word in found if word not in _COMMON}
    return frozenset(words | {_stem(word) for word in words})


@lru_cache(_REMEMBERED)
def _is_worded(text: str) -> bool:
    prose = _prose(text).lower().replace("’", "'")
    return any(_is_said(prose, wording) for wording in patterns.CORRECTIONS)


def _likeness(shared: frozenset[str], one: frozenset[str], other: frozenset[str]) -> float:
    """How much of the shorter one's subject both share; long words tell more, and one short word alone tells little."""
    weight = sum(min(len(word), 8) for word in shared)
    least = min(sum(min(len(word), 8) for word in words) for words in (one, other))
    if not weight:
        return 0.0
    return weight / max(least, 10)


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(("?", "？", "؟"))
