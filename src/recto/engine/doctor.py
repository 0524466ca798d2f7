"""Doctor: checks that transcript and index agree, explains problems, and repairs the index.

The transcript is never changed. An index that disagrees with it is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recto.engine.doctor_checks import CheckFinding, run_check, worst_first
from recto.errors import EmbedderFailed, RectoError
from recto.recall.documents import is_original_message
from recto.recall.indexer import Indexer
from recto.recall.protocols import VectorGraphs
from recto.transcript.entries import Entry
from recto.transcript.session_keys import list_sessions
from recto.version import install_command

__all__ = ["CheckFinding", "Doctor"]


_SAMPLE_SIZE = 64
"""Entries per session whose index is compared with their text."""


class Doctor:
    """Checks a store and its index."""

    def __init__(
        self, indexer: Indexer, *, advance: Callable[[int], None] = lambda by: None, offline: bool = False
    ) -> None:
        self._indexer = indexer
        self._advance = advance
        self._offline = offline
        """Whether a remote embedder is not contacted."""

    def examine(self, *, repair: bool = False) -> list[CheckFinding]:
        """Return all findings, worst first. With `repair`, the index is repaired."""
        findings = [*run_check("store", self._check_store)]
        if not self._offline:
            findings += run_check("embedder", self._check_embedder)
        return worst_first([*findings, *run_check("index", lambda: self._check_index(repair))])

    def _check_store(self) -> Iterator[CheckFinding]:
        store = self._indexer.store
        damage = store.damage()
        for says in damage:
            cure = "keep the files as they are, then run 'recto verify' to see what is whole"
            yield CheckFinding(grade="problem", about="store", says=says, cure=cure)
        if not damage:
            yield CheckFinding(grade="fine", about="store", says=f"{store.location}: no damage found")

    def _check_embedder(self) -> Iterator[CheckFinding]:
        embedder = self._indexer.embedder
        if embedder is None:
            cure = f"{install_command('recall')} && recto models get arctic-embed-s"
            yield CheckFinding(grade="note", about="embedder", says="none: recall goes by words alone", cure=cure)
            return
        try:
            embedder.query("Is it working?")
        except EmbedderFailed as error:
            yield CheckFinding(
                grade="problem", about="embedder", says=error.detail, cure="see the setting recall.embedder"
            )
            return
        yield CheckFinding(grade="fine", about="embedder", says=embedder.name)

    def _check_index(self, repair: bool) -> Iterator[CheckFinding]:
        index = self._indexer.index
        try:
            damage = index.damage()
        except RectoError as error:  # an index that cannot be opened cannot be rebuilt either
            yield CheckFinding(grade="problem", about="index", says=str(error), cure="")
            return
        if damage and repair:
            index.reset()
        for says in damage:
            yield CheckFinding(grade="problem", about="index", says=says, cure="recto doctor --repair", repaired=repair)
        if damage and not repair:
            return  # the content of a damaged index is not checked
        yield from _check_graphs(getattr(index, "graphs", None))
        known = {summary.session for summary in list_sessions(self._indexer.store)}
        for session in index.sessions():
            if session not in known:
                says = f"session '{session}' is in the index and not in the transcript"
                yield self._rebuild(session, says, repair)
        behind = 0
        for session in sorted(known):
            says = self._disagreement(session)
            if says:
                yield self._rebuild(session, f"session '{session}': {says}", repair)
            missing = self._indexer.backlog(session)
            if repair and any(missing):
                yield from self._catch_up(session)
                missing = self._indexer.backlog(session)
            behind += max(missing)
        if behind:
            says = f"{behind:,} entries are not indexed yet; they are before they leave a prompt"
            yield CheckFinding(grade="note", about="index", says=says, cure="recto index")
        else:
            yield CheckFinding(grade="fine", about="index", says=f"{index.location}: everything is in it")

    def _catch_up(self, session: str) -> Iterator[CheckFinding]:
        try:
            self._indexer.catch_up(session, advance=self._advance)
        except RectoError as error:
            says = f"session '{session}' could not be indexed: {error}"
            yield CheckFinding(grade="problem", about="index", says=says, cure="fix that, then run it again")

    def _rebuild(self, session: str, says: str, repair: bool) -> CheckFinding:
        if repair:
            self._indexer.rebuild(session)
        return CheckFinding(grade="problem", about="index", says=says, cure="recto doctor --repair", repaired=repair)

    def _disagreement(self, session: str) -> str:
        """How the index of a session differs from its transcript; empty if it does not."""
        store = self._indexer.store
        try:
            for covered in self._indexer.covered(session):
                last = next(iter(store.read(session, covered.last, covered.last)), None)
                if last is None:
                    return f"the index knows entry {covered.last}, which is not in the transcript"
                if last.hash != covered.hash:
                    return f"entry {covered.last} is another one than the index has taken in"
            return self._sample_difference(session)
        except RectoError as error:
            return str(error)

    def _sample_difference(self, session: str) -> str:
        head = self._indexer.store.head(session).seq
        for seq in range(1, head + 1, max(head // _SAMPLE_SIZE, 1)):
            entry: Entry | None = next(iter(self._indexer.store.read(session, seq, seq)), None)
            if entry is not None and is_original_message(entry) and not self._indexer.matches(entry):
                return f"what is indexed of entry {seq} is not what it says"
        return ""


def _check_graphs(graphs: VectorGraphs | None) -> Iterator[CheckFinding]:
    """Whether vectors of long sessions are searched by the database."""
    if graphs is None:
        return
    if lacking := graphs.unavailable_reason():
        says = f"no graphs of vectors ({lacking}): long sessions are searched in the gateway, which reads more"
        cure = "CREATE EXTENSION vector, as one who may; then recto store upgrade"
        yield CheckFinding(grade="note", about="index", says=says, cure=cure)
    else:
        yield CheckFinding(grade="fine", about="index", says="vectors of long sessions are found by graphs of pgvector")
