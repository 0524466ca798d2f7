"""The rows of messages in the word index, to compare messages with each other without reading their texts.

They are stored with the messages. A message whose row is missing or has no signature, which an older version stored,
is read and analyzed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.recall.index.cache import BoundedCache
from recto.recall.index.rows import SealedRange
from recto.recall.protocols import Lexicon
from recto.recall.term_rows import HEAD, entry_row, has_signature, is_document, row_version, with_signature
from recto.transcript.entries import Entry
from recto.transcript.protocols import TranscriptStore

_CACHE_BYTES = 16 * 2**20
_SEALED_BYTES = 4 * 2**20
_MAX_COMPARED = 256
"""Terms of a long message that are compared. Terms are hashes, so the smallest ones are a sample of all."""

TermSet: TypeAlias = NDArray[np.uint32]
EntryKey: TypeAlias = tuple[str, int]
"""A session key and the number of an entry in it."""
_NO_TERMS = np.empty(0, np.uint32)


class MessageRows:
    """Reads the rows of messages. Thread-safe.

    The same messages are candidates of many questions, so the rows of sealed ones are kept: as long as the block is
    there that a session is known by, they cannot have changed.
    """

    def __init__(self, store: TranscriptStore, lexicon: Lexicon) -> None:
        self._store = store
        self._lexicon = lexicon
        self._version = row_version(lexicon)
        self._made: BoundedCache[bytes] = BoundedCache(_CACHE_BYTES)
        self._sealed: BoundedCache[bytes] = BoundedCache(_SEALED_BYTES)
        """By the number of a block, and the entry."""

    def of(self, keys: Iterable[EntryKey], sealed: Mapping[str, SealedRange] | None = None) -> dict[EntryKey, bytes]:
        """Return the rows of messages, as far as they exist, with one read per session at most.

        `sealed` is what is sealed of these sessions, where it is known.
        """
        sealed = sealed or {}
        by_session: dict[str, list[int]] = {}
        for session, seq in dict.fromkeys(keys):
            by_session.setdefault(session, []).append(seq)
        return {
            (session, seq): row
            for session, seqs in by_session.items()
            for seq, row in self._of_session(session, seqs, sealed.get(session)).items()
        }

    def _of_session(self, session: str, seqs: Sequence[int], sealed: SealedRange | None) -> dict[int, bytes]:
        if sealed is None:
            return self._read(session, seqs)
        block, last = sealed
        known = {seq: row for seq in seqs if seq <= last and (row := self._sealed.get((block, seq))) is not None}
        if len(known) == len(seqs):
            return known
        found = self._read(session, [seq for seq in seqs if seq not in known])
        for seq, row in found.items():
            if seq <= last:
                self._sealed.put((block, seq), row, 200 + len(row))
        return known | found

    def _read(self, session: str, seqs: Sequence[int]) -> dict[int, bytes]:
        rows = self._store.pick_terms(session, seqs)
        found = {seq: row for seq, row in rows.items() if is_document(row, self._version) and has_signature(row)}
        if missing := [seq for seq in seqs if seq not in found]:
            for entry in self._store.pick(session, missing):
                row = self._made_row(entry, rows.get(entry.seq, b""))
                if is_document(row, self._version):
                    found[entry.seq] = row
        return found

    def _made_row(self, entry: Entry, stored: bytes) -> bytes:
        """Make a row that is missing, or add the signature to one."""
        known = self._made.get(entry.hash)
        if known is None:
            is_whole = is_document(stored, self._version)
            known = with_signature(stored, entry) if is_whole else entry_row(entry, self._lexicon)
            self._made.put(entry.hash, known, 200 + len(known))
        return known


def terms_of(row: bytes | None) -> TermSet:
    """Return the terms in the row of a message; none without a row."""
    return np.frombuffer(row, "<u4", (len(row) - HEAD.size) // 5, HEAD.size) if row else _NO_TERMS


def similarities(sets: Sequence[TermSet]) -> NDArray[np.float64]:
    """Return the cosine of every two sets, as a matrix: the share of their terms that two messages have in common.

    Of larger sets a sample is compared.
    """
    sets = [terms if len(terms) <= _MAX_COMPARED else np.sort(terms)[:_MAX_COMPARED] for terms in sets]
    sizes = np.array([len(terms) for terms in sets], np.int64)
    vocabulary, columns = np.unique(np.concatenate([_NO_TERMS, *sets]), return_inverse=True)
    occurs = np.zeros((len(sets), len(vocabulary)), np.float32)
    occurs[np.repeat(np.arange(len(sets)), sizes), columns] = 1
    # Sums of ones are exact in any order, so the result does not depend on how the product is computed.
    cosines: NDArray[np.float64] = (occurs @ occurs.T) / np.sqrt(np.maximum(np.outer(sizes, sizes), 1))
    return cosines
