"""Audit of a store: every change of a session as one line, read from the transcript alone.

Reads one page at a time, so sessions of any length can be audited. An export can be compared with the transcript later:
the same filter must give the same lines, and the hash chain must be intact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, get_args

from recto.continuity.memory.events import (
    APPLIED,
    APPROVED,
    CONSOLIDATED,
    CYCLE,
    DUE,
    FILE_INDEXED,
    NOTED,
    PROPOSED,
    REJECTED,
    RETIRED,
    UNDONE,
)
from recto.engine import projection
from recto.engine.delegation import DELEGATED, DELEGATED_FROM
from recto.engine.erasure import ERASED, FINISHED, read_erasures
from recto.engine.fork import BRANCH
from recto.engine.note_files import NOTE_FILE
from recto.engine.projection import DECISIONS, PINNED, RESTORED, SNAPSHOT, UNPINNED
from recto.engine.recall_injection import INDEX_FAILED, INJECTED, MISSED
from recto.engine.standing_context import STANDING
from recto.engine.verification import verify
from recto.errors import InputError
from recto.recall.types import JUDGED, USED
from recto.transcript.audit import AuditClosing, AuditFilter, AuditLine, Detail, Ranges, Topic
from recto.transcript.entries import HOST_COMPACTED, IMPORTED, MESSAGE, RENAMED, Entry, Head
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import parse_pointer, reach_of

_PAGE = 500
_MAX_SCANNED = 10_000
"""Entries that one page of lines reads at most, and how far back from the end it searches for undone decisions."""
_SESSIONS_PAGE = 500
_MAX_TEXT = 500
"""Maximum characters of a reason or a name."""
_MAX_RANGES = 10_000

_KINDS: dict[Topic, tuple[str, ...]] = {
    "decision": (*DECISIONS, projection.TOOLS_LEFT_OUT),
    "undo": (RESTORED,),
    "pin": (PINNED, UNPINNED),
    "memory": (PROPOSED, NOTED, APPROVED, REJECTED, UNDONE, RETIRED, APPLIED, CONSOLIDATED, CYCLE, DUE, FILE_INDEXED),
    "continuity": (
        projection.CHECKPOINT,
        projection.HANDOFF,
        projection.REPLAYED,
        HOST_COMPACTED,
        projection.TASK_COMPLETED,
        "window_tools_answered",  # the gateway's
    ),
    "recall": (INJECTED, MISSED, USED, JUDGED),
    "pressure": (
        projection.ZONE,
        projection.SPIKE,
        projection.POSTPONED,
        projection.WARNING,
        projection.VIOLATION,
        projection.ANNOUNCED,
        projection.REQUIRED,
    ),
    "failure": (
        projection.OVERFLOW,
        INDEX_FAILED,
        projection.UNSAVED,
        projection.TOOLS_MISSING,
        projection.FIDELITY_LOW,
        projection.REFUSED,
        projection.RETRIED,
        "reply_cut",
        "upstream_failed",
    ),
    "session": (
        *(BRANCH, RENAMED, IMPORTED, STANDING, DELEGATED, DELEGATED_FROM, "session_opened", "model_changed"),
        *("conversation_opened", "instructions_given", "tools_offered"),  # the gateway's
        *(ERASED, FINISHED),
    ),
    "note": (projection.NOTE, NOTE_FILE),
    "bookkeeping": (SNAPSHOT, projection.USAGE, projection.JUDGED, projection.RESULT_HELD, "report", "lineage"),
}
TOPICS: Mapping[str, Topic] = {kind: topic for topic, kinds in _KINDS.items() for kind in kinds}
"""The topic of each event kind; other kinds were written by another program or a newer version of Recto."""

_NAME_FIELDS = frozenset(
    {"action", "after", "before", "component", "digest", "from", "hash", "how", "indexed", "level", "memory", "model",
     "names", "pointer", "proposal", "receipt", "session", "to", "upstream", "verdict"}
)  # fmt: skip
"""Text fields of events that hold names, never text from a conversation."""
_REASONED_EVENTS = frozenset({APPROVED, REJECTED, RETIRED, "reply_cut"})
"""Events whose `why` is the reason of the person who decided, not text from a conversation."""
_LINE_FIELDS = frozenset(
    {"policy", "reason", "by", "why", "left", "shrunk", "kept", "scores", "tokens_before", "tokens_after", "frees",
     "cache_mark", "text", "seqs"}
)  # fmt: skip


def audit(
    store: TranscriptStore,
    session: str,
    filters: AuditFilter | None = None,
    *,
    as_of: int | None = None,
    advance: Callable[[int], object] = lambda by: None,
) -> Iterator[AuditLine]:
    """Return the matching lines of one session, as of an entry or as of its end. `advance` is called with the number of
    entries read."""
    filters = filters or AuditFilter()
    head = store.head(session).seq if as_of is None else as_of
    lines = (_newest_first if filters.newest else _oldest_first)(store, session, filters, head, advance)
    return islice(lines, filters.limit)


def audit_page(
    store: TranscriptStore, session: str, filters: AuditFilter, *, limit: int
) -> tuple[list[AuditLine], int]:
    """Return a page of lines, newest first, and the entry the next page begins with; 0 if there is none.

    Reads a bounded number of entries, however few lines they yield, and searches a bounded number of the last entries
    for undone decisions.
    """
    head = store.head(session).seq
    first = head if filters.past is None else min(filters.past - 1, head)
    floor = max(first - _MAX_SCANNED, 0)
    lines: list[AuditLine] = []
    for line in _newest_first(
        store, session, filters, head, lambda by: None, floor=floor, undone_from=head - _MAX_SCANNED
    ):
        if len(lines) >= limit:
            return lines, line.seq
        lines.append(line)
    return lines, floor


def check_kinds(kinds: Iterable[str], is_recorded: Callable[[str], bool]) -> None:
    """Refuse the name of a kind that is no topic and no event, and of which nothing is recorded.

    Other programs record events of their own.

    Raises:
        InputError: There is no such kind; the message names the nearest.
    """
    known = (*get_args(Topic), *TOPICS)
    for name in kinds:
        if name not in known and not is_recorded(name):
            nearest = "".join(f"Did you mean '{near}'? " for near in get_close_matches(name, known, n=1))
            raise InputError(
                f"'{name:.64}' is no topic, and nothing of that kind is recorded. {nearest}"
                f"Topics are {', '.join(get_args(Topic))}"
            )


def make_closing(head: Head, session: str, filters: AuditFilter, lines: int) -> AuditClosing:
    """Build the record that ends the lines of a session, as of a head."""
    return AuditClosing(session=session, seq=head.seq, hash=head.hash.hex(), lines=lines, filter=filters)


def tenant_sessions(store: TranscriptStore, key: str) -> Iterator[str]:
    """Yield every session of the tenant that a stored key belongs to, by key."""
    reach = reach_of(key, "tenant")
    after = ""
    while page := store.sessions(after, _SESSIONS_PAGE):
        yield from (summary.session for summary in page if reach.contains(summary.session))
        after = page[-1].session


def audit_line(entry: Entry, *, undone_by: int | None = None, text: bool = False) -> AuditLine:
    """Convert an event to an audit line. Never fails, whatever its content."""
    payload = _payload(entry)
    topic = TOPICS.get(entry.kind, "other")
    known = payload if topic != "other" else {}
    shorter = sorted({*_seqs(known.get("shrunk")), *_seqs(known.get("cleared"))})
    entries, shrunk = _entries(entry, known), _ranges([[seq, seq] for seq in shorter])
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
        reason=_text(
            known.get("reason") or known.get("failed") or (known.get("why") if entry.kind in _REASONED_EVENTS else "")
        ),
        by=_text(known.get("by")) or _requested_by(entry),
        entries=entries,
        shrunk=shrunk,
        messages=sum(last - first + 1 for first, last in (*entries, *shrunk)),
        tokens_before=_integer(known.get("tokens_before")),
        tokens_after=_integer(known.get("tokens_after")),
        freed=_integer(known.get("frees")),
        picodollars=_cost(known.get("compression")),
        undone_by=undone_by,
        scores=_scores(known.get("scores")),
        details=_details(known),
        text=entry.content.decode(errors="replace") if text else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference between an export and its transcript."""

    session: str
    seq: int | None
    says: str


