"""What of an entry goes into the index: its words, the passages that get vectors, what it says about recall itself.

Entries may be imported, and their bytes may be anything: what cannot be read is left out, and nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from recto.context.facts.classifier import classify
from recto.formats.entry_text import text_of
from recto.recall.chunking import passages
from recto.recall.protocols import Lexicon
from recto.recall.types import USED, IndexedDocument
from recto.transcript.entries import MAX_SEQ, MESSAGE, Entry

_RECAP_KEYS = ("compact_summary", "isCompactSummary")
_MAX_PASSAGES_BY_ROLE = {"user": 6, "assistant": 4, "tool": 2, "system": 2, "event": 0}
"""How many passages of a message get a vector. Long outputs of tools are found by their words."""
_MAX_COUNTED = 1000
"""Entries of one event that are counted; a prompt shows a few."""


def is_original_message(entry: Entry) -> bool:
    """A message that was said. A recap of messages that a client wrote is not history, and would be found before it."""
    if entry.kind != MESSAGE:
        return False
    if b"ompact" not in entry.meta:
        return True
    about = _parse_object(entry.meta)
    return not any(about.get(name) for name in _RECAP_KEYS)


def build_document(entry: Entry, lexicon: Lexicon) -> IndexedDocument:
    """A message as the words index takes it in."""
    text = text_of(entry)
    marks = classify(text, entry.role)
    return IndexedDocument(seq=entry.seq, ts=entry.ts, role=entry.role, marks=marks, terms=lexicon.terms(text))


def passages_to_embed(entry: Entry) -> list[str]:
    """The pieces of a message that get vectors; none for what was not said."""
    most = _MAX_PASSAGES_BY_ROLE[entry.role] if is_original_message(entry) else 0
    return list(passages(text_of(entry), most=most)) if most else []


def recall_uses(page: Iterable[Entry]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Which entries were shown, and which of them used, as the events of a page say."""
    for entry in page:
        if entry.kind == USED:
            about = _parse_object(entry.content)
            yield entry.seq, _entry_numbers(about.get("shown")), _entry_numbers(about.get("used"))


def _parse_object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _entry_numbers(given: object) -> list[int]:
    """The numbers of entries in a list, and nothing else."""
    listed = given[:_MAX_COUNTED] if isinstance(given, list) else []
    return [one for one in listed if type(one) is int and 0 < one <= MAX_SEQ]
