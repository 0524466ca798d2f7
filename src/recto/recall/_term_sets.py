"""The terms of messages, to compare messages with each other without reading their texts.

They come from the rows of the word index that are stored with the messages. A message without a row, which an older
version stored, is read and analyzed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.formats.entry_text import entry_text
from recto.recall.index.cache import BoundedCache
from recto.recall.protocols import Lexicon
from recto.recall.term_rows import HEAD, is_document, row_version
from recto.transcript.entries import Entry
from recto.transcript.protocols import TranscriptStore

_CACHE_BYTES = 16 * 2**20
_MAX_COMPARED = 256
"""Terms of a long message that are compared. Terms are hashes, so the smallest ones are a sample of all."""

TermSet: TypeAlias = NDArray[np.uint32]
EntryKey: TypeAlias = tuple[str, int]
"""A session key and the number of an entry in it."""


class TermSets:
    """The distinct terms of messages. Thread-safe."""

    def __init__(self, store: TranscriptStore, lexicon: Lexicon) -> None:
        self._store = store
        self._lexicon = lexicon
        self._version = row_version(lexicon)
        self._known: BoundedCache[TermSet] = BoundedCache(_CACHE_BYTES)

    def of(self, keys: Iterable[EntryKey]) -> dict[EntryKey, TermSet]:
        """Return the terms of messages, as far as they exist, with one read per session."""
        by_session: dict[str, list[int]] = {}
        for session, seq in dict.fromkeys(keys):
            by_session.setdefault(session, []).append(seq)
        return {
            (session, seq): terms
            for session, seqs in by_session.items()
            for seq, terms in self._of_session(session, seqs).items()
        }

    def _of_session(self, session: str, seqs: Sequence[int]) -> dict[int, TermSet]:
        rows = self._store.pick_terms(session, seqs)
        decoded = ((seq, terms_of(row, self._version)) for seq, row in rows.items())
        sets = {seq: terms for seq, terms in decoded if terms is not None}
        if missing := [seq for seq in seqs if seq not in sets]:
            sets |= {entry.seq: self._of_entry(entry) for entry in self._store.pick(session, missing)}
        return sets

    def _of_entry(self, entry: Entry) -> TermSet:
        known = self._known.get(entry.hash)
        if known is None:
            known = np.sort(np.fromiter(self._lexicon.terms(entry_text(entry)), np.uint32))
            self._known.put(entry.hash, known, 200 + known.nbytes)
        return known


def terms_of(row: bytes, version: bytes) -> TermSet | None:
    """Return the terms in a row of the word index, in ascending order; None if it has no document."""
    if not is_document(row, version):
        return None
    terms = np.frombuffer(row, "<u4", (len(row) - HEAD.size) // 5, HEAD.size).copy()
    terms.sort()
    return terms


def shared_terms(sets: Sequence[TermSet], terms: TermSet) -> NDArray[np.intp]:
    """Return how many of these terms each set has."""
    flat = np.concatenate([np.empty(0, np.uint32), *sets])
    owners = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    return np.bincount(owners[np.isin(flat, terms)], minlength=len(sets))


def similarities(
    left: Sequence[TermSet], right: Sequence[TermSet], *, most: int | None = _MAX_COMPARED
) -> NDArray[np.float64]:
    """Return the cosine of every two sets, as a matrix: the share of their terms that two messages have in common.

    Of larger sets the `most` smallest terms are compared; all of them if it is None.
    """
    sets = [terms[:most] for terms in (*left, *right)]
    sizes = np.array([len(terms) for terms in sets], np.int64)
    vocabulary, columns = np.unique(np.concatenate([np.empty(0, np.uint32), *sets]), return_inverse=True)
    occurs = np.zeros((len(sets), len(vocabulary)), np.float32)
    occurs[np.repeat(np.arange(len(sets)), sizes), columns] = 1
    # Sums of ones are exact in any order, so the result does not depend on how the product is computed.
    shared = occurs[: len(left)] @ occurs[len(left) :].T
    cosines: NDArray[np.float64] = shared / np.sqrt(np.maximum(np.outer(sizes[: len(left)], sizes[len(left) :]), 1))
    return cosines
