"""From the yellow zone on, the report lists what the next relief would take, and relief takes it."""

from __future__ import annotations

import json

import pytest
from tests.cli.calling import called

import recto
from recto.context.window.state import Protection, seqs_in, split_units
from recto.context.window.units import ShortenedResult
from recto.engine.projection import DECISIONS
from recto.testing import scripted_session

MODELS = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}


def opened(store, **window):
    return recto.open(store, model="gpt-4o", models=MODELS, window=window, recall={"enabled": False})


def talk(session, turns: int) -> None:
    for turn in range(turns):
        session.append({"role": "user", "content": f"Question {turn} about the parser. " + "It matters. " * 20})
        session.prompt()
        session.append({"role": "assistant", "content": f"Answer {turn}. " + "The parser reads and writes. " * 20})


def entries(report) -> set[int]:
    return {seq for candidates in report.candidates for seq in seqs_in(candidates.ranges)}


@pytest.mark.requirement("pressure.candidates")
@pytest.mark.parametrize("policy", ["prune", "lru", "priority"])
def test_the_listed_candidates_are_evicted_first_by_the_next_relief(policy, tmp_path):
    with opened(tmp_path / "a.db", policy=policy, floor_percent=70) as session:
        talk(session, 3)
        assert session.report().reading.zone == "green"
        assert session.report().candidates == ()
        while session.report().reading.zone == "green":
            talk(session, 1)
        assert entries(session.report())
        assert not any(entry.kind in DECISIONS for entry in session.read())  # the report changes nothing
        while not session.window.state.evicted_messages:
            listed = entries(session.report())
            talk(session, 1)
        decision = next(json.loads(entry.content) for entry in session.read() if entry.kind in DECISIONS)
        assert listed & set(seqs_in(decision["left"]))


def test_the_command_prints_the_candidates(tmp_path, monkeypatch):
    store = str(tmp_path / "a.db")
    monkeypatch.setenv("RECTO_MODEL", "gpt-4o")
    monkeypatch.setenv("RECTO_MODELS", json.dumps(MODELS))
    with opened(store) as session:
        while session.report().reading.zone == "green":
            talk(session, 1)
        first = min(entries(session.report()))
    done = called("--store", store, "context", "list")
    assert done.returncode == 0, done.stderr
    assert "Next, by prune: evict" in done.stdout
    assert f"entries {first}" in done.stdout


def test_cached_units_equal_those_split_from_the_state():
    """The cache of units follows every change that splits a state differently; a shortened result does not."""
    with recto.open("memory:", model="gpt-4o") as session:
        session.append_all(scripted_session(exchanges=12))
        window = session.window
        state, protection = window.state.copy(), Protection(min_recent_messages=6)
        results = [line for line in state.messages.values() if line.has_result]

        def same() -> bool:
            return window.messages.units(state, protection) == split_units(state, protection)

        assert same()
        divided = window.messages.units(state, protection)
        state.shorten([ShortenedResult(seq=results[0].seq, text="short", tokens=1)])
        state.evict(())
        assert window.messages.units(state, protection) is divided
        assert same()
        state.pins.add(results[1].seq)
        assert same()
        state.evict(list(divided.eligible[0].seqs))
        assert same()
        state.restore([line for line in window.state.messages.values() if line.seq not in state.messages])
        assert same()
