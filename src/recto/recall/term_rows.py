"""The row of a message in the word index: its terms with their frequencies, and what ranking needs to know of it.

A row is stored with its entry, in one transaction (`Draft.terms`). It begins with the version of the lexicon that made
its terms; a row of another version counts as missing. Recaps have a row without a document, so that they are not
missing. A row that cannot be read counts as missing too: it can be made again from the entry.
"""

from __future__ import annotations

import dataclasses
import struct
from array import array
from collections.abc import Mapping
from functools import lru_cache
from sys import byteorder
from zlib import crc32

from recto.context.facts.claims import fold_words
from recto.context.facts.classifier import classify
from recto.context.facts.types import Mark
from recto.formats import entry_text
from recto.recall.documents import is_repetition, recall_text, spoken_by
from recto.recall.protocols import Lexicon
from recto.transcript.entries import MESSAGE, Draft, Role

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
    """Build the row of a message from its text. What repeats the history has no document."""
    version = row_version(lexicon)
    if is_repetition(meta):
        return version
    return pack_row(version, ts, role, classify(text, spoken_by(role, text)), lexicon.terms(text), text_signature(text))


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
    # Older versions made rows of what a client added to a message, too.
    return row in (entry_row(entry, lexicon), _row_of(entry, entry_text(entry), lexicon))


def entry_row(entry: Draft, lexicon: Lexicon) -> bytes:
    """Build the row of an entry; empty if it is not a message."""
    if entry.kind != MESSAGE:
        return b""
    return _row_of(entry, recall_text(entry), lexicon)


def with_row(draft: Draft, lexicon: Lexicon) -> Draft:
    """Return a draft with its row."""
    return dataclasses.replace(draft, terms=entry_row(draft, lexicon))


def pack_row(
    version: bytes, ts: int, role: Role, marks: Mark, terms: Mapping[int, int], signature: bytes = NO_SIGNATURE
) -> bytes:
    """Encode a row."""
    frequencies = terms.values()
    try:
        tf = bytes(frequencies)
    except ValueError:
        tf = bytes([max(0, min(count, MAX_TF)) for count in frequencies])
    if 0 in tf:
        return pack_row(version, ts, role, marks, {term: tf for term, tf in terms.items() if tf > 0}, signature)
    length = min(sum(frequencies), 2**32 - 1)
    head = HEAD.pack(version, ts, length, len(terms), int(marks), _PLACES[role], signature)
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


def _row_of(entry: Draft, text: str, lexicon: Lexicon) -> bytes:
    return message_row(text, entry.role, entry.ts, entry.meta, lexicon)
