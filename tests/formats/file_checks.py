"""Helpers that read a session file and check that its entries reproduce it byte for byte."""

from __future__ import annotations

import json

from recto.formats import read
from recto.formats.session_files import SourceEntry, read_file, source_of

USER = {"role": "user", "content": "q"}
REPLY = {"role": "assistant", "content": "a"}


def lines(*objects, end: str = "\n") -> bytes:
    return "".join(json.dumps(value) + end for value in objects).encode()


def entries_of(raw: bytes, **options) -> list[SourceEntry]:
    """Returns the entries of a file after checking that they reproduce it byte for byte."""
    found = list(read_file([raw], "folder/some.name.jsonl", **options))
    assert b"".join(entry.source for entry in found) == raw
    for entry in found:
        assert source_of(entry.content, json.loads(json.dumps(entry.layout))) == entry.source
        json.dumps(entry.meta, allow_nan=False, ensure_ascii=False).encode()
        if entry.kind == "message":
            assert read(entry.content, entry.wire).role == entry.role
    return found


def outline(found: list[SourceEntry]) -> list[tuple[str, str]]:
    return [(entry.role, entry.kind) for entry in found]
