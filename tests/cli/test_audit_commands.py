"""The audit command: tables, pipes, exports that can be verified, and usage errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.cli.calling import called_at as run
from tests.cli.calling import own_file

from recto.testing import scripted_session

KEY = "agent:me:main"


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A home with a session of which a part was evicted."""
    home = tmp_path_factory.mktemp("home")
    (home / "chat.json").write_text(json.dumps(list(scripted_session(exchanges=6))))
    own_file(home).write_text(
        f"model: gpt-4o\nsession: {KEY}\nmodels: {{gpt-4o: {{window: 16000, max_input: 16000}}}}\n"
        "window: {keep_recent_tokens: 500}\nrecall: {embedder: {use: none}}\n"
    )
    run(home, "import", "chat.json", "--session", KEY)
    run(home, "compact")
    run(home, "import", "chat.json", "--session", "agent:me:other")
    return home


def test_an_unknown_kind_is_refused_with_the_nearest_name(home):
    for options in ((), ("--json",), ("--all", "--csv")):
        assert "Did you mean 'decision'" in run(home, "audit", "--kind", "decisons", *options, code=3)


def test_the_table_shows_each_decision_and_its_reason(home):
    output = run(home, "audit")
    assert "compaction" in output
    assert "compact" in output
    assert "all but the newest 500 tokens" in " ".join(output.split())
    assert "Nothing of that kind" in run(home, "audit", "--kind", "memory_approved")
    assert "Nothing of that kind" in run(home, "audit", "--until", "2020-01-01")
    assert "--past" in run(home, "audit", "--limit", "1")


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_an_export_ends_with_the_head_and_a_changed_export_is_detected(home, form):
    file = home / f"audit{form}"
    run(home, "audit", "--all", form, "-o", str(file))
    assert "what the transcript says" in run(home, "audit", "--check", str(file))
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"all but the newest 500", b"all but the newest 501", 1))
    assert "DIFFERS" in run(home, "audit", "--check", str(file), code=1)
    run(home, "audit", form, "-o", str(file), code=2)
    run(home, "audit", "--all", form, "-o", str(file), "--force")
    assert file.read_bytes() == whole


def test_verify_accepts_the_heads_of_an_export(home):
    rows = [json.loads(line) for line in run(home, "audit", "--all", "--json").splitlines()]
    heads = {row["session"]: {"seq": row["seq"], "hash": row["hash"]} for row in rows if row["record"] == "head"}
    assert rows[-1]["record"] == "head"
    assert set(heads) == {KEY, "agent:me:other"}
    (home / "kept.json").write_text(json.dumps(heads))
    run(home, "verify", "--heads", "kept.json")
    heads[KEY]["hash"] = "00" * 32
    (home / "kept.json").write_text(json.dumps(heads))
    run(home, "verify", "--heads", "kept.json", code=1)


def test_csv_output_has_a_row_for_each_record_and_no_message_text(home):
    output = run(home, "audit", "--csv")
    rows = list(csv.DictReader(output.splitlines()))
    lines = [json.loads(line) for line in run(home, "audit", "--json").splitlines()]
    assert [(row["record"], int(row["seq"]), row["hash"]) for row in rows] == [
        (line["record"], line["seq"], line["hash"]) for line in lines
    ]
    written = "[For reference only"
    assert written not in output
    assert "compression" in run(home, "audit", "--json", "--kind", "decision", "--text")


def test_usage_errors_have_their_exit_codes(home):
    run(home, "audit", "--session", "agent:nobody:x", code=2)
    run(home, "audit", "--since", "yesterday-ish", code=2)
    run(home, "audit", "--json", "--csv", code=2)
    run(home, "audit", "--session", KEY, "--all", code=2)
    run(home, "audit", "-o", "x.txt", code=2)
    for text in ("", "nonsense", "{}\n", '{"record": "head"}\n', "[1]\n"):
        (home / "bad").write_text(text)
        run(home, "audit", "--check", "bad", code=3)


def test_a_real_session_is_audited_and_its_export_verifies(data, tmp_path):
    file = data / "agent_sessions" / "entireio_cli" / "61cb3ba8-484b-4a21-bf99-34f7dc361170.jsonl"
    settings = "model: gpt-4o\nwindow: {keep_recent_tokens: 200}\nrecall: {embedder: {use: none}}\n"
    own_file(tmp_path).write_text(settings)
    run(tmp_path, "import", str(file), "--session", "agent:real:main")
    run(tmp_path, "compact", "--session", "agent:real:main")
    run(tmp_path, "audit", "--session", "agent:real:main", "--json", "-o", "real.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "real.jsonl").read_text().splitlines()]
    assert {"imported", "compaction"} <= {row["kind"] for row in rows[:-1]}
    run(tmp_path, "audit", "--check", "real.jsonl")
