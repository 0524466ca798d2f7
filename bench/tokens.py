"""Measures how fast each tokenizer counts tokens, in megabytes of text per second.
The texts are those of real agent sessions if they are present, otherwise of a made-up session.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from bench.measure import row
from recto.testing import scripted_session
from recto.tokens.meter import FAMILIES, counter_named

DATA = Path(os.environ.get("RECTO_TEST_DATA", "../shared/data"))
ENOUGH = 2_000_000


def run(quick: bool) -> list[dict]:
    texts, note = sample(ENOUGH // (10 if quick else 1))
    size = sum(len(text.encode(errors="replace")) for text in texts) / 1e6
    rows = []
    for family in sorted(FAMILIES):
        counter = counter_named(family)
        counter.count(texts[0] + "a" * 10_000)  # vocabularies and their tables are loaded at first use
        start = time.process_time()
        tokens = sum(counter.count(text) for text in texts)
        speed = size / (time.process_time() - start)
        kind = "exact" if counter.exact else "conservative"
        rows.append(row(f"{counter.name}", speed, "MB/s", f"{kind}; {tokens:,} tokens of {note}", 1))
    return rows


def sample(enough: int) -> tuple[list[str], str]:
    """Texts of about this many characters: one of every kind of content, taken in turn from real sessions."""
    texts: list[str] = []
    for file in sorted(DATA.glob("agent_sessions/*/*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            texts += strings(json.loads(line).get("content"))
        if sum(map(len, texts)) > enough:
            return texts, "real agent sessions"
    made = [str(message["content"]) for message in scripted_session(exchanges=enough // 6000)]
    return texts or made, "a made-up session"


def strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []
