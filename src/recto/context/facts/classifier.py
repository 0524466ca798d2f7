"""Classify messages by their wording, and detect whether one supersedes an earlier one.

Wording is weak evidence, so marks that raise a message's rank are only given to users: a tool or model that writes
`important` proves nothing by it. Of a long message the beginning and end are read, outside code and quotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from recto.context.facts import patterns
from recto.context.facts.patterns import Wording
from recto.context.facts.types import Mark
from recto.text.lazy_re import lazy_re
from recto.text.secrets import HarmlessWords, find_secrets, may_hold_secrets
from recto.text.terms import MAX_WORD_CHARS, chunks_of, clip_middle, distinct_chunks, words_of
from recto.transcript.entries import Role

_MAX_OWN_CHARS = 3_000
"""Maximum length of own words; anything longer was pasted."""
_PASTED_CHARS = 1_000
"""Characters read of a pasted text: own words come before and after it."""
_MAX_READ_CHARS = 60_000
"""Characters of a message that are searched for prose."""

_USER_WORDINGS = (
    *patterns.CORRECTIONS,
    *patterns.CONSTRAINTS,
    *patterns.DECISIONS,
    *patterns.USER_DECISIONS,
    *patterns.PREFERENCES,
    *patterns.CRITICAL,
    *patterns.EVERGREEN,
)
_ASSISTANT_WORDINGS = (*patterns.STRICT_CONSTRAINTS, *patterns.DECISIONS)
_WORDINGS_BY_ROLE: dict[Role, tuple[Wording, ...]] = {
    "user": _USER_WORDINGS,
    "assistant": _ASSISTANT_WORDINGS,
    "system": patterns.CONSTRAINTS,
    "tool": (),
    "event": (),
}
"""Which wordings count for which role."""
_CUES_BY_ROLE = {role: tuple({cue for one in found for cue in one.cues}) for role, found in _WORDINGS_BY_ROLE.items()}

_FENCE = lazy_re(r"\s{0,8}(```|~~~)")
_TAG = lazy_re(r"<([a-z][a-z_-]{2,40})(?:\s[^<>\n]{0,200})?>")
_QUESTION_MARK = lazy_re(r"\?(?=\s|$|[\"')\]”*?!])|[？؟]|(?:吗|呢|ですか|ますか|나요|까요)(?=\W|$)")
_QUESTION_START = lazy_re(
    r"\W{0,4}(?:what|who|whom|whose|which|when|where|why|how|is|are|was|were|do|does|did|can|could|would|will|should|shall"
    r"|may|have|has)\s\S+\s\S"
)
_FAILURE_LINE = lazy_re(
    r"Traceback \(most recent call last\)|(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Failure)\b(?::"
    r"|$)|\s{0,8}(?:error|fatal|panic|ERROR|FATAL|Error)(?:\[\w+\])?:|\s{0,4}(?:FAILED|FAIL)[: \t]|npm ERR!|--- FAIL:"
)
"""How a line begins that reports a failure."""
_FAILURE = lazy_re(
    r"\b(?:\d+ (?:failed|errors?)\b(?<!\b0 failed)(?<!\b0 errors)(?<!\b0 error)"
    r"|[Ee]xit(?:ed)?(?: with)?(?: code| status)?:? [1-9]\d{0,2}\b|[Ss]egmentation fault|[Pp]ermission denied\b"
    r"|No such file or directory\b|error TS\d+|error\[E\d+\]|E(?:CONNREFUSED|NOENT|ACCES|TIMEDOUT|ADDRINUSE)\b)"
    r"|: command not found\b"
)
"""What reports a failure anywhere in a line."""


_FAILURE_CUES = {
    cue: max(cue.split(), key=len)
    for cue in (
        *("Traceback", "rror", "xception", "ailure", "FAIL", "failed", "panic", "fatal", "FATAL", "xit"),
        *("egmentation", "denied", "No such file", "command not found", "npm ERR", "ECONN", "ENOENT", "EACCES"),
        *("ETIMEDOUT", "EADDR"),
    )
}
"""What every failure contains, and the longest word of it."""
_MAX_CUE_WORDS = 50_000
"""Words whose cues are remembered."""
_MAX_CUE_WORD = 40
"""Characters of such a word; longer ones rarely come again."""
_harmless = HarmlessWords(tuple(_FAILURE_CUES.values()))
"""Chunks of texts that are no part of a secret or a failure."""


class _CueIndex:
    """Finds cues in texts of ASCII characters. Remembers which of them may overlap a word: most words have none."""

    def __init__(self, cues: Iterable[str]) -> None:
        self._longest = [(cue, max(cue.split(), key=len)) for cue in cues]
        """Each cue with its longest word: a text that contains the cue has a word that contains this one."""
        self._known: dict[str, tuple[str, ...]] = {}
        self._plain: set[str] = set()
        """Words without cues."""

    def find(self, text: str) -> set[str]:
        """The cues that a text contains."""
        known = self._known
        words = set(text.split()).difference(self._plain)
        candidates = {cue for word in words for cue in (known[word] if word in known else self._learn(word))}
        return {cue for cue in candidates if cue in text}

    def _learn(self, word: str) -> tuple[str, ...]:
        found = tuple([cue for cue, longest in self._longest if longest in word])
        if len(word) <= _MAX_CUE_WORD:
            if len(self._known) + len(self._plain) >= _MAX_CUE_WORDS:
                # Other threads may be reading the old ones, so they are replaced and not cleared.
                self._known, self._plain = {}, set()
            if found:
                self._known[word] = found
            else:
                self._plain.add(word)
        return found


_ascii_cues = _CueIndex(filter(str.isascii, {cue for cues in _CUES_BY_ROLE.values() for cue in cues}))
"""Cues of all roles: a text of ASCII characters contains no others."""


def classify(text: str, role: Role) -> Mark:
    """The marks of a message. Linear in its length; never raises."""
    if role == "event":
        return Mark.NONE
    clipped = clip_middle(text, _MAX_READ_CHARS)
    chunks = _harmless.others(distinct_chunks(clipped))
    marks = Mark.SECRET if chunks and may_hold_secrets(clipped, chunks) and find_secrets(clipped) else Mark.NONE
    if chunks and role != "system" and _reports_failure(clip_middle(text, _MAX_OWN_CHARS), chunks):
        marks |= Mark.ERROR
    wordings = _WORDINGS_BY_ROLE[role]
    if wordings:
        prose = _prose(clipped).lower().replace("’", "'")
        prose = prose if len(prose) <= _MAX_OWN_CHARS else clip_middle(prose, _PASTED_CHARS)
        cues = _ascii_cues.find(prose) if prose.isascii() else {cue for cue in _CUES_BY_ROLE[role] if cue in prose}
        for wording in wordings if cues else ():
            if not cues.isdisjoint(wording.cues) and wording.mark not in marks and wording.pattern.search(prose):
                marks |= wording.mark
        if role != "system" and _is_asking(prose):
            marks |= Mark.QUESTION
    return marks


def _reports_failure(text: str, chunks: str) -> bool:
    cues = [cue for cue, word in _FAILURE_CUES.items() if word in chunks and cue in text]
    # No failure spans two lines, and few lines have a cue: the patterns are slow.
    lines = [line for line in text.split("\n") if any(cue in line for cue in cues)] if cues else ()
    return any(_FAILURE_LINE.match(line) or _FAILURE.search(line) for line in lines)


def _matches(prose: str, wording: Wording) -> bool:
    return any(cue in prose for cue in wording.cues) and wording.pattern.search(prose) is not None


def _is_asking(prose: str) -> bool:
    if ("?" in prose or not prose.isascii()) and _QUESTION_MARK.search(prose):
        return True
    last = prose.rstrip().rpartition("\n")[2][:300]
    return not last.endswith((".", "!", ":")) and _QUESTION_START.match(last) is not None


def _prose(text: str) -> str:
    """The author's own prose: no code, no quoted lines, no tagged blocks."""
    if not any(mark in text for mark in ("```", "~~~", "<", ">", "|")):
        return "\n".join(text.splitlines())
    prose_lines: list[str] = []
    fence, tag = "", ""
    for line in text.splitlines():
        if tag:
            tag = "" if f"</{tag}>" in line else tag
        elif match := _FENCE.match(line):
            fence = "" if fence == match[1] else fence or match[1]
        elif not fence and not line.lstrip().startswith((">", "|")):
            opened = _TAG.match(line)
            if opened and f"</{opened[1]}>" in text:
                tag = "" if f"</{opened[1]}>" in line else opened[1]
            else:
                prose_lines.append(line)
    return "\n".join(prose_lines)


