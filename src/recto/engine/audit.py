"""The audit of a store: every change of a session as a line, read from the transcript and from nowhere else.

It reads as it goes and holds no more than a page, so that a session of any length can be audited. What was written
into a file can be held against the transcript later: the same question must give the same lines, and the chain must
hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from recto.continuity.memory.events import APPLIED, APPROVED, CONSOLIDATED, CYCLE, NOTED, PROPOSED, REJECTED, RETIRED
from recto.engine import projection
from recto.engine.delegation import DELEGATED, DELEGATED_FROM
from recto.engine.erasure import ERASED, FINISHED, erasures
from recto.engine.fork import BRANCH
from recto.engine.importer import IMPORTED
from recto.engine.projection import DECISIONS, PINNED, RESTORED, SNAPSHOT, UNPINNED
from recto.engine.recall_injection import INDEX_FAILED, INJECTED, MISSED
from recto.engine.standing_context import STANDING
from recto.engine.verification import verify
from recto.errors import InputError
from recto.recall.types import USED
from recto.transcript.audit import AuditClosing, AuditFilter, AuditLine, Detail, Ranges, Topic
from recto.transcript.entries import MESSAGE, Entry, Head
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import parse_pointer, reach_of

_PAGE = 500
_LOOKED_AT = 10_000
"""Entries that one page of lines looks through at most, and the last ones in which it looks for what was undone."""
_PAGE_OF_SESSIONS = 500
_LONGEST = 500
"""Characters of a reason or a name."""
_MOST_RANGES = 10_000

_KINDS: dict[Topic, tuple[str, ...]] = {
    "decision": tuple(DECISIONS),
    "undo": (RESTORED,),
    "pin": (PINNED, UNPINNED),
    "memory": (PROPOSED, NOTED, APPROVED, REJECTED, RETIRED, APPLIED, CONSOLIDATED, CYCLE),
    "continuity": (projection.CHECKPOINT, projection.HANDOFF, projection.REPLAYED, projection.HOST_COMPACTED),
    "recall": (INJECTED, MISSED, USED),
    "pressure": (
        projection.ZONE,
        projection.SPIKE,
        projection.WARNING,
        projection.VIOLATION,
        projection.ANNOUNCED,
        projection.REQUIRED,
    ),
    "failure": (
        projection.OVERFLOW,
        INDEX_FAILED,
        projection.UNSAVED,
        projection.FIDELITY_LOW,
        "reply_cut",
        "upstream_failed",
    ),
    "session": (
        *(BRANCH, IMPORTED, STANDING, DELEGATED, DELEGATED_FROM, "session_opened", "model_changed"),
        *("conversation_opened", "instructions_given", "tools_offered"),  # the gateway's
        *(ERASED, FINISHED),
    ),
    "note": (projection.NOTE,),
    "bookkeeping": (SNAPSHOT, projection.USAGE, projection.JUDGED, "report", "lineage"),
}
TOPICS: Mapping[str, Topic] = {kind: topic for topic, kinds in _KINDS.items() for kind in kinds}
"""What each kind of event is about; what is not here was written by another program, or by a newer Recto."""

_NAMES = frozenset(
    {"action", "after", "before", "component", "digest", "from", "hash", "how", "indexed", "level", "memory", "model",
     "pointer", "proposal", "receipt", "session", "to", "upstream"}
)  # fmt: skip
"""Texts in events that are names and no words of anybody."""
_MEANT = frozenset({APPROVED, REJECTED, RETIRED, "reply_cut"})
"""Events whose `why` is what somebody gave as a reason, not what was said in a session."""
_OWN = frozenset({"policy", "reason", "by", "why", "left", "shrunk", "kept", "scores", "tokens_before", "tokens_after",
                  "frees", "cache_mark", "text", "seqs"})  # fmt: skip


def audit(
    store: TranscriptStore,
    session: str,
    asked: AuditFilter | None = None,
    *,
    as_of: int | None = None,
    advance: Callable[[int], object] = lambda by: None,
) -> Iterator[AuditLine]:
    """The lines of one session that are asked for, as of an entry or as of its end.

    `advance` hears how many entries were read.
    """
    asked = asked or AuditFilter()
    head = store.head(session).seq if as_of is None else as_of
    found = (_newest_first if asked.newest else _oldest_first)(store, session, asked, head, advance)
    return islice(found, asked.limit)


def audited_back(
    store: TranscriptStore, session: str, asked: AuditFilter, *, limit: int
) -> tuple[list[AuditLine], int]:
    """A page of lines, newest first, and the entry the next one begins with; 0 where there is none.

    It looks through a bounded number of entries however few lines they hold, and for what was undone at a bounded
    number of the last ones.
    """
    head = store.head(session).seq
    first = head if asked.past is None else min(asked.past - 1, head)
    floor = max(first - _LOOKED_AT, 0)
    lines: list[AuditLine] = []
    for line in _newest_first(store, session, asked, head, lambda by: None, floor=floor, undone_from=head - _LOOKED_AT):
        if len(lines) >= limit:
            return lines, line.seq
        lines.append(line)
    return lines, floor


def closing(head: Head, session: str, asked: AuditFilter, lines: int) -> AuditClosing:
    """What ends the lines of a session that were read as of a head."""
    return AuditClosing(session=session, seq=head.seq, hash=head.hash.hex(), lines=lines, filter=asked)


def reached(store: TranscriptStore, key: str) -> Iterator[str]:
    """Every session of the tenant that a stored key belongs to, by key."""
    reach = reach_of(key, "tenant")
    after = ""
    while page := store.sessions(after, _PAGE_OF_SESSIONS):
        yield from (summary.session for summary in page if reach.contains(summary.session))
        after = page[-1].session


def line_of(entry: Entry, *, undone_by: int | None = None, text: bool = False) -> AuditLine:
    """An event as an audit tells it. Whatever its content is, there is a line."""
    about = _about(entry)
    topic = TOPICS.get(entry.kind, "other")
    known = about if topic != "other" else {}
    entries, shrunk = _entries(entry, known), _ranges([[seq, seq] for seq in _numbers(known.get("shrunk"))])
    return AuditLine(
        session=entry.session,
        seq=entry.seq,
        id=entry.id,
        ts=entry.ts,
        kind=entry.kind,
        topic=topic,
        surface=entry.surface,
        hash=entry.hash.hex(),
        policy=_text(known.get("policy")),
        reason=_text(known.get("reason") or known.get("failed") or (known.get("why") if entry.kind in _MEANT else "")),
        by=_text(known.get("by")) or _asked_by(entry),
        entries=entries,
        shrunk=shrunk,
        messages=sum(last - first + 1 for first, last in (*entries, *shrunk)),
        tokens_before=_whole(known.get("tokens_before")),
        tokens_after=_whole(known.get("tokens_after")),
        freed=_whole(known.get("frees")),
        picodollars=_cost(known.get("compression")),
        undone_by=undone_by,
        scores=_scores(known.get("scores")),
        details=_details(known),
        text=entry.content.decode(errors="replace") if text else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How an export differs from the transcript it is of."""

    session: str
    seq: int | None
    says: str


