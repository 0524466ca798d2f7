"""What an entry contributes to the index: its terms, the passages to embed, and the uses of recall it records.

Entries may be imported with arbitrary bytes. Anything unreadable is skipped; nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from recto.context.facts.classifier import classify
from recto.formats.entry_text import entry_text
from recto.recall.chunking import passages
from recto.recall.protocols import Lexicon
from recto.recall.types import USED, IndexedDocument
from recto.transcript.entries import MAX_SEQ, MESSAGE, Entry

_RECAP_KEYS = ("compact_summary", "isCompactSummary")
_MAX_PASSAGES_BY_ROLE = {"user": 6, "assistant": 4, "tool": 2, "system": 2, "event": 0}
"""Passages to embed per message. Long tool outputs are found by their words instead."""
_MAX_COUNTED = 1000
"""Entries counted per event; a prompt shows only a few."""


def is_original_message(entry: Entry) -> bool:
    """Whether an entry is a message of the conversation, not a recap that a client wrote of it.

    A recap repeats the history in few words and would outrank the messages it summarizes.
    """
    if entry.kind != MESSAGE:
        return False
    if b"ompact" not in entry.meta:
        return True
    meta = _parse_object(entry.meta)
    return not any(meta.get(name) for name in _RECAP_KEYS)


def build_document(entry: Entry, lexicon: Lexicon) -> IndexedDocument:
    """Build the word-index document of a message."""
    text = entry_text(entry)
    marks = classify(text, entry.role)
    return IndexedDocument(seq=entry.seq, ts=entry.ts, role=entry.role, marks=marks, terms=lexicon.terms(text))


def passages_to_embed(entry: Entry) -> list[str]:
    """Return the passages of a message that get vectors; none for events and recaps."""
    limit = _MAX_PASSAGES_BY_ROLE[entry.role] if is_original_message(entry) else 0
    return list(passages(entry_text(entry), limit=limit)) if limit else []


def recall_uses(page: Iterable[Entry]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield (event, shown entries, used entries) for every recall event of a page."""
    for entry in page:
        if entry.kind == USED:
            payload = _parse_object(entry.content)
            yield entry.seq, _entry_numbers(payload.get("shown")), _entry_numbers(payload.get("used"))


def _parse_object(raw: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _entry_numbers(value: object) -> list[int]:
    """Return the valid entry numbers of a list; anything else is dropped."""
    numbers = value[:_MAX_COUNTED] if isinstance(value, list) else []
    return [number for number in numbers if type(number) is int and 0 < number <= MAX_SEQ]