_COMMON = frozenset(
    """
    a an the this that these those i me my you your he him his she her it its we us our they them their who what which
    where when why how am is are was were be been do does did done have has had will would can could should shall may
    might must and or but if so than then as at by for from in into of off on onto to up with about there here just
    also very too not no any some such yes ok okay please thanks sure
    actually instead rather wrong right correct correction mistake meant mean scratch forget said say wait sorry now
    longer anymore change changed switched switch updated update renamed postponed rescheduled make made use
    using used let lets set think want need got get go going new old still only more last next really
    """.split()  # noqa: SIM905  read as prose
)
"""Words that do not identify the subject of a message, including the wording of corrections."""
_DATES = frozenset(
    """
    january february march april june july august september october november december jan feb mar apr jun jul aug sep
    sept oct nov dec monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat
    morning afternoon
    evening noon midnight today tomorrow tonight one two three four five six seven eight nine ten eleven twelve
    """.split()  # noqa: SIM905  read as prose
)
RELOCATION = frozenset(("moved", "move", "moving", "live", "lives", "living", "relocated"))
"""Someone who moved no longer lives there: the most common correction that names its subject by another word."""
_CAPITAL = lazy_re(r"[A-Z](?<=[^\s.!?:] [A-Z])[\w'-]*")
"""A capital inside a sentence. What is before it is looked at last: letters are found faster than places."""
_DENIED = lazy_re(
    r"(?:\bnot|\binstead of|\brather than|\bno longer|n't|\bfrom|\bwas|\bsaid|\bold)\s+"
    r"(?:(?:the|a|an|in|on|at|to|by|use|using)\s){0,3}([^\s,;!?]+)",
    re.IGNORECASE,
)
CLAUSE_END = lazy_re(r"[.;:!?]\s+|\n+|,\s+(?:and|but|so|und|aber|et|mais|y|pero)\s+|[。；！？]")
"""Where a clause of a message ends."""
_MAX_INTRODUCTION = 40
"""Characters of a clause that only says that a correction follows."""
_MAX_COMPARED_CHARS = 2_000
_CACHE_SIZE = 512
"""Number of texts whose words are cached: one correction is compared with many statements."""
_MAX_WORDS = 16_384
"""Number of words whose analysis is cached."""
_MIN_SUBJECT_WEIGHT = 10
"""A single short word is not a whole subject."""


