"""The recall, read, grep, index and doctor commands: text output, JSON, and usage errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.calling import called
from tests.context.worked_sessions import messages

from recto.cli.console import out

RECTO = str(Path(sys.executable).parent / "recto")
KEY = "agent:me:main"
EXCHANGES = (
    ("The staging database is called egret, on port 5432.", "Noted."),
    ("Tell me about gardens.", "They are green."),
    (
        "No, that was wrong: the staging database is called heron on port 6543, not egret.",
        "Corrected: heron, port 6543.",
    ),
    ("Which file parses headers?", "That is src/http/parse_header.py, in the function read_header."),
    ("What \x1b[2Jis [link=x]red[/link] \u202eevil\u202c?", "A colour \x9b31m of the octarine kind."),
)
MESSAGES = [
    {"role": role, "content": text}
    for exchange in EXCHANGES
    for role, text in zip(("user", "assistant"), exchange, strict=True)
]
HIT = {
    *("pointer", "session", "seq", "role", "ts", "text", "cut", "chance", "score", "parts", "marks", "in_prompt"),
    *("superseded_by", "supersedes", "note", "context", "reasons", "verdict", "agent", "project"),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A home with two unindexed sessions of one agent in its store, created once."""
    home = tmp_path_factory.mktemp("home")
    (home / "chat.json").write_text(json.dumps(MESSAGES))
    (home / "other.json").write_text(json.dumps([{"role": "user", "content": "The lighthouse has 99 steps."}]))
    environ = os.environ | {"HOME": str(home), "RECTO_MODEL": "gpt-4o", "RECTO_RECALL__ENABLED": "false"}
    for file, key in (("chat.json", KEY), ("other.json", "agent:me:other")):
        command = [RECTO, "import", file, "--session", key]
        subprocess.run(command, cwd=home, env=environ, check=True, capture_output=True)
    return home


