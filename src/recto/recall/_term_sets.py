"""The terms of messages, to compare messages with each other without reading their texts again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recto.formats.entry_text import entry_text
from recto.recall.index.cache import BoundedCache
from recto.recall.protocols import Lexicon
from recto.transcript.entries import Entry

_CACHE_BYTES = 16 * 2**20
_MAX_COMPARED = 256
"""Terms of a long message that are compared. Terms are hashes, so the smallest ones are a sample of all."""

TermSet = NDArray[np.uint32]


class TermSets:
    """The distinct terms of messages. Thread-safe."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._known: BoundedCache[TermSet] = BoundedCache(_CACHE_BYTES)

    def of_entry(self, entry: Entry) -> TermSet:
        """Return the terms of a message, in ascending order."""
        known = self._known.get(entry.hash)
        if known is None:
            known = np.sort(np.fromiter(self._lexicon.terms(entry_text(entry)), np.uint32))
            self._known.put(entry.hash, known, 200 + known.nbytes)
        return known


def shared_terms(sets: Sequence[TermSet], terms: TermSet) -> NDArray[np.intp]:
    """Return how many of these terms each set has."""
    flat = np.concatenate([np.empty(0, np.uint32), *sets])
    owners = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    return np.bincount(owners[np.isin(flat, terms)], minlength=len(sets))


def similarities(left: Sequence[TermSet], right: Sequence[TermSet]) -> NDArray[np.float64]:
    """Return the cosine of every two sets, as a matrix: the share of their terms that two messages have in common."""
    sets = [terms[:_MAX_COMPARED] for terms in (*left, *right)]
    sizes = np.array([len(terms) for terms in sets], np.int64)
    vocabulary, columns = np.unique(np.concatenate([np.empty(0, np.uint32), *sets]), return_inverse=True)
    occurs = np.zeros((len(sets), len(vocabulary)), np.float32)
    occurs[np.repeat(np.arange(len(sets)), sizes), columns] = 1
    # Sums of ones are exact in any order, so the result does not depend on how the product is computed.
    shared = occurs[: len(left)] @ occurs[len(left) :].T
    cosines: NDArray[np.float64] = shared / np.sqrt(np.maximum(np.outer(sizes[: len(left)], sizes[len(left) :]), 1))
    return cosines