def supersession_score(correction: str, earlier: str) -> float:
    """How likely a user message supersedes an earlier one, from 0 to 1.

    It does if both have the same subject, the later one is worded as a correction, and a value differs: a number, a
    date, a name, a path. A value that the later one denies by name is the strongest sign.
    """
    later, before = clip_middle(correction, _MAX_COMPARED_CHARS), clip_middle(earlier, _MAX_COMPARED_CHARS)
    new, old = _statement_of(later), _statement_of(before)
    shared = new.subject & old.subject
    denied = _denied_words(later) & old.words
    if not (shared or denied) or new.words == old.words:
        return 0.0
    # The share of the shorter subject that both share.
    least = min(new.weight + _weight(denied - new.subject), old.weight + _weight(denied - old.subject))
    similarity = _weight(shared | denied) / max(least, _MIN_SUBJECT_WEIGHT)
    changed = not new.values <= old.values and not old.values <= new.values
    replaced = changed or (not new.subject <= old.subject and not old.subject <= new.subject)
    signs = _weigh_signs(_is_correction(later), changed, replaced, bool(denied))
    score = min(1.0, similarity * 1.6) * min(1.0, 0.1 + signs)
    return score * (0.3 if _is_question(before) else 1.0)


def clause_supersession_bound(correction: str, earlier: str) -> float:
    """A score that no clause of a text exceeds. Quicker than to compare them one by one."""
    if not earlier.isascii() or len(earlier) > _MAX_COMPARED_CHARS:
        return 1.0
    later = clip_middle(correction, _MAX_COMPARED_CHARS)
    new, old = _statement_of(later), _statement_of(earlier)
    # Without the words before it, a value may be part of a subject.
    words = old.words.union(map(_stem, old.values))
    denied = _denied_words(later) & words
    shared = new.subject & words | denied
    changed = bool(new.values) and not old.values <= new.values
    signs = _weigh_signs(_is_correction(later), changed, True, bool(denied)) if shared else 0.0
    return min(1.0, _weight(shared) / _MIN_SUBJECT_WEIGHT * 1.6) * min(1.0, 0.1 + signs)