@pytest.fixture
def here(tmp_path, monkeypatch, filled) -> Path:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RECTO_MODEL", "gpt-4o")
    monkeypatch.setenv("RECTO_SESSION", KEY)
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__USE", "none")
    return tmp_path


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = called(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def recall_json(*arguments: str) -> dict:
    return json.loads(run("recall", *arguments, "--json").stdout)


def test_a_hit_shows_role_pointer_state_and_the_matching_line(here):
    output = run("recall", "where is the function read_header").stdout
    first, second, *_, last = output.splitlines()
    assert first.split()[1] == "assistant"
    assert f"recto://{KEY}/8" in first
    assert "in the prompt" in first
    assert second.strip() == "That is src/http/parse_header.py, in the function read_header."
    assert last == "10 messages of this session searched"


def test_a_hit_in_a_long_message_shows_the_matching_line(here):
    long = "We talked a while. " * 40 + "The walrus is called Ferdinand. " + "And then we went on. " * 40
    (here / "long.json").write_text(json.dumps([{"role": "user", "content": long}]))
    run("import", "long.json", "--session", "agent:me:long")
    assert "Ferdinand" in run("recall", "what is the walrus called", "--session", "agent:me:long").stdout


def test_a_superseded_statement_ranks_below_its_correction(here):
    found = recall_json("what is the staging database called")
    by_seq = {hit["seq"]: hit for hit in found["hits"]}
    assert by_seq[1]["superseded_by"] == 5
    assert by_seq[5]["supersedes"] == [1]
    assert [hit["seq"] for hit in found["hits"]].index(5) < [hit["seq"] for hit in found["hits"]].index(1)
    output = run("recall", "what is the staging database called").stdout
    assert "taken back by entry 5" in output
    assert "takes back entry 1" in output


def test_the_json_output_has_a_stable_format(here):
    found = recall_json("staging database port", "-n", "2")
    assert found.keys() == {
        *("query", "scope", "searched", "behind", "without_vectors", "threshold", "notes", "hits"),
    }
    assert (found["query"], found["scope"], found["searched"]) == ("staging database port", "session", 10)
    assert (found["behind"], found["without_vectors"], found["notes"]) == (0, 0, [])
    assert 1 <= len(found["hits"]) <= 3
    for hit in found["hits"]:
        assert hit.keys() == HIT
        assert hit["score"] == pytest.approx(sum(hit["parts"].values())) or hit["supersedes"]
    assert "correction" in found["hits"][0]["marks"]
    assert found["hits"][0]["context"] == [6]


def test_explain_prints_the_score_parts_and_the_verdict(here):
    output = run("recall", "which file has the function read_header", "--explain").stdout
    assert "words +" in output
    assert "answers entry 7" in output
    assert output.splitlines()[-1].endswith(", enough to come back into a prompt by itself: that takes 0.40.")
    output = run("recall", "zyzzyva", "--explain").stdout
    assert output.splitlines()[-1].endswith(", not enough to come back into a prompt by itself: that takes 0.40.")


def test_no_hit_is_not_an_error(here, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__USE", "none")
    assert run("recall", "zyzzyva").stdout.startswith("Nothing like it was said.")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_each_hit_takes_two_lines_whatever_the_width_and_its_pointer_stays_whole(here, monkeypatch, width):
    monkeypatch.setattr(out, "width", width)
    *hits, _ = run("recall", "staging database egret heron", "-n", "4").stdout.splitlines()
    assert len(hits) % 2 == 0
    assert all(f"recto://{KEY}/" in line for line in hits[::2])
    assert all(len(line) <= width for line in hits[1::2])


def test_recalled_text_cannot_control_the_terminal(here):
    output = run("recall", "octarine colour evil red", "--explain").stdout
    assert "octarine" in output
    assert "[link=x]" in output
    assert not {"\x1b", "\x9b", "\u202e"} & set(output)


def test_the_agent_scope_searches_other_sessions_and_notes_unindexed_sessions(here):
    before = recall_json("how many steps has the lighthouse", "--scope", "agent")
    assert all(hit["session"] == KEY for hit in before["hits"])
    assert before["notes"] == ["not all of 1 other session is indexed; 'recto index' takes it in"]
    assert run("index").stdout == "13 entries of 2 sessions in the index\n"
    after = recall_json("how many steps has the lighthouse", "--scope", "agent")
    assert after["hits"][0]["pointer"] == "recto://agent:me:other/1"
    assert after["notes"] == []
    alone = recall_json("how many steps has the lighthouse")
    assert all(hit["session"] == KEY for hit in alone["hits"])


def test_an_imported_session_is_found_immediately(here):
    (here / "third.json").write_text(json.dumps([{"role": "user", "content": "The viaduct has 31 arches."}]))
    assert "1" in run("import", "third.json", "--session", "agent:me:third").stdout
    found = recall_json("how many arches has the viaduct", "--scope", "agent")
    assert found["hits"][0]["pointer"] == "recto://agent:me:third/1"


def test_a_hit_is_in_the_prompt_of_the_model_that_the_session_was_imported_for(here, monkeypatch):
    """Not in that of an unknown model, whose window is much smaller."""
    monkeypatch.delenv("RECTO_MODEL")
    tale = [{"role": "user", "content": f"Report {number}: {'all is well. ' * 400}"} for number in range(40)]
    tale.insert(1, {"role": "user", "content": "The viaduct has 31 arches."})
    (here / "tale.json").write_text(json.dumps(tale))
    run("import", "tale.json", "--session", "agent:me:tale", "--model", "gpt-4o")
    found = recall_json("how many arches has the viaduct", "--session", "agent:me:tale")
    assert (found["hits"][0]["seq"], found["hits"][0]["in_prompt"]) == (2, True)


def test_an_unreachable_embedder_falls_back_to_lexical_search_with_a_note(here, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__USE", "endpoint")
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__MODEL", "none")
    found = recall_json("read_header")
    assert found["hits"][0]["seq"] == 8
    assert found["without_vectors"] == 11
    assert "connection failed" in found["notes"][0]
    output = run("recall", "read_header").stdout
    assert "11 entries found by words alone so far: 'recto index' finishes it" in output
    done = run("index", code=1)
    assert "13 entries without vectors, found by words alone" in done.stdout
    assert "connection failed" in done.stderr
    assert "✗ embedder" in run("doctor", code=1).stdout


def test_read_prints_a_whole_entry_with_its_neighbours(here):
    assert "read_header" in run("read", f"recto://{KEY}/8").stdout
    rows = [json.loads(line) for line in run("read", f"recto://{KEY}/8", "--around", "1", "--json").stdout.splitlines()]
    assert [row["seq"] for row in rows] == [7, 8, 9]
    assert json.loads(rows[1]["content"]) == MESSAGES[7]
    assert "\x1b" not in run("read", f"recto://{KEY}/9").stdout


def test_read_takes_the_number_of_an_entry_as_other_commands_do(here):
    assert run("read", "8").stdout == run("read", f"recto://{KEY}/8").stdout
    assert run("read", "8", "--session", KEY).stdout == run("read", f"recto://{KEY}/8").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["read", "800"], 3, "there is nothing at"),
        (["read", "8", "--session", "agent:mee:main"], 2, "Did you mean"),
        (["read", f"recto://{KEY}/8", "--session", KEY], 2, "leave --session out"),
        (["recall", "x", "--session", "agent:mee:main"], 2, "Did you mean 'agent:me:main'"),
        (["recall", "x", "-n", "0"], 2, "range"),
        (["recall", "x", "--scope", "world"], 2, "'tenant'"),
        (["recall", "x", "--session", "tenant:broken"], 3, "made by Recto"),
        (["read", "main/8"], 3, "looks like recto://"),
        (["read", f"recto://{KEY}/800"], 3, "there is nothing at"),
        (["read", "recto://agent:nobody:main/1"], 3, "there is nothing at"),
        (["read", f"recto://{KEY}/8", "--around", "-1"], 2, "range"),
        (["index", "--session", "agent:mee:main"], 2, "Did you mean"),
        (["--store", "missing.db", "recall", "x"], 4, "no store here"),
        (["--store", "missing.db", "doctor"], 4, "no store here"),
    ],
)
def test_a_usage_error_has_a_message_and_an_exit_code(here, arguments, code, message):
    assert message in " ".join(run(*arguments, code=code).stderr.split())


