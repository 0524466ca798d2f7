"""The table of the peers says what was measured, and what could not be."""

from __future__ import annotations

import subprocess

import pytest

from bench import peers


def cell(variant: str, size: int, p50: float | None, **more) -> dict:
    turns = 0 if p50 is None else 60
    return {"variant": variant, "n": size, "budget": 128_000, "p50": p50, "turns": turns, "durable": "no", **more}


def checked(variant: str, **wrong: int) -> dict:
    none = dict.fromkeys(("over", "orphan_results", "orphan_calls", "empty", "no_user"), 0)
    return {"variant": variant, "checkpass": "mixed", "budget": 128_000, "check": {"n": 60, **none, **wrong}}


def report(**rows: list[dict]) -> dict:
    found = [{"peer": peer, "versions": {peer: "1.0"}, "rows": given, "error": ""} for peer, given in rows.items()]
    machine = {"cores": 2, "python": "3.11", "system": "Linux"}
    return {
        "machine": machine,
        "at": "2026-11-15 12:00 UTC",
        "full": False,
        "peers": found,
        "real": {"sessions": [], "rows": []},
    }


OURS = [cell("recto", 100, 2.0), cell("recto", 100_000, 3.0), checked("recto")]


def test_a_peer_is_compared_at_the_largest_session_both_were_measured_at():
    theirs = [cell("slow", 100, 1.0), cell("slow", 1_000, 12.0), cell("slow", 10_000, None, killed_s=4)]
    ours = [*OURS, cell("recto", 1_000, 2.0)]
    told = peers.lines(report(recto=ours, slow=theirs), 128_000)
    assert told[1] == ("slow", "1.00", "12", "over 4 s", "", "12", "6.00 at 1,000", "", "no")


def test_recto_itself_has_no_ratio_and_its_growth_is_that_of_the_ends():
    assert peers.lines(report(recto=OURS), 128_000)[0][5:8] == ("1.50", "", "none of 60")


def test_bad_prompts_are_told_by_kind():
    theirs = [cell("loose", 100, 1.0), checked("loose", over=3, orphan_results=2)]
    assert peers.lines(report(recto=OURS, loose=theirs), 128_000)[1][7] == "3 over, 2 result alone of 60"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"turns": 60, "p50": 0.00234}, "0.002"),
        ({"turns": 7, "p50": 40.4}, "40 (7)"),
        ({"turns": 0, "p50": None, "cold": 5000.0}, "5,000 (first)"),
        ({"skipped": "from 10k this would not fit in the limit"}, "too slow"),
        ({"error": "ValueError", "turns": 0}, "failed"),
        ({}, ""),
    ],
)
def test_a_cell_says_how_much_it_is_worth(given, said):
    assert peers.told(given) == said


def test_a_peer_that_cannot_be_installed_is_shown_and_not_dropped(monkeypatch):
    def refuse(_):
        raise subprocess.CalledProcessError(1, ["pip"], stderr="ERROR: no such package\n")

    monkeypatch.setattr(peers, "install", refuse)
    gone = peers.measured(peers.PEERS[1], full=False)
    told = report(recto=OURS)
    told["peers"].append(gone)
    assert "langchain: the installation failed: ERROR: no such package" in peers.page(told)
