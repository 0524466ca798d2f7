"""The row of a message in the word index: its terms with their frequencies, and what ranking needs to know of it.

A row is stored with its entry, in one transaction (`Draft.terms`). It begins with the version of the lexicon that made
its terms; a row of another version counts as missing. Recaps have a row without a document, so that they are not
missing. A row that cannot be read counts as missing too: it can be made again from the entry.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from sys import byteorder
from zlib import crc32

from recto.context.facts.classifier import classify
from recto.context.facts.types import Mark
from recto.formats.entry_text import entry_text
from recto.recall.documents import is_repetition
from recto.recall.protocols import Lexicon
from recto.transcript.entries import MESSAGE, Draft, Role

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool", "event")
"""A role is stored as its position in here, so only append."""
_PLACES = {role: place for place, role in enumerate(ROLES)}
MAX_TF = 255
VERSION_BYTES = 4
HEAD = struct.Struct("<4sqIIIB3x")
"""Version, time, length, number of distinct terms, marks, role; then the terms, four bytes each, then their
frequencies, one byte each."""
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
    return pack_row(version, ts, role, classify(text, role), lexicon.terms(text))


def entry_row(entry: Draft, lexicon: Lexicon) -> bytes:
    """Build the row of an entry; empty if it is not a message."""
    if entry.kind != MESSAGE:
        return b""
    return message_row(entry_text(entry), entry.role, entry.ts, entry.meta, lexicon)


def with_row(draft: Draft, lexicon: Lexicon) -> Draft:
    """Return a draft with its row."""
    return replace(draft, terms=entry_row(draft, lexicon))


def pack_row(version: bytes, ts: int, role: Role, marks: Mark, terms: Mapping[int, int]) -> bytes:
    """Encode a row."""
    if min(terms.values(), default=1) < 1:
        terms = {term: tf for term, tf in terms.items() if tf > 0}
    frequencies = terms.values()
    length = min(sum(frequencies), 2**32 - 1)
    head = HEAD.pack(version, ts, length, len(terms), int(marks), _PLACES[role])
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
    _, _, _, count, _, role = HEAD.unpack_from(row)
    return len(row) == HEAD.size + 5 * int(count) and role < len(ROLES)