def differences(
    store: TranscriptStore,
    rows: Callable[[], Iterator[Mapping[str, Any]]],
    same: Callable[[AuditLine, Mapping[str, Any]], bool],
) -> Iterator[Difference]:
    """How exported rows differ from what the transcript says; nothing where they do not.

    The rows are gone through twice: for the heads that end each session, then line by line. `same` compares a line
    with a row in the form of the export.
    """
    heads = {one.session: one for one in (AuditClosing.of(row) for row in rows() if row.get("record") == "head")}
    if not heads:
        raise InputError("no record of a head was found: this is no export of 'recto audit', or its end is missing")
    waiting: dict[str, Iterator[AuditLine]] = {}
    gone = {name for name in erasures(store) if name in heads and not store.head(name).seq}
    for row in rows():
        name = str(row.get("session"))
        head = heads.get(name)
        if head is not None and name in gone:
            continue
        if head is None:
            yield Difference(session=name, seq=None, says="its lines are not ended by a head")
            return
        if name not in waiting:
            waiting[name] = audit(store, name, head.filter, as_of=head.seq)
        line = next(waiting[name], None)
        if row.get("record") == "head":
            if line is not None:
                yield Difference(session=name, seq=line.seq, says="the export lacks this line")
        elif line is None or not same(line, row):
            seq = line.seq if line is not None else None
            yield Difference(session=name, seq=seq, says=f"line {row.get('seq')} is not what the transcript says")
            return
    for name in sorted(gone):
        yield Difference(session=name, seq=None, says="it was erased on purpose, and cannot be compared any more")
    for name, head in heads.items():
        found = verify(store, name, {name: Head(head.seq, bytes.fromhex(head.hash))})
        yield from (Difference(session=name, seq=one.seq, says=one.problem) for one in found.findings)


def _oldest_first(
    store: TranscriptStore, session: str, asked: AuditFilter, head: int, advance: Callable[[int], object]
) -> Iterator[AuditLine]:
    undone: dict[int, int] | None = None
    first = (asked.past or 0) + 1
    for start in range(first, head + 1, _PAGE):
        for entry in store.read(session, start, min(start + _PAGE - 1, head)):
            if entry.kind == MESSAGE:
                continue
            if undone is None and entry.kind in DECISIONS:
                undone = _undone(store, session, entry.seq + 1, head)
            line = line_of(entry, undone_by=(undone or {}).get(entry.seq), text=asked.text)
            if asked.matches(line):
                yield line
        advance(min(_PAGE, head - start + 1))


