"""A compaction offers to review history for durable memory, and reviews nothing by itself."""

from __future__ import annotations

import json

import pytest
from tests.cli.calling import called

import recto

SMALL = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}
KEY = "agent:default:main"


def opened(store, **window):
    window = {"mode": "auto_compact", "keep_recent_tokens": 1_000} | window
    return recto.open(store, model="gpt-4o", models=SMALL, window=window, recall={"enabled": False})


def converse(session, turns):
    session.append({"role": "user", "content": "I prefer tabs over spaces in all Go code."})
    session.append({"role": "assistant", "content": "Noted."})
    for number in range(turns):
        session.append({"role": "user", "content": f"{number} " + "word " * 900})
        session.prompt()
        session.append({"role": "assistant", "content": "Read."})


def offers(session):
    return [json.loads(entry.content) for entry in session.read() if entry.kind == "consolidation_due"]


@pytest.mark.requirement("memory.offered")
def test_a_compaction_offers_consolidation_once_and_does_not_run_it(tmp_path):
    store = tmp_path / "a.db"
    with opened(store) as session:
        converse(session, 16)
        compactions = [entry.seq for entry in session.read() if entry.kind == "compaction"]
        assert len(compactions) > 1
        assert offers(session) == [{"since": 1, "entries": compactions[0], "decision": compactions[0]}]
        assert session.memory.list() == ()
        assert not any(entry.kind == "memory_proposed" for entry in session.read())
    shown = called("--store", str(store), "consolidate", "--dry-run")
    assert f"due: {KEY}, " in shown.stdout
    assert "since entry 1, offered at a compaction" in shown.stdout
    called("--store", str(store), "consolidate")
    assert "due:" not in called("--store", str(store), "consolidate").stdout
    with opened(store) as session:
        converse(session, 16)
        first, second = offers(session)
        assert second["since"] > first["since"]


@pytest.mark.requirement("memory.offered")
def test_a_sliding_window_and_a_store_without_memory_offer_nothing(tmp_path):
    with opened(tmp_path / "a.db", mode="sliding_window") as session:
        converse(session, 12)
        assert any(entry.kind == "context_window_pruned" for entry in session.read())
        assert offers(session) == []
    with opened("memory:") as session:
        converse(session, 12)
        assert any(entry.kind == "compaction" for entry in session.read())
        assert offers(session) == []