def test_disabled_recall_names_its_setting(here, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__ENABLED", "false")
    assert "'recall.enabled'" in run("recall", "x", code=2).stderr


def test_a_tenant_sees_only_its_own_sessions(here, monkeypatch):
    code = (
        "import recto\n"
        f"with recto.open('t.db', session='{KEY}', tenant='acme', model='gpt-4o') as session:\n"
        "    session.append({'role': 'user', 'content': 'The password of acme is octarine.'})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    pointer = f"recto://tenant:acme/{KEY}/1"
    monkeypatch.setenv("RECTO_TENANT", "acme")
    found = json.loads(run("--store", "t.db", "recall", "octarine", "--json").stdout)
    assert [hit["pointer"] for hit in found["hits"]] == [pointer]
    assert "octarine" in run("--store", "t.db", "read", pointer).stdout
    monkeypatch.setenv("RECTO_TENANT", "other")
    assert "no session" in run("--store", "t.db", "recall", "octarine", code=2).stderr
    assert "octarine" not in run("--store", "t.db", "read", pointer, code=3).stderr
    assert run("--store", "t.db", "index").stdout == "0 entries of 0 sessions in the index\n"
    monkeypatch.delenv("RECTO_TENANT")
    named = run("--store", "t.db", "recall", "octarine", "--session", f"tenant:acme/{KEY}", "--json").stdout
    assert json.loads(named)["hits"]


def test_the_index_is_built_once_and_rebuilt_on_request(here):
    assert run("index", "--session", KEY).stdout == "11 entries of 1 session in the index\n"
    index = here / ".recto" / "transcript.db-recall"
    before = index.stat().st_mtime_ns
    run("index", "--session", KEY)
    assert index.stat().st_mtime_ns == before
    run("index", "--session", KEY, "--rebuild")
    assert recall_json("read_header")["hits"][0]["seq"] == 8


def test_the_doctor_detects_and_repairs_a_broken_index(here):
    run("index")
    findings = [json.loads(line) for line in run("doctor", "--json").stdout.splitlines()]
    assert {finding["about"] for finding in findings} >= {"store", "embedder", "index", "settings", "clock", "disk"}
    assert all(finding.keys() == {"grade", "about", "says", "cure", "repaired"} for finding in findings)
    assert "problem" not in {finding["grade"] for finding in findings}
    (here / ".recto" / "transcript.db-recall").write_bytes(b"not an index at all")
    broken = run("doctor", code=1).stdout
    assert broken.startswith("✗ index")
    assert "recto doctor --repair" in broken
    assert "(repaired)" in run("doctor", "--repair").stdout
    assert "everything is in it" in run("doctor").stdout
    assert recall_json("read_header")["hits"][0]["seq"] == 8
    run("verify")


def test_recall_works_with_a_damaged_index(here):
    run("index")
    (here / ".recto" / "transcript.db-recall").write_bytes(b"not an index at all")
    assert recall_json("read_header")["hits"][0]["seq"] == 8


def test_a_finding_is_one_line_in_a_pipe(here, monkeypatch):
    monkeypatch.setattr(out, "width", 40)
    assert all(line[0] in "✓·✗" for line in run("doctor").stdout.splitlines())


def test_the_demo_shows_an_evicted_message_recalled_with_its_correction(here):
    output = run("demo", "--exchanges", "10").stdout
    assert "entries 4 and 6 left the prompt long ago" in output
    assert "superseded by recto://agent:demo:chat/6" in output
    assert "> No, that was wrong: Marlow & Sons want their invoices on the 5th" in output


def test_commands_without_a_search_do_not_load_the_search_libraries():
    code = "import sys, recto.cli.main; sys.exit('numpy' in sys.modules or 'onnxruntime' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def worked_home(here) -> Path:
    (here / "work.json").write_text(json.dumps(list(messages("openai.chat"))))
    run("import", "work.json", "--session", "agent:me:work")
    return here


def done(*arguments: str) -> str:
    return run("recall", "--session", "agent:me:work", *arguments).stdout


def test_the_steps_on_a_file_are_printed_newest_first_with_their_reason(worked_home):
    first, *_ = done("--file", "parser.py").splitlines()
    assert first.startswith("edit (version 1)")
    assert "recto://agent:me:work/6" in first
    assert first.endswith("ok  /repo/src/parser.py")
    assert "why: The default port is missing." in done("--file", "src/parser.py")


def test_a_command_is_printed_with_its_outcomes_and_the_change_that_fixed_it(worked_home):
    output = done("--command", "pytest tests")
    assert "failed (exit 1)" in output
    assert "passed after 2 failures; changed in between:" in output
    assert "create  /repo/src/defaults.py  recto://agent:me:work/10" in output


def test_an_error_is_printed_with_its_resolution(worked_home):
    output = done("--error", "KeyError: 'port'")
    assert output.startswith("over; it came 2 times")
    assert "ended by" in output
    assert done("--error", "ZeroDivisionError").strip() == "never reported"


def test_a_step_search_is_one_json_object(worked_home):
    output = json.loads(done("--command", "pytest tests", "--json", "-n", "1"))
    assert output["runs"][0]["step"]["state"] == "ok"
    assert output["next"] == output["runs"][0]["step"]["seq"]
    older = json.loads(done("--command", "pytest tests", "--json", "--before", str(output["next"])))
    assert [each["step"]["exit_code"] for each in older["runs"]] == [1, 1]
    assert json.loads(done("--number", "passed in", "--json"))["numbers"][0]["number"] == "3 passed"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("",),
        ("question", "--file", "a.py"),
        ("--file", "a.py", "--error", "x"),
        ("--file", "a.py", "--scope", "agent"),
    ],
)
def test_only_one_query_is_allowed_at_a_time(here, arguments):
    assert "Usage" in run("recall", *arguments, code=2).stderr


def test_a_step_search_needs_no_index(worked_home, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__ENABLED", "false")
    assert "version 1" in done("--file", "parser.py")


def test_lines_are_searched_with_context_and_regular_expressions(worked_home):
    output = run("grep", "keyerror", "--session", "agent:me:work", "-C", "1").stdout.splitlines()
    assert output[0].startswith("recto://agent:me:work/9  tool")
    assert [line.strip() for line in output[1:4]] == [
        "1- Exit code 1",
        "2: E   KeyError: 'port'",
        "3- 1 failed in 0.52s",
    ]
    assert "3 passed in 0.31s" in run("grep", "-E", r"^\d passed", "--session", "agent:me:work").stdout
    page = json.loads(run("grep", "KeyError", "--session", "agent:me:work", "-n", "1", "--json").stdout)
    assert page["next"] == 8
    assert "No line matches" in run("grep", "nowhere").stdout
    assert "without its ')'" in run("grep", "-E", "(a", code=3).stderr