def _newest_first(
    store: TranscriptStore,
    session: str,
    asked: AuditFilter,
    head: int,
    advance: Callable[[int], object],
    *,
    floor: int = 0,
    undone_from: int = 0,
) -> Iterator[AuditLine]:
    """The lines above an entry; what undid a decision is looked for from another one on."""
    stop = head if asked.past is None else min(asked.past - 1, head)
    undone = _undone(store, session, max(stop + 1, undone_from), head)
    while stop > floor:
        start = max(stop - _PAGE + 1, floor + 1)
        for entry in reversed([one for one in store.read(session, start, stop) if one.kind != MESSAGE]):
            if entry.kind == RESTORED:
                undone.setdefault(_decision(entry), entry.seq)
            line = line_of(entry, undone_by=undone.get(entry.seq), text=asked.text)
            if asked.matches(line):
                yield line
        advance(stop - start + 1)
        stop = start - 1


def _undone(store: TranscriptStore, session: str, start: int, stop: int) -> dict[int, int]:
    """Which decisions were undone in a stretch, each with the last entry that undid it."""
    found: dict[int, int] = {}
    for entry in store.read(session, start, stop) if start <= stop else ():
        if entry.kind == RESTORED:
            found[_decision(entry)] = entry.seq
    return found


def _decision(restored: Entry) -> int:
    return _whole(_about(restored).get("decision")) or 0


def _asked_by(entry: Entry) -> str:
    """Who asked for it at a door, where that was kept beside it."""
    if b'"asked_by"' not in entry.meta:
        return ""
    try:
        about = json.loads(entry.meta)
    except (ValueError, RecursionError):
        return ""
    return _text(about.get("asked_by")) if isinstance(about, dict) else ""


def _about(entry: Entry) -> dict[str, Any]:
    try:
        about = json.loads(entry.content)
    except (ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def _entries(entry: Entry, about: Mapping[str, Any]) -> Ranges:
    """The entries of the same session that an event is about, however its kind names them."""
    if entry.kind in DECISIONS or entry.kind == RESTORED:
        return _ranges(about.get("left"))
    if entry.kind in (PINNED, UNPINNED):
        return _ranges([[seq, seq] for seq in _numbers(about.get("seqs"))])
    if entry.kind == INJECTED:
        hits = about.get("hits")
        pointers = [hit.get("pointer") for hit in hits if isinstance(hit, dict)] if isinstance(hits, list) else []
        return _ranges([[seq, seq] for seq in _pointed(entry.session, pointers)])
    return ()


def _pointed(session: str, pointers: list[Any]) -> Iterator[int]:
    for pointer in pointers:
        try:
            key, seq = parse_pointer(str(pointer))
        except InputError:
            continue
        if key == session:
            yield seq


def _numbers(given: object) -> Iterator[int]:
    """Numbers of entries, from a list or from the names of a group."""
    for one in given if isinstance(given, list | dict) else ():
        text = str(one)
        if text.isascii() and text.isdecimal():
            yield int(text)


def _ranges(given: object) -> Ranges:
    """Ranges of entries, neighbours joined; what is none is left out."""
    found: list[tuple[int, int]] = []
    for one in given[:_MOST_RANGES] if isinstance(given, list) else ():
        if isinstance(one, list) and len(one) == 2 and all(type(end) is int for end in one) and one[0] <= one[1]:
            if found and found[-1][1] + 1 == one[0]:
                found[-1] = (found[-1][0], one[1])
            else:
                found.append((one[0], one[1]))
    return tuple(found)


def _scores(given: object) -> dict[str, dict[str, float]]:
    parts = given.items() if isinstance(given, dict) else ()
    return {
        unit: {name: value for name, value in of.items() if isinstance(value, int | float)}
        for unit, of in parts
        if isinstance(of, dict)
    }


def _details(about: Mapping[str, Any]) -> dict[str, Detail]:
    """What is neither told elsewhere in a line nor anybody's words: numbers, and names that are known to be names."""
    return {
        name: _text(value) if isinstance(value, str) else value
        for name, value in about.items()
        if name not in _OWN
        and (isinstance(value, int | float) or value is None or (isinstance(value, str) and name in _NAMES))
    }


def _cost(compression: object) -> int | None:
    """What writing cost, all attempts together; None where nothing was written."""
    attempts = compression.get("attempts") if isinstance(compression, dict) else None
    if not isinstance(attempts, list):
        return None
    return sum(_whole(one.get("picodollars")) or 0 for one in attempts if isinstance(one, dict))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""