def differences(
    store: TranscriptStore,
    rows: Callable[[], Iterator[Mapping[str, Any]]],
    same: Callable[[AuditLine, Mapping[str, Any]], bool],
) -> Iterator[Difference]:
    """Yield the differences between exported rows and the transcript.

    The rows are read twice: for the heads that end each session, then line by line. `same` compares a line with a row
    in the format of the export.
    """
    heads = {head.session: head for head in (AuditClosing.of(row) for row in rows() if row.get("record") == "head")}
    if not heads:
        raise InputError("no record of a head was found: this is no export of 'recto audit', or its end is missing")
    expected: dict[str, Iterator[AuditLine]] = {}
    erased = {name for name in read_erasures(store) if name in heads and not store.head(name).seq}
    for row in rows():
        name = str(row.get("session"))
        head = heads.get(name)
        if head is not None and name in erased:
            continue
        if head is None:
            yield Difference(session=name, seq=None, says="its lines are not ended by a head")
            return
        if name not in expected:
            expected[name] = audit(store, name, head.filter, as_of=head.seq)
        line = next(expected[name], None)
        if row.get("record") == "head":
            if line is not None:
                yield Difference(session=name, seq=line.seq, says="the export lacks this line")
        elif line is None or not same(line, row):
            seq = line.seq if line is not None else None
            yield Difference(session=name, seq=seq, says=f"line {row.get('seq')} is not what the transcript says")
            return
    for name in sorted(erased):
        yield Difference(session=name, seq=None, says="it was erased on purpose, and cannot be compared any more")
    for name, head in heads.items():
        verification = verify(store, name, {name: Head(head.seq, bytes.fromhex(head.hash))})
        yield from (
            Difference(session=name, seq=finding.seq, says=finding.problem) for finding in verification.findings
        )


