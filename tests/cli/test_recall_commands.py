"""recall, read, index and doctor as people and programs use them."""

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
SAID = (
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
    for exchange in SAID
    for role, text in zip(("user", "assistant"), exchange, strict=True)
]
HIT = {
    *("pointer", "session", "seq", "role", "ts", "text", "cut", "chance", "score", "parts", "marks", "in_prompt"),
    *("superseded_by", "supersedes", "note", "context", "reasons", "verdict", "agent", "project"),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A home with two sessions of one agent in its store, not indexed, made once."""
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


def asked(*arguments: str) -> dict:
    return json.loads(run("recall", *arguments, "--json").stdout)


def test_a_question_is_answered_with_who_when_where_and_the_line_that_matters(here):
    told = run("recall", "where is the function read_header").stdout
    first, second, *_, last = told.splitlines()
    assert first.split()[1] == "assistant"
    assert f"recto://{KEY}/8" in first
    assert "in the prompt" in first
    assert second.strip() == "That is src/http/parse_header.py, in the function read_header."
    assert last == "10 messages of this session searched"


def test_of_a_long_message_the_line_that_matters_is_shown(here):
    long = "We talked a while. " * 40 + "The walrus is called Ferdinand. " + "And then we went on. " * 40
    (here / "long.json").write_text(json.dumps([{"role": "user", "content": long}]))
    run("import", "long.json", "--session", "agent:me:long")
    assert "Ferdinand" in run("recall", "what is the walrus called", "--session", "agent:me:long").stdout


def test_a_statement_that_was_taken_back_stands_behind_what_took_it_back(here):
    found = asked("what is the staging database called")
    by_seq = {hit["seq"]: hit for hit in found["hits"]}
    assert by_seq[1]["superseded_by"] == 5
    assert by_seq[5]["supersedes"] == [1]
    assert [hit["seq"] for hit in found["hits"]].index(5) < [hit["seq"] for hit in found["hits"]].index(1)
    told = run("recall", "what is the staging database called").stdout
    assert "taken back by entry 5" in told
    assert "takes back entry 1" in told


def test_the_json_of_an_answer_keeps_its_shape(here):
    found = asked("staging database port", "-n", "2")
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


def test_an_explanation_tells_the_parts_and_the_verdict(here):
    told = run("recall", "which file has the function read_header", "--explain").stdout
    assert "words +" in told
    assert "answers entry 7" in told
    assert told.splitlines()[-1].endswith(", enough to come back into a prompt by itself: that takes 0.40.")
    told = run("recall", "zyzzyva", "--explain").stdout
    assert told.splitlines()[-1].endswith(", not enough to come back into a prompt by itself: that takes 0.40.")


def test_nothing_found_is_no_error(here, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__USE", "none")
    assert run("recall", "zyzzyva").stdout.startswith("Nothing like it was said.")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_each_hit_takes_two_lines_whatever_the_width_and_its_pointer_stays_whole(here, monkeypatch, width):
    monkeypatch.setattr(out, "width", width)
    *hits, _ = run("recall", "staging database egret heron", "-n", "4").stdout.splitlines()
    assert len(hits) % 2 == 0
    assert all(f"recto://{KEY}/" in line for line in hits[::2])
    assert all(len(line) <= width for line in hits[1::2])


def test_found_text_cannot_act_on_a_terminal(here):
    told = run("recall", "octarine colour evil red", "--explain").stdout
    assert "octarine" in told
    assert "[link=x]" in told
    assert not {"\x1b", "\x9b", "\u202e"} & set(told)


def test_other_sessions_are_searched_where_asked_and_named_where_they_are_not_indexed(here):
    before = asked("how many steps has the lighthouse", "--scope", "agent")
    assert all(hit["session"] == KEY for hit in before["hits"])
    assert before["notes"] == ["not all of 1 other session is indexed; 'recto index' takes it in"]
    assert run("index").stdout == "13 entries of 2 sessions in the index\n"
    after = asked("how many steps has the lighthouse", "--scope", "agent")
    assert after["hits"][0]["pointer"] == "recto://agent:me:other/1"
    assert after["notes"] == []
    alone = asked("how many steps has the lighthouse")
    assert all(hit["session"] == KEY for hit in alone["hits"])


def test_an_imported_session_is_found_at_once(here):
    (here / "third.json").write_text(json.dumps([{"role": "user", "content": "The viaduct has 31 arches."}]))
    assert "1" in run("import", "third.json", "--session", "agent:me:third").stdout
    found = asked("how many arches has the viaduct", "--scope", "agent")
    assert found["hits"][0]["pointer"] == "recto://agent:me:third/1"


def test_an_embedder_that_does_not_answer_leaves_words_and_says_so(here, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__USE", "endpoint")
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("RECTO_RECALL__EMBEDDER__MODEL", "none")
    found = asked("read_header")
    assert found["hits"][0]["seq"] == 8
    assert found["without_vectors"] == 11
    assert "connection failed" in found["notes"][0]
    told = run("recall", "read_header").stdout
    assert "11 entries found by words alone so far: 'recto index' finishes it" in told
    done = run("index", code=1)
    assert "13 entries without vectors, found by words alone" in done.stdout
    assert "connection failed" in done.stderr
    assert "✗ embedder" in run("doctor", code=1).stdout


def test_a_pointer_is_read_whole_with_its_neighbours(here):
    assert "read_header" in run("read", f"recto://{KEY}/8").stdout
    rows = [json.loads(line) for line in run("read", f"recto://{KEY}/8", "--around", "1", "--json").stdout.splitlines()]
    assert [row["seq"] for row in rows] == [7, 8, 9]
    assert json.loads(rows[1]["content"]) == MESSAGES[7]
    assert "\x1b" not in run("read", f"recto://{KEY}/9").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
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
def test_a_mistake_is_told_in_words_with_an_exit_code(here, arguments, code, said):
    assert said in " ".join(run(*arguments, code=code).stderr.split())


def test_recall_that_is_switched_off_says_which_setting(here, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__ENABLED", "false")
    assert "'recall.enabled'" in run("recall", "x", code=2).stderr


def test_with_a_tenant_only_its_own_sessions_are_there(here, monkeypatch):
    code = (
        "import recto\n"
        f"with recto.open('t.db', session='{KEY}', tenant='acme', model='gpt-4o') as session:\n"
        "    session.append({'role': 'user', 'content': 'The password of acme is octarine.'})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    stored = f"recto://tenant:acme/{KEY}/1"
    monkeypatch.setenv("RECTO_TENANT", "acme")
    found = json.loads(run("--store", "t.db", "recall", "octarine", "--json").stdout)
    assert [hit["pointer"] for hit in found["hits"]] == [stored]
    assert "octarine" in run("--store", "t.db", "read", stored).stdout
    monkeypatch.setenv("RECTO_TENANT", "other")
    assert "no session" in run("--store", "t.db", "recall", "octarine", code=2).stderr
    assert "octarine" not in run("--store", "t.db", "read", stored, code=3).stderr
    assert run("--store", "t.db", "index").stdout == "0 entries of 0 sessions in the index\n"
    monkeypatch.delenv("RECTO_TENANT")
    named = run("--store", "t.db", "recall", "octarine", "--session", f"tenant:acme/{KEY}", "--json").stdout
    assert json.loads(named)["hits"]


def test_the_index_is_built_once_and_anew_where_that_is_asked_for(here):
    assert run("index", "--session", KEY).stdout == "11 entries of 1 session in the index\n"
    index = here / ".recto" / "transcript.db-recall"
    before = index.stat().st_mtime_ns
    run("index", "--session", KEY)
    assert index.stat().st_mtime_ns == before
    run("index", "--session", KEY, "--rebuild")
    assert asked("read_header")["hits"][0]["seq"] == 8


def test_the_doctor_finds_what_is_wrong_and_repairs_it(here):
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
    assert asked("read_header")["hits"][0]["seq"] == 8
    run("verify")


def test_a_damaged_index_does_not_keep_a_question_from_its_answer(here):
    run("index")
    (here / ".recto" / "transcript.db-recall").write_bytes(b"not an index at all")
    assert asked("read_header")["hits"][0]["seq"] == 8


def test_a_finding_stays_one_line_in_a_pipe(here, monkeypatch):
    monkeypatch.setattr(out, "width", 40)
    assert all(line[0] in "✓·✗" for line in run("doctor").stdout.splitlines())


def test_the_demo_shows_what_left_coming_back_with_its_correction(here):
    told = run("demo", "--exchanges", "10").stdout
    assert "entries 4 and 6 left the prompt long ago" in told
    assert "superseded by recto://agent:demo:chat/6" in told
    assert "> No, that was wrong: Marlow & Sons want their invoices on the 5th" in told


def test_commands_that_search_nothing_do_not_load_what_searching_needs():
    code = "import sys, recto.cli.main; sys.exit('numpy' in sys.modules or 'onnxruntime' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def worked_home(here) -> Path:
    (here / "work.json").write_text(json.dumps(list(messages("openai.chat"))))
    run("import", "work.json", "--session", "agent:me:work")
    return here


def done(*arguments: str) -> str:
    return run("recall", "--session", "agent:me:work", *arguments).stdout


def test_what_was_done_with_a_file_is_printed_newest_first_with_why(worked_home):
    first, *_ = done("--file", "parser.py").splitlines()
    assert first.startswith("edit (version 1)")
    assert "recto://agent:me:work/6" in first
    assert first.endswith("ok  /repo/src/parser.py")
    assert "why: The default port is missing." in done("--file", "src/parser.py")


def test_a_command_is_printed_with_its_outcomes_and_what_made_it_pass(worked_home):
    told = done("--command", "pytest tests")
    assert "failed (exit 1)" in told
    assert "passed after 2 failures; changed in between:" in told
    assert "create  /repo/src/defaults.py  recto://agent:me:work/10" in told


def test_an_error_is_printed_with_its_end(worked_home):
    told = done("--error", "KeyError: 'port'")
    assert told.startswith("over; it came 2 times")
    assert "ended by" in told
    assert done("--error", "ZeroDivisionError").strip() == "never reported"


def test_what_was_done_is_one_json_object(worked_home):
    told = json.loads(done("--command", "pytest tests", "--json", "-n", "1"))
    assert told["runs"][0]["step"]["state"] == "ok"
    assert told["next"] == told["runs"][0]["step"]["seq"]
    older = json.loads(done("--command", "pytest tests", "--json", "--before", str(told["next"])))
    assert [each["step"]["exit_code"] for each in older["runs"]] == [1, 1]
    assert json.loads(done("--number", "passed in", "--json"))["numbers"][0]["number"] == "3 passed"


@pytest.mark.parametrize(
    "arguments",
    [(), ("question", "--file", "a.py"), ("--file", "a.py", "--error", "x"), ("--file", "a.py", "--scope", "agent")],
)
def test_one_question_at_a_time(here, arguments):
    assert "Usage" in run("recall", *arguments, code=2).stderr


def test_what_was_done_needs_no_index(worked_home, monkeypatch):
    monkeypatch.setenv("RECTO_RECALL__ENABLED", "false")
    assert "version 1" in done("--file", "parser.py")


def test_lines_are_searched_with_context_and_regular_expressions(worked_home):
    told = run("grep", "keyerror", "--session", "agent:me:work", "-C", "1").stdout.splitlines()
    assert told[0].startswith("recto://agent:me:work/9  tool")
    assert [line.strip() for line in told[1:4]] == ["1- Exit code 1", "2: E   KeyError: 'port'", "3- 1 failed in 0.52s"]
    assert "3 passed in 0.31s" in run("grep", "-E", r"^\d passed", "--session", "agent:me:work").stdout
    page = json.loads(run("grep", "KeyError", "--session", "agent:me:work", "-n", "1", "--json").stdout)
    assert page["next"] == 8
    assert "No line matches" in run("grep", "nowhere").stdout
    assert "without its ')'" in run("grep", "-E", "(a", code=3).stderr
