"""The row of a message in the word index: its terms with their frequencies, and what ranking needs to know of it.

A row is stored with its entry, in one transaction (`Draft.terms`). It begins with the version of the lexicon that made
its terms; a row of another version counts as missing. Recaps have a row without a document, so that they are not
missing. A row that cannot be read counts as missing too: it can be made again from the entry. `MessageRows` compares
messages by their rows, without reading their texts.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from sys import byteorder
from typing import TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from recto.context.facts.claims import fold_words
from recto.context.facts.classifier import classify
from recto.context.facts.types import Mark
from recto.formats import entry_text
from recto.recall.documents import is_repetition
from recto.recall.index.cache import BoundedCache
from recto.recall.protocols import Lexicon
from recto.transcript.entries import MESSAGE, Draft, Entry, Role
from recto.transcript.protocols import TranscriptStore

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool", "event")
"""A role is stored as its position in here, so only append."""
_PLACES = {role: place for place, role in enumerate(ROLES)}
MAX_TF = 255
VERSION_BYTES = 4
HEAD = struct.Struct("<4sqIIIB3s")
"""Version, time, length, number of distinct terms, marks, role, signature; then the terms, four bytes each, then their
frequencies, one byte each."""
SIGNATURE_BYTES = 3
_SIGNATURE_AT = HEAD.size - SIGNATURE_BYTES
NO_SIGNATURE = bytes(SIGNATURE_BYTES)
"""In rows that an older version made."""
_MAX_FOLDED = 4000
"""Characters of a text up to which the signature also tells whether another text has the same words."""
_FORMAT = "rows/1"


def row_version(lexicon: Lexicon) -> bytes:
    """Return what the rows of a lexicon begin with."""
    return _version(lexicon.name)


@lru_cache
def _version(lexicon: str) -> bytes:
    return crc32(f"{_FORMAT} {lexicon}".encode()).to_bytes(VERSION_BYTES, "little")


def message_row(text: str, role: Role, ts: int, meta: bytes, lexicon: Lexicon) -> bytes:
    """Build the row of a message from its text."""
    version = row_version(lexicon)
    if is_repetition(meta):
        return version
    return pack_row(version, ts, role, classify(text, role), lexicon.terms(text), text_signature(text))


def text_signature(text: str) -> bytes:
    """Return two hashes of 12 bits: of the text, and of its words in lower case without punctuation."""
    exact = crc32(text.encode("utf-8", "surrogatepass"))
    folded = crc32(fold_words(text).encode("utf-8", "surrogatepass")) if len(text) <= _MAX_FOLDED else exact
    return ((exact & 0xFFF) << 12 | folded & 0xFFF).to_bytes(SIGNATURE_BYTES, "big")


def signature_of(row: bytes) -> bytes:
    """Return the signature in a row that has a document."""
    return row[_SIGNATURE_AT : HEAD.size]


def role_of(row: bytes) -> Role:
    """Return who said a message, from its row."""
    return ROLES[row[_SIGNATURE_AT - 1]]


def has_signature(row: bytes) -> bool:
    """Whether a row that has a document has a signature too."""
    return row[_SIGNATURE_AT : HEAD.size] != NO_SIGNATURE


def words_hash(signature: bytes) -> int:
    """Return the hash of the words: equal for two texts with the same words in the same order."""
    return int.from_bytes(signature, "big") & 0xFFF


def identity_of(row: bytes) -> bytes:
    """Return what is equal in the rows of two messages with the same text, whoever said it and when."""
    return row[_SIGNATURE_AT:]


def with_signature(row: bytes, entry: Draft) -> bytes:
    """Return a row that has a document with the signature of its entry."""
    return row[:_SIGNATURE_AT] + text_signature(entry_text(entry)) + row[HEAD.size :]


def is_row_of(row: bytes, entry: Draft, lexicon: Lexicon) -> bool:
    """Whether a row is the one of an entry. A signature may be missing: older versions made none."""
    if is_document(row, row_version(lexicon)) and not has_signature(row):
        row = with_signature(row, entry)
    return row == entry_row(entry, lexicon)


def entry_row(entry: Draft, lexicon: Lexicon) -> bytes:
    """Build the row of an entry; empty if it is not a message."""
    if entry.kind != MESSAGE:
        return b""
    return message_row(entry_text(entry), entry.role, entry.ts, entry.meta, lexicon)


def with_row(draft: Draft, lexicon: Lexicon) -> Draft:
    """Return a draft with its row."""
    return replace(draft, terms=entry_row(draft, lexicon))


def pack_row(
    version: bytes, ts: int, role: Role, marks: Mark, terms: Mapping[int, int], signature: bytes = NO_SIGNATURE
) -> bytes:
    """Encode a row."""
    if min(terms.values(), default=1) < 1:
        terms = {term: tf for term, tf in terms.items() if tf > 0}
    frequencies = terms.values()
    length = min(sum(frequencies), 2**32 - 1)
    head = HEAD.pack(version, ts, length, len(terms), int(marks), _PLACES[role], signature)
    try:
        tf = bytes(frequencies)
    except ValueError:
        tf = bytes([min(count, MAX_TF) for count in frequencies])
    numbers = array("I", terms)
    if byteorder == "big":
        numbers.byteswap()
    return head + numbers.tobytes() + tf


def is_document(row: bytes, version: bytes) -> bool:
    """Whether a row has a document that can be read."""
    if len(row) < HEAD.size or not row.startswith(version):
        return False
    _, _, _, count, _, role, _ = HEAD.unpack_from(row)
    return len(row) == HEAD.size + 5 * int(count) and role < len(ROLES)


_CACHE_BYTES = 16 * 2**20
_MAX_COMPARED = 256
"""Terms of a long message that are compared. Terms are hashes, so the smallest ones are a sample of all."""

TermSet: TypeAlias = NDArray[np.uint32]
EntryKey: TypeAlias = tuple[str, int]
"""A session key and the number of an entry in it."""
_NO_TERMS = np.empty(0, np.uint32)


class MessageRows:
    """Reads the rows of messages. Thread-safe."""

    def __init__(self, store: TranscriptStore, lexicon: Lexicon) -> None:
        self._store = store
        self._lexicon = lexicon
        self._version = row_version(lexicon)
        self._made: BoundedCache[bytes] = BoundedCache(_CACHE_BYTES)

    def of(self, keys: Iterable[EntryKey]) -> dict[EntryKey, bytes]:
        """Return the rows of messages, as far as they exist, with one read per session."""
        by_session: dict[str, list[int]] = {}
        for session, seq in dict.fromkeys(keys):
            by_session.setdefault(session, []).append(seq)
        return {
            (session, seq): row
            for session, seqs in by_session.items()
            for seq, row in self._of_session(session, seqs).items()
        }

    def _of_session(self, session: str, seqs: Sequence[int]) -> dict[int, bytes]:
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


def shared_terms(sets: Sequence[TermSet], terms: TermSet) -> NDArray[np.intp]:
    """Return how many of these terms each set has."""
    flat = np.concatenate([_NO_TERMS, *sets])
    owners = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    return np.bincount(owners[np.isin(flat, terms)], minlength=len(sets))


def similarities(
    left: Sequence[TermSet], right: Sequence[TermSet], *, most: int | None = _MAX_COMPARED
) -> NDArray[np.float64]:
    """Return the cosine of every two sets, as a matrix: the share of their terms that two messages have in common.

    Of larger sets the `most` smallest terms are compared; all of them if it is None.
    """
    sets = [terms if most is None or len(terms) <= most else np.sort(terms)[:most] for terms in (*left, *right)]
    sizes = np.array([len(terms) for terms in sets], np.int64)
    vocabulary, columns = np.unique(np.concatenate([_NO_TERMS, *sets]), return_inverse=True)
    occurs = np.zeros((len(sets), len(vocabulary)), np.float32)
    occurs[np.repeat(np.arange(len(sets)), sizes), columns] = 1
    # Sums of ones are exact in any order, so the result does not depend on how the product is computed.
    shared = occurs[: len(left)] @ occurs[len(left) :].T
    cosines: NDArray[np.float64] = shared / np.sqrt(np.maximum(np.outer(sizes[: len(left)], sizes[len(left) :]), 1))
    return cosines
