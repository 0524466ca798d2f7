"""`recto lab simulate`: session files that can be imported, needs that match them, and a table of results."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.calling import called_at

from recto.config import Settings
from recto.config.factory import make_importer
from recto.stores.memory import MemoryStore


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
@pytest.mark.parametrize("kind", ["chat", "review", "research", "monitoring"])
def test_an_imported_session_holds_each_fact_in_the_entries_that_the_needs_name(tmp_path, kind, wire):
    called_at(
        tmp_path, "lab", "simulate", kind, "--turns", "120", "--wire", wire, "-o", "a.jsonl", "--needs", "needs.jsonl"
    )
    with closing(MemoryStore()) as store:
        done = make_importer(Settings(), store).import_file(tmp_path / "a.jsonl")
        entries = {entry.seq: entry for entry in store.read(done.sessions[0])}
    assert done.problems == ()
    names = {"chat": "openai.chat", "responses": "openai.responses", "messages": "anthropic.messages"}
    assert {entry.wire for entry in entries.values() if entry.kind == "message"} == {names[wire]}
    needs = lines(tmp_path / "needs.jsonl")
    assert needs
    for need in needs:
        for value in need["expect"]:
            for seq in need["entries"]:
                assert value in entries[seq].content.decode()
        assert need["distance"] == need["turn"] - need["said_turn"] > 0


def test_the_same_bytes_are_written_to_stdout_and_to_a_file(tmp_path):
    arguments = ("lab", "simulate", "review", "--seed", "5", "--turns", "20")
    shown = called_at(tmp_path, *arguments)
    called_at(tmp_path, *arguments, "-o", "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text(encoding="utf-8") == shown
    assert called_at(tmp_path, "lab", "simulate", "review", "--seed", "6", "--turns", "20") != shown
    assert not (tmp_path / ".recto").exists()


def test_the_length_can_be_set_in_tokens(tmp_path):
    called_at(tmp_path, "lab", "simulate", "chat", "--tokens", "10k", "-o", "a.jsonl")
    assert 40_000 <= (tmp_path / "a.jsonl").stat().st_size < 60_000
    assert "not both" in called_at(tmp_path, "lab", "simulate", "chat", "--tokens", "10k", "--turns", "5", code=2)


def test_an_existing_file_is_not_overwritten_silently(tmp_path):
    (tmp_path / "a.jsonl").write_text("mine")
    for option in ("-o", "--needs"):
        assert "--force" in called_at(tmp_path, "lab", "simulate", "chat", "--turns", "3", option, "a.jsonl", code=2)
    assert (tmp_path / "a.jsonl").read_text() == "mine"
    called_at(tmp_path, "lab", "simulate", "chat", "--turns", "3", "-o", "a.jsonl", "--force")
    assert len(lines(tmp_path / "a.jsonl")) > 3


def test_ask_reports_which_needs_are_met_and_where(tmp_path, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__USE", "none")
    arguments = ("lab", "simulate", "chat", "--turns", "30", "--ask", "--window", "5k")
    result = json.loads(called_at(tmp_path, *arguments, "--json"))
    assert (result["kind"], result["turns"], result["over"], result["refused"]) == ("chat", 30, 0, 0)
    fared = result["fared"].values()
    assert (
        sum(counts["asked"] for counts in fared)
        == sum(counts["asked"] for counts in result["by_distance"].values())
        > 0
    )
    assert all(
        counts["prompt"] + counts["summary"] + counts["recalled"] + counts["missed"] == counts["asked"]
        for counts in fared
    )
    table = called_at(tmp_path, *arguments)
    assert "within 10 turns" in table
    assert "0 over the window, 0 refused" in table
    assert not (tmp_path / ".recto").exists()


def test_a_window_that_is_too_small_is_reported(tmp_path):
    result = json.loads(
        called_at(tmp_path, "lab", "simulate", "research", "--turns", "10", "--ask", "--window", "1k", "--json", code=1)
    )
    assert result["over"] == 0
    assert result["refused"] > 0