def _oldest_first(
    store: TranscriptStore, session: str, filters: AuditFilter, head: int, advance: Callable[[int], object]
) -> Iterator[AuditLine]:
    undone: dict[int, int] | None = None
    first = (filters.past or 0) + 1
    for start in range(first, head + 1, _PAGE):
        for entry in store.read(session, start, min(start + _PAGE - 1, head)):
            if entry.kind == MESSAGE:
                continue
            if undone is None and entry.kind in DECISIONS:
                undone = _undone(store, session, entry.seq + 1, head)
            line = audit_line(entry, undone_by=(undone or {}).get(entry.seq), text=filters.text)
            if filters.matches(line):
                yield line
        advance(min(_PAGE, head - start + 1))


def _newest_first(
    store: TranscriptStore,
    session: str,
    filters: AuditFilter,
    head: int,
    advance: Callable[[int], object],
    *,
    floor: int = 0,
    undone_from: int = 0,
) -> Iterator[AuditLine]:
    """Yield the lines above entry `floor`; undone decisions are searched from `undone_from` on."""
    stop = head if filters.past is None else min(filters.past - 1, head)
    undone = _undone(store, session, max(stop + 1, undone_from), head)
    while stop > floor:
        start = max(stop - _PAGE + 1, floor + 1)
        for entry in reversed([entry for entry in store.read(session, start, stop) if entry.kind != MESSAGE]):
            if entry.kind == RESTORED:
                undone.setdefault(_decision(entry), entry.seq)
            line = audit_line(entry, undone_by=undone.get(entry.seq), text=filters.text)
            if filters.matches(line):
                yield line
        advance(stop - start + 1)
        stop = start - 1