def _weigh_signs(is_correction: bool, changed: bool, replaced: bool, denied: bool) -> float:
    return 0.45 * is_correction + 0.25 * changed + 0.1 * replaced + 0.35 * denied


def _weight(words: Iterable[str]) -> int:
    """Long words weigh more."""
    return sum([min(len(word), 8) for word in words])


@lru_cache(_CACHE_SIZE)
def clause_words(text: str) -> tuple[frozenset[str], ...]:
    """The words of each clause of the author's prose, without function words and the wording of corrections."""
    return tuple(words for clause in _clauses(text) if (words := _subject_words(clause)))


@lru_cache(_CACHE_SIZE)
def correcting_words(correction: str) -> tuple[frozenset[str], ...]:
    """The words of each clause that is worded as a correction, or follows a short one: "No, that was wrong: …".

    Of a message whose clauses are not worded so one by one, the words of all of them.
    """
    chosen: list[str] = []
    follows_short = False
    for clause in _clauses(correction):
        is_correcting = _is_correction(clause)
        if is_correcting or follows_short:
            chosen.append(clause)
        follows_short = is_correcting and len(clause) <= _MAX_INTRODUCTION
    return tuple(words for clause in chosen if (words := _subject_words(clause))) or clause_words(correction)


def _clauses(text: str) -> list[str]:
    return [clause for clause in CLAUSE_END.split(_prose(clip_middle(text, _MAX_COMPARED_CHARS))) if clause.strip()]


def _subject_words(clause: str) -> frozenset[str]:
    return frozenset("live" if word in RELOCATION else word for word in words_of(clause) if word not in _COMMON)


class _Statement(NamedTuple):
    """What a text is compared by."""

    subject: frozenset[str]
    """Stems of the words that name its subject."""
    values: frozenset[str]
    words: frozenset[str]
    """Both."""
    weight: int
    """Of the subject."""


@lru_cache(_CACHE_SIZE)
def _statement_of(text: str) -> _Statement:
    names = {name.lower() for name in _CAPITAL.findall(text)}
    chunks = set(chunks_of(text))
    long = [chunk for chunk in chunks if len(chunk) > MAX_WORD_CHARS]  # too large to be remembered
    found = chain(map(_words_of_chunk, chunks.difference(long)), map(words_of, long))
    words = set(chain.from_iterable(found)) - _COMMON
    values = frozenset([word for word in words if word in names or word in _DATES or not word.isalpha()])
    subject = frozenset([_stem(word) for word in words - values if len(word) > 1])
    return _Statement(subject, values, subject | values, _weight(subject))


@lru_cache(_MAX_WORDS)
def _words_of_chunk(chunk: str) -> tuple[str, ...]:
    return tuple(words_of(chunk))


@lru_cache(_MAX_WORDS)
def _stem(word: str) -> str:
    if word in RELOCATION:
        return "live"
    for ending in ("ing", "ed", "es", "s"):
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word


@lru_cache(_CACHE_SIZE)
def _denied_words(text: str) -> frozenset[str]:
    """The words that the author denies. Code denies nothing: `SELECT * FROM orders` is no farewell to orders."""
    denied_words = chain.from_iterable(words_of(word) for word in _DENIED.findall(_prose(text)))
    significant = {word for word in denied_words if word not in _COMMON}
    return frozenset(significant | {_stem(word) for word in significant})


@lru_cache(_CACHE_SIZE)
def _is_correction(text: str) -> bool:
    prose = _prose(text).lower().replace("’", "'")
    return any(_matches(prose, wording) for wording in patterns.CORRECTIONS)


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(("?", "？", "؟"))
