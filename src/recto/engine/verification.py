"""Verifies that stored transcripts are unchanged.

Three sources are compared: the hash chain of each session, the heads stored outside, and the database's own file check.
A chain alone cannot show that its end is missing or that all of it was rewritten; a head stored elsewhere can. A
deliberately erased session may be missing if the record of its erasure agrees with the heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from recto.engine.arguments import check_text, describe
from recto.engine.erasure import Erasure, read_erasures
from recto.errors import InputError, StoreError, UnknownSession
from recto.transcript.entries import EMPTY_HEAD, ChainBreak, Entry, Head, verify_chain
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_internal

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ChainFinding:
    """A deviation from what was stored."""

    session: str
    """Empty for the store as a whole."""
    seq: int | None
    """The first entry that cannot be trusted."""
    problem: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification."""

    sessions: int
    """Without Recto's own records."""
    entries: int
    findings: tuple[ChainFinding, ...]
    erased: tuple[str, ...] = ()
    """Sessions with a known head that were deliberately erased since, according to the record."""
    behind: tuple[str, ...] = ()
    """Sessions whose separately stored head lags behind a chain that is whole, as after a crash."""
    records: int = 0
    """Recto's own records that were verified, such as that of erasures; their entries are among `entries`."""

    @property
    def ok(self) -> bool:
        """Whether everything is unchanged."""
        return not self.findings


def verify(
    store: TranscriptStore,
    session: str | None = None,
    heads: Mapping[str, Head] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Verify one session, or all sessions and the store's files. `heads` are heads that you stored yourself."""
    if not hasattr(store, "kept_heads"):
        kind = f"'{type(store).__name__}'"
        cure = "pass 'session.store', or call 'session.verify()'; 'recto --store FILE verify' verifies a file"
        raise InputError(f"verify takes an open store, not {kind}: {cure}. Nothing was verified.")
    if session is not None:
        check_text("the name of a session", session)
    own_heads = _checked_heads(heads)
    findings: list[ChainFinding] = []
    stored_heads = store.kept_heads()
    erased = _read_erasures(store)
    if session is None:
        findings += [ChainFinding("", None, problem) for problem in store.damage()]
        names = [summary.session for summary in store.sessions()]
        missing = sorted((stored_heads.keys() | own_heads.keys()) - set(names))
        findings += [
            ChainFinding(name, 1, "all of it is missing, though it was stored")
            for name in missing
            if not _is_erased(erased.get(name, ()), stored_heads.get(name), own_heads.get(name))
        ]
    else:
        names = [session]
        if session not in stored_heads and store.head(session) == EMPTY_HEAD:
            if session not in own_heads and session not in erased:
                raise UnknownSession(session)
            if _is_erased(erased.get(session, ()), None, own_heads.get(session)):
                return Verification(0, 0, (), (session,))
    entries = 0
    behind: list[str] = []
    for name in names:
        anchors = [stored_heads[name]] if name in stored_heads else []
        if name in own_heads and not _is_erased_head(erased.get(name, ()), own_heads[name]):
            anchors.append(own_heads[name])
        seen, found = _verify_session(store, name, anchors, progress)
        entries += seen
        findings += found
        if not found and seen > stored_heads.get(name, EMPTY_HEAD).seq:
            behind.append(name)
    erased_heads = tuple(sorted(own_heads.keys() & erased.keys()))
    records = sum(map(is_internal, names))
    return Verification(len(names) - records, entries, tuple(findings), erased_heads, tuple(behind), records)


def _checked_heads(heads: object) -> Mapping[str, Head]:
    """The heads that a caller stored. Raises `InputError` for anything else."""
    if heads is None:
        return {}
    if not isinstance(heads, Mapping):
        raise InputError(f"'heads' is a dict from sessions to heads, not {describe(heads)}. Nothing was verified.")
    for head in heads.values():
        if not isinstance(head, Head):
            raise InputError(f"a head is what 'session.head' returned, not {describe(head)}. Nothing was verified.")
    return heads


def _read_erasures(store: TranscriptStore) -> Mapping[str, Sequence[Erasure]]:
    """The erasures, if readable; otherwise verification of their chain reports it."""
    try:
        return read_erasures(store)
    except StoreError:
        return {}


def _is_erased(erasures: Sequence[Erasure], stored_head: Head | None, own_head: Head | None) -> bool:
    """Whether the absence of a session agrees with the record.

    The store removes its own head together with the session, so one that still exists belongs to an interrupted
    erasure. A head stored by the caller can belong to any erasure, unless it covers more than was erased.
    """
    if stored_head is not None and not any(
        erasure.explains(stored_head) for erasure in erasures if not erasure.is_finished
    ):
        return False
    return bool(erasures) and (own_head is None or any(erasure.explains(own_head) for erasure in erasures))


def _is_erased_head(erasures: Sequence[Erasure], own_head: Head) -> bool:
    """Whether a head is the end of an erased session of that name: the current session is a different one."""
    return any(erasure.end == own_head for erasure in erasures)


def _verify_session(
    store: TranscriptStore, session: str, anchors: list[Head], progress: Callable[[int], None]
) -> tuple[int, list[ChainFinding]]:
    """Follow the chain from end to end and compare it with each anchor on the way."""
    findings: list[ChainFinding] = []
    position = EMPTY_HEAD
    pending = sorted(anchors, key=lambda anchor: anchor.seq)

    def compared(entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            while pending and pending[0].seq == entry.seq:
                if pending.pop(0).hash != entry.hash:
                    findings.append(ChainFinding(session, entry.seq, "the history up to here was rewritten"))
            if entry.seq % _PAGE == 0:
                progress(_PAGE)
            yield entry

    try:
        end = verify_chain(session, position, compared(store.read(session)))
    except StoreError as error:
        return position.seq, [*findings, ChainFinding(session, None, f"it cannot be read to its end: {error}")]
    if isinstance(end, ChainBreak):
        return end.seq - 1, [*findings, ChainFinding(session, end.seq, end.reason)]
    progress(end.seq % _PAGE)
    cut = [anchor for anchor in pending if anchor.seq > end.seq]
    if cut:
        last = max(anchor.seq for anchor in cut)
        problem = f"it ends at entry {end.seq}, though {last} entries were stored: its end was cut off"
        findings.append(ChainFinding(session, end.seq + 1, problem))
    return end.seq, findings