def _undone(store: TranscriptStore, session: str, start: int, stop: int) -> dict[int, int]:
    """The decisions undone in a range, each with the last entry that undid it."""
    undone: dict[int, int] = {}
    for entry in store.read(session, start, stop) if start <= stop else ():
        if entry.kind == RESTORED:
            undone[_decision(entry)] = entry.seq
    return undone


def _decision(restored: Entry) -> int:
    return _integer(_payload(restored).get("decision")) or 0


def _requested_by(entry: Entry) -> str:
    """Who requested the change through a surface, if recorded in the meta."""
    if b'"asked_by"' not in entry.meta:
        return ""
    try:
        meta = json.loads(entry.meta)
    except (ValueError, RecursionError):
        return ""
    return _text(meta.get("asked_by")) if isinstance(meta, dict) else ""


def _payload(entry: Entry) -> dict[str, Any]:
    try:
        payload = json.loads(entry.content)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _entries(entry: Entry, payload: Mapping[str, Any]) -> Ranges:
    """The entries of the same session that an event refers to."""
    if entry.kind in DECISIONS or entry.kind == RESTORED:
        return _ranges(payload.get("left"))
    if entry.kind in (PINNED, UNPINNED):
        return _ranges([[seq, seq] for seq in _seqs(payload.get("seqs"))])
    if entry.kind == INJECTED:
        hits = payload.get("hits")
        pointers = [hit.get("pointer") for hit in hits if isinstance(hit, dict)] if isinstance(hits, list) else []
        return _ranges([[seq, seq] for seq in _own_seqs(entry.session, pointers)])
    return ()


def _own_seqs(session: str, pointers: list[Any]) -> Iterator[int]:
    for pointer in pointers:
        try:
            key, seq = parse_pointer(str(pointer))
        except InputError:
            continue
        if key == session:
            yield seq


def _seqs(value: object) -> Iterator[int]:
    """Entry numbers from a list or from the keys of an object."""
    for item in value if isinstance(value, list | dict) else ():
        text = str(item)
        if text.isascii() and text.isdecimal():
            yield int(text)


def _ranges(value: object) -> Ranges:
    """Parse ranges of entries and join neighbours; malformed ones are skipped."""
    ranges: list[tuple[int, int]] = []
    for item in value[:_MAX_RANGES] if isinstance(value, list) else ():
        if isinstance(item, list) and len(item) == 2 and all(type(end) is int for end in item) and item[0] <= item[1]:
            if ranges and ranges[-1][1] + 1 == item[0]:
                ranges[-1] = (ranges[-1][0], item[1])
            else:
                ranges.append((item[0], item[1]))
    return tuple(ranges)


def _scores(scores: object) -> dict[str, dict[str, float]]:
    parts = scores.items() if isinstance(scores, dict) else ()
    return {
        unit: {name: value for name, value in of.items() if isinstance(value, int | float)}
        for unit, of in parts
        if isinstance(of, dict)
    }


def _details(payload: Mapping[str, Any]) -> dict[str, Detail]:
    """Fields that are neither elsewhere in the line nor conversation text: numbers and known names."""
    names = payload.get("names")
    listed = {"names": ", ".join(map(str, names))} if isinstance(names, list) else {}
    return {
        name: _text(value) if isinstance(value, str) else value
        for name, value in {**payload, **listed}.items()
        if name not in _LINE_FIELDS
        and (isinstance(value, int | float) or value is None or (isinstance(value, str) and name in _NAME_FIELDS))
    }


def _cost(compression: object) -> int | None:
    """The cost of writing, all attempts together; None if nothing was written."""
    attempts = compression.get("attempts") if isinstance(compression, dict) else None
    if not isinstance(attempts, list):
        return None
    return sum(_integer(attempt.get("picodollars")) or 0 for attempt in attempts if isinstance(attempt, dict))


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else ""
