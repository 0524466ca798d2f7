"""The work log: files with versions, commands with outcomes, errors with their resolution, and numbers."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from tests.context.worked_sessions import FAILED, FORMATS, STEPS, worked

import recto
from recto.context.work import WorkLog
from recto.engine import work
from recto.errors import InputError
from recto.formats.session_files import read_file

EDITED = STEPS[2][0]


@pytest.fixture(params=FORMATS)
def session(request) -> recto.Session:
    with worked(request.param) as opened:
        yield opened


def test_a_file_is_found_with_every_read_and_edit_and_its_reason_newest_first(session):
    found = session.work.file("src/parser.py")
    assert [(event.change, event.version) for event in found.events] == [("edit", 1), ("read", 0)]
    edit, shown = (event.step for event in found.events)
    assert EDITED in edit.why
    assert STEPS[0][0] in shown.why
    assert edit.state == shown.state == "ok"
    assert next(iter(session.read(edit.seq, edit.seq))).role == "assistant"
    assert edit.pointer.endswith(f"/{edit.seq}")
    assert edit.ts > 0
    assert found.paths == ("/repo/src/parser.py",)


def test_creation_and_deletion_of_files_are_recognised(session):
    assert [event.change for event in session.work.file("defaults.py").events] == ["create"]
    assert [event.change for event in session.work.file("/repo/src/old_parser.py").events] == ["delete"]


def test_a_command_is_found_with_its_runs_outcomes_and_the_changes_that_fixed_it(session):
    found = session.work.command("pytest tests")
    assert [(run.step.state, run.failures) for run in found.runs] == [("ok", 2), ("failed", 0), ("failed", 0)]
    passed, failed, _ = found.runs
    assert failed.step.exit_code == 1
    assert "KeyError" in failed.step.line
    assert [event.path for event in passed.changed] == ["/repo/src/parser.py", "/repo/src/defaults.py"]
    assert [step.call for step in passed.ran if "pip" in step.call] == ["pip install pytest-env"]
    assert "3 passed" in passed.numbers
    assert "0.31s" in passed.numbers


def test_an_error_is_found_with_its_first_occurrence_later_steps_and_resolution(session):
    found = session.work.error("KeyError: 'port'")
    assert (found.state, found.count) == ("over", 2)
    assert found.first.step.why.endswith(STEPS[1][0])
    assert found.ended_by.call.endswith("pytest tests -q")
    assert any(EDITED in step.why for step in found.followed)
    assert found.followed[-1] == found.ended_by
    assert [event.seq for event in found.events] == sorted((event.seq for event in found.events), reverse=True)


def test_a_read_that_its_client_marks_as_an_error_has_failed():
    path = {"file_path": "/repo/src/none.py"}
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": path}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": "The path is a folder."}
    for mark, state, line in ((True, "failed", "The path is a folder."), (False, "ok", "")):
        with recto.open("memory:", model="claude-sonnet-4-5") as session:
            session.append({"role": "user", "content": "Read it."})
            session.append({"role": "assistant", "content": [call]})
            session.append({"role": "user", "content": [{**answer, "is_error": mark}]})
            [event] = session.work.file("none.py").events
            assert (event.step.state, event.step.line) == (state, line)


def test_an_output_in_json_as_codex_wrote_it_has_its_exit_code_and_its_lines():
    printed = {"output": "Traceback (most recent call last):\nKeyError: 'port'\n", "metadata": {"exit_code": 2}}
    command = json.dumps({"command": ["bash", "-lc", "make build"]})
    with recto.open("memory:", model="gpt-5") as session:
        session.append({"role": "user", "content": "Build it."})
        session.append({"type": "function_call", "call_id": "c1", "name": "shell", "arguments": command})
        session.append({"type": "function_call_output", "call_id": "c1", "output": json.dumps(printed)})
        [run] = session.work.command("make build").runs
        assert (run.step.state, run.step.exit_code, run.step.line) == ("failed", 2, "KeyError: 'port'")
        assert session.work.error("KeyError: 'port'").state == "open"


def test_numbers_with_units_are_found_by_the_words_of_their_line(session):
    found = session.work.number("passed in")
    assert [item.number for item in found.numbers] == ["3 passed"]


def test_an_unresolved_error_is_open_and_an_unknown_one_is_not_found():
    with worked("openai.chat", STEPS[:4]) as session:
        found = session.work.error("KeyError")
        assert (found.state, found.ended_by) == ("open", None)
        assert session.work.error("ZeroDivisionError").state == "not_found"


def test_an_error_text_in_a_file_is_not_an_error():
    steps = [("I read.", "Bash", {"command": "cat src/errors.py"}, "raise KeyError('port')")]
    with worked("openai.chat", steps) as session:
        assert session.work.error("KeyError").count == 0


def test_an_error_replaced_by_another_is_over_with_that_run():
    other = "Exit code 1\nE   ValueError: no host"
    with worked("openai.chat", (*STEPS[:2], STEPS[2], ("Again.", "Bash", STEPS[1][2], other))) as session:
        found = session.work.error("KeyError")
        assert (found.state, found.ended_by.state) == ("over", "failed")
        assert session.work.error("ValueError").state == "open"


def test_an_error_pasted_by_the_user_counts_and_stays_open():
    with worked("openai.chat", ()) as session:
        session.append({"role": "user", "content": "It still fails:\nKeyError: 'port'"})
        found = session.work.error("KeyError")
        assert (found.state, found.count, found.first.step) == ("open", 1, None)


def test_results_of_parallel_calls_in_one_message_belong_to_their_own_calls():
    calls = [
        {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}
        for id, command in (("a", "pytest tests/one"), ("b", "pytest tests/two"))
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "b", "content": "2 passed in 1s"},
        {"type": "tool_result", "tool_use_id": "a", "content": FAILED},
    ]
    with recto.open("memory:", model="claude-sonnet-4-5", recall={"enabled": False}) as session:
        session.append({"role": "user", "content": "Test it."})
        session.append({"role": "assistant", "content": calls})
        session.append({"role": "user", "content": results})
        states = {run.step.call: run.step.state for run in session.work.command("pytest").runs}
        assert states == {"pytest tests/one": "failed", "pytest tests/two": "ok"}
        assert session.work.error("KeyError").first.step.call == "pytest tests/one"
        assert session.work.command("pytest tests/one").runs[0].step.why == "Test it."


@pytest.mark.parametrize(
    ("arguments", "change"),
    [
        ({"command": "git checkout -- src/parser.py"}, "edit"),
        ({"command": "git rm src/parser.py"}, "delete"),
        ({"command": "cp src/parser.py src/copy.py"}, "read"),
        ({"command": "mv src/parser.py src/moved.py"}, "delete"),
        ({"command": "echo x >> src/parser.py"}, "edit"),
        (
            {"command": "apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: src/parser.py\n*** End Patch\nEOF"},
            "delete",
        ),
        ({"command": "python - <<'EOF'\ntext = 'x'\nopen('src/parser.py', 'w').write(text)\nEOF"}, "edit"),
        ({"command": """python -c "Path('src/parser.py').write_text('x')" """}, "edit"),
        ({"command": ["bash", "-lc", "sed -i s/a/b/ src/parser.py"]}, "edit"),
    ],
)
def test_the_effect_of_a_shell_command_on_a_file_is_recognised(arguments, change):
    with worked("openai.chat", [("So.", "shell", arguments, "ok")]) as session:
        assert [event.change for event in session.work.file("src/parser.py").events] == [change]


def test_writing_a_script_to_a_file_does_not_execute_it():
    command = "cat > fix_python.py <<'EOF'\nopen('src/parser.py', 'w').write('x')\nEOF\npython --version"
    with worked("openai.chat", [("So.", "shell", {"command": command}, "ok")]) as session:
        assert session.work.file("src/parser.py").events == ()
        assert [event.change for event in session.work.file("fix_python.py").events] == ["create"]


def test_a_run_after_a_passing_run_has_no_failures_before_it():
    with worked("openai.chat", (*STEPS, STEPS[6])) as session:
        assert [run.failures for run in session.work.command("pytest tests").runs] == [0, 2, 0, 0]


def test_a_failed_edit_is_listed_without_a_new_version():
    steps = (
        STEPS[0],
        (*STEPS[2][:3], "<tool_use_error>String to replace not found in file.</tool_use_error>"),
        STEPS[2],
    )
    with worked("openai.chat", steps) as session:
        events = session.work.file("parser.py").events
        assert [(event.change, event.step.state, event.version) for event in events] == [
            ("edit", "ok", 1),
            ("edit", "failed", 0),
            ("read", "ok", 0),
        ]


def test_a_command_is_not_found_inside_other_words_or_written_files():
    steps = [
        ("Rust.", "Bash", {"command": "cargo test"}, "ok"),
        ("Notes.", "Bash", {"command": "cat > notes.md <<'EOF'\nrun go test\nEOF\ncat notes.md"}, "ok"),
        ("Go.", "Bash", {"command": "go test ./..."}, "ok"),
    ]
    with worked("openai.chat", steps) as session:
        assert [run.step.call for run in session.work.command("go test").runs] == ["go test ./..."]
        assert len(session.work.command("test go").runs) == 1, "the words in another order"


def test_results_contain_no_secrets_or_hidden_characters():
    secret = "sk-ant-api03-" + "A1b2C3d4" * 10
    steps = [("Use \u202e it.", "Bash", {"command": f"curl -H 'x-api-key: {secret}' \x1b[2J example.com"}, FAILED)]
    with worked("openai.chat", steps) as session:
        found = repr((session.work.command("curl"), session.work.error("KeyError")))
        assert secret not in found
        assert "\x1b" not in found
        assert "\u202e" not in found


def test_pages_contain_every_run_once(monkeypatch):
    with worked("openai.chat", STEPS * 5) as session:
        whole = [run.step.seq for run in session.work.command("pytest", limit=100).runs]
        assert len(whole) == 20
        pages, before = [], None
        while True:
            page = session.work.command("pytest", limit=4, before=before)
            pages += [run.step.seq for run in page.runs]
            before = page.next
            if before is None:
                break
        assert pages == whole


def test_a_query_reads_a_bounded_number_of_entries_and_returns_where_to_continue(monkeypatch):
    monkeypatch.setattr(work, "MAX_ENTRIES", 10)
    with worked("openai.chat", STEPS) as session:
        newest = session.work.file("parser.py")
        assert newest.events == ()
        assert newest.next == newest.searched_from == session.head.seq - 9
        assert session.work.file("parser.py", before=newest.next).versions == 1
    monkeypatch.setattr(work, "MAX_ENTRIES", 10_000)
    monkeypatch.setattr(work, "MAX_BYTES", 500)
    with worked("openai.chat", STEPS) as session:
        assert session.work.file("parser.py").searched_from > 1


@pytest.mark.parametrize("nothing", ["", "   ", "\u00e9\u00e9"])
def test_a_query_without_words_finds_nothing(session, nothing):
    assert session.work.command(nothing).runs == ()
    assert session.work.error(nothing).count == 0
    assert session.work.number(nothing).numbers == ()


def test_an_invalid_path_is_refused():
    with worked("openai.chat") as session, pytest.raises(InputError, match="not a path"):
        session.work.file("a\nb")


def test_malformed_content_is_skipped():
    with worked("openai.chat") as session:
        entries = [replace(entry, content=entry.content[:-5]) for entry in session.read()]
        assert WorkLog(entries).command("pytest").runs == ()


def agent_sessions(data, every):
    files = sorted((data / "agent_sessions").rglob("*.jsonl"))[::every]
    if not files:
        pytest.skip(f"no agent sessions in {data}")
    return files


def test_every_edit_of_a_file_in_real_sessions_is_found(data, scale):
    checked = 0
    for file in agent_sessions(data, scale(6, release=1)):
        with file.open("rb") as stream:
            raws = [
                entry.content
                for entry in read_file(iter(lambda: stream.read(65_536), b""), file.name)
                if entry.kind == "message"
            ]
        edits: Counter[str] = Counter()
        for raw in raws:
            content = json.loads(raw)["content"]
            blocks = content if isinstance(content, list) else []
            calls = [block for block in blocks if block["type"] == "tool_use" and block["name"] in ("Edit", "Write")]
            edits.update(call["input"]["file_path"] for call in calls if "file_path" in call["input"])
        with recto.open("memory:", model="claude-sonnet-4-5", recall={"enabled": False}) as session:
            session.append_all(raws, wire="anthropic.messages")
            for path, times in edits.most_common(3):
                events = session.work.file(path, limit=1_000).events
                by_tool = [event for event in events if event.step.tool in ("Edit", "Write") and event.path == path]
                assert len(by_tool) == times
                assert all(event.change in ("edit", "create") for event in by_tool)
                assert any(event.step.why for event in by_tool)
                checked += 1
    assert checked > 5


def test_every_command_written_as_text_is_found_with_its_exit_code(data, scale):
    file = data / "swebench_trajectories" / "trajectories.jsonl.gz"
    if not file.is_file():
        pytest.skip(f"no trajectories in {data}")
    checked = 0
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in islice(lines, 0, None, scale(12, release=1)):
            messages = [{"role": item["role"], "content": item["content"]} for item in json.loads(line)["messages"]]
            codes = {
                seq: int(code[1]) if (code := re.match(r"\s*<returncode>(-?\d+)", after["content"])) else None
                for seq, (before, after) in enumerate(pairwise(messages), 1)
                if before["role"] == "assistant" and re.search(r"```bash\n(?:cd \S+ && )?python", before["content"])
            }
            with recto.open("memory:", model="gpt-4o", recall={"enabled": False}) as session:
                session.append_all(messages, wire="openai.chat")
                runs = session.work.command("python", limit=1_000).runs
            found = {run.step.seq: run.step.exit_code for run in runs}
            assert {seq: found[seq] for seq in codes if codes[seq] is not None} == {
                seq: code for seq, code in codes.items() if code is not None
            }
            assert all(run.step.state == "failed" for run in runs if run.step.exit_code)
            assert all(run.step.why for run in runs)
            checked += len(runs)
    assert checked > 20
