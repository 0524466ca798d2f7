"""Whether what is stored is what was stored.

Three witnesses are heard: the hash chain of each session, the heads kept outside the store, and the engine's own check
of its files. A chain alone cannot show that its end is missing or that all of it was written anew; a head kept
elsewhere can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from recto.core.chain import EMPTY, Break, follow
from recto.core.entries import Entry, Head
from recto.errors import StoreError, UnknownSession
from recto.ports import TranscriptStore

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Finding:
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
    findings: tuple[Finding, ...]

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
    findings: list[Finding] = []
    kept = heads or {}
    outside = store.kept_heads()
    if session is None:
        findings += [Finding("", None, problem) for problem in store.damage()]
        names = [summary.session for summary in store.sessions()]
        missing = sorted((outside.keys() | kept.keys()) - set(names))
        findings += [Finding(name, 1, "all of it is missing, though it was stored") for name in missing]
    else:
        names = [session]
        if session not in outside and session not in kept and store.head(session) == EMPTY:
            raise UnknownSession(session)
    entries = 0
    for name in names:
        anchors = [heads_of[name] for heads_of in (outside, kept) if name in heads_of]
        seen, found = _verify_session(store, name, anchors, progress)
        entries += seen
        findings += found
    return Verification(len(names), entries, tuple(findings))


def _verify_session(
    store: TranscriptStore, session: str, anchors: list[Head], progress: Callable[[int], None]
) -> tuple[int, list[Finding]]:
    """Follows the chain from end to end, comparing it with each anchor as it passes the anchor's place."""
    findings: list[Finding] = []
    position = EMPTY
    waiting = sorted(anchors, key=lambda anchor: anchor.seq)

    def passing(entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            while waiting and waiting[0].seq == entry.seq:
                if waiting.pop(0).hash != entry.hash:
                    findings.append(Finding(session, entry.seq, "the history up to here was written anew"))
            if entry.seq % _PAGE == 0:
                progress(_PAGE)
            yield entry

    try:
        end = follow(session, position, passing(store.read(session)))
    except StoreError as error:
        return position.seq, [*findings, Finding(session, None, f"it cannot be read to its end: {error}")]
    if isinstance(end, Break):
        return end.seq - 1, [*findings, Finding(session, end.seq, end.reason)]
    progress(end.seq % _PAGE)
    cut = [anchor for anchor in waiting if anchor.seq > end.seq]
    if cut:
        last = max(anchor.seq for anchor in cut)
        problem = f"it ends at entry {end.seq}, though {last} entries were stored: its end was cut off"
        findings.append(Finding(session, end.seq + 1, problem))
    return end.seq, findings
