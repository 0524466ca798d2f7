"""Whether what is stored is what was stored.

Three witnesses are heard: the hash chain of each session, the heads kept outside the store, and the engine's own check
of its files. A chain alone cannot show that its end is missing or that all of it was written anew; a head kept
elsewhere can. A session that was erased on purpose is missing rightly, where the record of that agrees with the heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from recto.engine.erasure import Erasure, erasures
from recto.errors import StoreError, UnknownSession
from recto.transcript.entries import Entry, Head
from recto.transcript.hash_chain import EMPTY_HEAD, ChainBreak, verify_chain
from recto.transcript.protocols import TranscriptStore

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ChainFinding:
    """Something that is not as it was stored."""

    session: str
    """Empty where the whole store is meant."""
    seq: int | None
    """The first entry that cannot be trusted."""
    problem: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification saw."""

    sessions: int
    entries: int
    findings: tuple[ChainFinding, ...]
    erased: tuple[str, ...] = ()
    """Sessions that heads were kept of and that were erased on purpose since, as the record of that says."""

    @property
    def ok(self) -> bool:
        """Whether everything is as it was stored."""
        return not self.findings


def verify(
    store: TranscriptStore,
    session: str | None = None,
    heads: Mapping[str, Head] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Verifies one session, or all of them and the files. `heads` are heads you kept yourself."""
    findings: list[ChainFinding] = []
    kept = heads or {}
    outside = store.kept_heads()
    gone = _gone(store)
    if session is None:
        findings += [ChainFinding("", None, problem) for problem in store.damage()]
        names = [summary.session for summary in store.sessions()]
        missing = sorted((outside.keys() | kept.keys()) - set(names))
        findings += [
            ChainFinding(name, 1, "all of it is missing, though it was stored")
            for name in missing
            if not _is_erased(gone.get(name, ()), outside.get(name), kept.get(name))
        ]
    else:
        names = [session]
        if session not in outside and store.head(session) == EMPTY_HEAD:
            if session not in kept and session not in gone:
                raise UnknownSession(session)
            if _is_erased(gone.get(session, ()), None, kept.get(session)):
                return Verification(0, 0, (), (session,))
    entries = 0
    for name in names:
        anchors = [outside[name]] if name in outside else []
        if name in kept and not _is_end(gone.get(name, ()), kept[name]):
            anchors.append(kept[name])
        seen, found = _verify_session(store, name, anchors, progress)
        entries += seen
        findings += found
    return Verification(len(names), entries, tuple(findings), tuple(sorted(kept.keys() & gone.keys())))


def _gone(store: TranscriptStore) -> Mapping[str, Sequence[Erasure]]:
    """What was erased, as far as that can be read; where it cannot, the chain of its records says so."""
    try:
        return erasures(store)
    except StoreError:
        return {}


def _is_erased(gone: Sequence[Erasure], outside: Head | None, kept: Head | None) -> bool:
    """Whether that nothing is there agrees with what was recorded.

    The store lets go of its own head with the session: one that is still there can only be of an erasure that was cut
    off. A head that somebody kept is of any of them, unless it speaks of more than was erased.
    """
    if outside is not None and not any(one.explains(outside) for one in gone if not one.is_finished):
        return False
    return bool(gone) and (kept is None or any(one.explains(kept) for one in gone))


def _is_end(gone: Sequence[Erasure], kept: Head) -> bool:
    """Whether a head is the end of a session of that name that was erased: the one that is there now is another."""
    return any(one.end == kept for one in gone)


def _verify_session(
    store: TranscriptStore, session: str, anchors: list[Head], progress: Callable[[int], None]
) -> tuple[int, list[ChainFinding]]:
    """Follows the chain from end to end, comparing it with each anchor as it passes the anchor's place."""
    findings: list[ChainFinding] = []
    position = EMPTY_HEAD
    waiting = sorted(anchors, key=lambda anchor: anchor.seq)

    def passing(entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            while waiting and waiting[0].seq == entry.seq:
                if waiting.pop(0).hash != entry.hash:
                    findings.append(ChainFinding(session, entry.seq, "the history up to here was written anew"))
            if entry.seq % _PAGE == 0:
                progress(_PAGE)
            yield entry

    try:
        end = verify_chain(session, position, passing(store.read(session)))
    except StoreError as error:
        return position.seq, [*findings, ChainFinding(session, None, f"it cannot be read to its end: {error}")]
    if isinstance(end, ChainBreak):
        return end.seq - 1, [*findings, ChainFinding(session, end.seq, end.reason)]
    progress(end.seq % _PAGE)
    cut = [anchor for anchor in waiting if anchor.seq > end.seq]
    if cut:
        last = max(anchor.seq for anchor in cut)
        problem = f"it ends at entry {end.seq}, though {last} entries were stored: its end was cut off"
        findings.append(ChainFinding(session, end.seq + 1, problem))
    return end.seq, findings
