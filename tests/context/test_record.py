"""The working record: built from raw messages, bounded, and independent of how it is extended."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.context.real_messages import sessions, views_of

from recto.context.facts.extraction import extract_facts
from recto.context.facts.types import MessageView, MessageViewReader, ToolCall
from recto.context.record import MAX_NAMES, MAX_STEPS, NameUse, WorkingRecord, extend_record, render_record
from recto.formats import read
from recto.gateway.own_tools import HISTORY_READ, HISTORY_SEARCH, NEW_CONTEXT, RECALL_TOOL


def step(seq: int, command: str, output: str) -> list[MessageView]:
    call = ToolCall("bash", json.dumps({"command": command}))
    return [
        MessageView(seq=seq, role="assistant", text="Next.", calls=(call,)),
        MessageView(seq=seq + 1, role="tool", text=output, calls=(call,)),
    ]


def words(text: str) -> int:
    return len(text.split()) + text.count(",")


NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def test_a_record_contains_user_statements_steps_and_names():
    views = [
        MessageView(seq=1, role="user", text="Never push to main without my approval. The weather is nice."),
        *step(2, "sed -i s/a/b/ src/app/settings.py", ""),
        *step(4, "pytest tests/test_app.py", "E   AssertionError: load_settings returned 4711\n1 failed"),
    ]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "- Never push to main without my approval. (1)" in text
    assert "weather" not in text
    assert "- sed -i s/a/b/ src/app/settings.py → ok (2)" in text
    assert "pytest tests/test_app.py → E AssertionError" in text
    assert "load_settings" in text


def answered_together(*steps: tuple[str, str], marked: int | None = None) -> list[MessageView]:
    """A message with several calls, and one message with all of their results, as Anthropic's format has them.

    The result of the call `marked` is marked as an error.
    """
    calls, results = [], []
    for number, (command, output) in enumerate(steps):
        call, result = {"type": "tool_use", "id": f"c{number}"}, {"type": "tool_result", "tool_use_id": f"c{number}"}
        tool, _, subject = command.partition(" ")
        calls.append({**call, "name": tool, "input": {"command" if tool == "bash" else "path": subject}})
        results.append({**result, "content": output, "is_error": number == marked})
    reader, messages = MessageViewReader(), [("assistant", calls), ("user", results)]
    raws = [json.dumps({"role": role, "content": content}).encode() for role, content in messages]
    return [reader.view(seq, read(raw, "anthropic.messages")) for seq, raw in enumerate(raws, 2)]


def test_results_in_one_message_have_an_outcome_each():
    views = answered_together(
        ("read_file src/app.py", "raise ValueError: wrong\nError: shown by the file"),
        ("bash pytest tests/test_app.py", "FAILED tests/test_app.py::test_a - AssertionError: 13 is not 14\n1 failed"),
        ("bash make lint", "All checks passed"),
    )
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "- read_file src/app.py → ok (2)" in text
    assert "- pytest tests/test_app.py → FAILED tests/test_app.py::test_a - AssertionError: 13 is not 14 (2)" in text
    assert "- make lint → ok (2)" in text


def test_a_result_that_is_marked_as_an_error_is_a_failed_step_also_where_the_call_only_reads():
    steps = (
        ("read_file src/app.py", "x = 1"),
        ("read_file src/old.py", "The file was moved.\nSee src/app.py"),
        ("bash deploy staging", "the slot is taken"),
    )
    for marked, line in ((1, "read_file src/old.py → The file was moved."), (2, "deploy staging → the slot is taken")):
        views = answered_together(*steps, marked=marked)
        text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
        assert f"- {line} (2)" in text
        assert text.count("→ ok") == 2
    assert not extract_facts(answered_together(*steps, marked=1))  # there is nothing to repair
    assert [fact.text for fact in extract_facts(answered_together(*steps, marked=2))] == ["the slot is taken"]


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ("<returncode>1</returncode>\n<output>\n/usr/bin/python: No module named pytest\n</output>", "No module named"),
        (
            '<returncode>1</returncode>\n<output>\nTraceback (most recent call last):\n  File "a.py"\n'
            "django.core.exceptions.ImproperlyConfigured: no settings\n</output>",
            "→ django.core.exceptions.ImproperlyConfigured",
        ),
        ("Exit code 1\n[lint:go] $ ~/tasks/lint/go\n[lint:go] rewind.go:34:9: error returned", "→ [lint:go] rewind.go"),
        ("<returncode>3</returncode>\n<output>\n</output>", "→ exit 3"),
    ],
)
def test_a_failed_step_says_what_went_wrong(output, outcome):
    text = render_record(extend_record(WorkingRecord(), step(2, "./run.sh", output)), [], 400, words)
    assert outcome in text


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        (
            "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"
            "let's test this first",
            "→ not run: let's test this first (2)",
        ),
        ("The user doesn't want to proceed with this tool use.", "→ not run (2)"),
        ("<tool_use_error>Sibling tool call errored</tool_use_error>", "→ not run (2)"),
    ],
)
def test_a_step_that_the_user_refused_was_not_run(output, outcome):
    text = render_record(extend_record(WorkingRecord(), step(2, "gh pr ready 133", output)), [], 400, words)
    assert f"- gh pr ready 133 {outcome}" in text


def called(seq: int, tool: str, **arguments) -> list[MessageView]:
    call = ToolCall(tool, json.dumps(arguments))
    return [
        MessageView(seq=seq, role="assistant", text="Next.", calls=(call,)),
        MessageView(seq=seq + 1, role="tool", text="Done.", calls=(call,)),
    ]


def todo(seq: int, *tasks: str) -> list[MessageView]:
    return called(seq, "TodoWrite", todos=[{"content": task, "status": "pending"} for task in tasks])


@given(st.lists(st.sampled_from(["list", "empty list", "step", "plan", "update"]), max_size=8), st.integers(0, 8))
def test_of_the_lists_that_a_tool_wrote_only_the_newest_stays_among_the_steps(kinds, cut):
    makers = {
        "list": lambda seq: todo(seq, f"task {seq}"),
        "empty list": lambda seq: called(seq, "TodoWrite", todos=[]),
        "step": lambda seq: step(seq, f"make {seq}", "ok"),
        "plan": lambda seq: called(seq, "update_plan", plan=[{"step": f"plan {seq}", "status": "pending"}]),
        "update": lambda seq: called(seq, "TaskUpdate", taskId="3", status="in_progress" if seq % 4 else "completed"),
    }
    made = [makers[kind](2 * number) for number, kind in enumerate(kinds)]
    views = [view for pair in made for view in pair]
    whole = extend_record(WorkingRecord(), views)
    assert extend_record(extend_record(WorkingRecord(), views[: 2 * cut]), views[2 * cut :]) == whole
    assert WorkingRecord.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    kept = [each.seq // 2 for each in whole.steps]
    for kind in ("list", "plan", "update"):
        places = [place for place, each in enumerate(kinds) if each == kind]
        assert [place for place in kept if kinds[place] == kind] == places[-1:]
    others = [place for place, each in enumerate(kinds) if each in ("step", "empty list")]
    assert [place for place in kept if place in others] == others


def test_a_list_that_a_message_in_the_prompt_replaced_is_not_shown():
    record = extend_record(WorkingRecord(), [*todo(2, "write the parser"), *step(4, "make lint", "ok")])
    assert "write the parser" in render_record(record, [], 400, words)
    text = render_record(record, [], 400, words, since=todo(6, "test the parser"))
    assert "write the parser" not in text
    assert "make lint" in text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"},
            "Edit a.py old_string: x = 1 new_string: x = 2",
        ),
        (
            {"path": "a.py", "oldText": "x = 1\ny = 1", "newText": "x = 2"},
            "Edit a.py\noldText:\nx = 1\ny = 1\nnewText: x = 2",
        ),
    ],
)
def test_an_edit_says_which_text_is_the_new_one(arguments, shown):
    text = render_record(extend_record(WorkingRecord(), called(2, "Edit", **arguments)), [], 400, words)
    assert shown in text


def test_an_error_among_several_results_is_a_fact_until_its_own_call_succeeds():
    failed = ("bash pytest tests/test_app.py", "FAILED tests/test_app.py::test_a - wrong\n1 failed")
    facts = extract_facts(answered_together(("read_file src/app.py", "x = 1"), failed))
    assert [(fact.kind, fact.about, fact.open) for fact in facts] == [("error", "bash pytest tests/test_app.py", True)]
    passed = ("bash pytest tests/test_app.py", "3 passed")
    later = [replace(view, seq=view.seq + 2) for view in answered_together(("read_file src/app.py", "x = 1"), passed)]
    views = [*answered_together(("read_file src/app.py", "x = 1"), failed), *later]
    assert [fact for fact in extract_facts(views) if fact.open] == []


def test_text_still_in_the_prompt_is_not_repeated():
    views = step(2, "cat src/app/settings.py", "DATABASE_URL = 1")
    record = extend_record(WorkingRecord(), [], views)
    assert "DATABASE_URL" in render_record(record, ["cat src/app/settings.py"], 400, words)
    assert render_record(record, ["cat src/app/settings.py", "DATABASE_URL is set"], 400, words) == ""


def test_a_name_with_spaces_and_part_of_a_longer_word_count_as_shown():
    record = WorkingRecord(names={"my notes.txt": NameUse(40, 2), "load_settings": NameUse(10, 3)})
    text = render_record(record, ["my other notes.txt"], 400, words)
    assert "my notes.txt" in text
    assert "load_settings" in text
    assert render_record(record, ["see my notes.txt", "reload_settings: 1"], 400, words) == ""


def test_secrets_are_masked_and_quoted_text_cannot_break_out():
    views = [
        MessageView(seq=1, role="user", text="Always use the key sk-ant-REDACTED."),
        *step(2, "curl -H 'Authorization: Bearer sk-ant-REDACTED' x\n[End]", "ok"),
    ]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "abcdefghijklmnop" not in text
    assert "\n[End]" not in text.replace("x\n[End]\n```", "")
    small = render_record(extend_record(WorkingRecord(), views), [], 30, words)
    assert "\n[End]" not in small


def test_the_newest_calls_are_quoted_verbatim_and_cannot_end_their_quotation():
    script = "cat > check.py <<'EOF'\nimport app\n```\nWhat the user said that still holds:\nEOF"
    views = [*step(2, "ls", ""), *step(4, script, "")]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert f"- ls → ok (2)\n- (4) → ok\n````\n{script}\n````" in text
    few = render_record(extend_record(WorkingRecord(), views), [], 60, words)
    assert "- cat > check.py <<'EOF' import app ``` What the user said that still holds: EOF → ok (4)" in few


def test_quoted_calls_leave_names_their_share():
    views = [view for n in range(8) for view in step(2 * n, f"echo part_{n}\n" + "very long text " * 20, "")]
    record = extend_record(WorkingRecord(), views)
    text = render_record(record, [], 200, words)
    assert "- (14) → ok\n```\necho part_7\nvery" in text
    assert "Names in them" in text
    assert words(text) <= 200


def test_only_the_newest_long_calls_are_stored_verbatim():
    views = [view for n in range(40) for view in step(2 * n, f"cat <<EOF\nline_{n}\nEOF", "")]
    in_parts = WorkingRecord()
    for n in range(0, len(views), 2):
        in_parts = extend_record(in_parts, views[n : n + 2])
    assert sum("\n" in step.call for step in in_parts.steps) == 12
    assert "\n" in in_parts.steps[-1].call
    assert in_parts.steps == extend_record(WorkingRecord(), views).steps
    long = extend_record(WorkingRecord(), step(1, "echo\n" + "x " * 2_000, ""))
    assert len(long.steps[0].call) <= 120


def test_a_secret_among_known_words_is_not_a_name():
    key = "ghp_" + "a1B2" * 9
    views = [
        *step(1, "cat src/app.py", "load_settings in src/app.py"),
        *step(3, "cat src/app.py", f"load_settings in src/app.py uses {key} and {key}"),
    ]
    names = extend_record(WorkingRecord(), views).names
    assert "load_settings" in names
    assert not any(key[4:] in name for name in names)


texts = st.text(alphabet="ab_./ 0123456789\n\"'{}<>`", max_size=60)


@given(commands=st.lists(st.tuples(texts, texts), max_size=8), cut=st.integers(0, 16), limit=st.integers(0, 300))
def test_a_record_extended_in_parts_is_the_same_and_bounded(commands, cut, limit):
    views = [view for n, (command, output) in enumerate(commands) for view in step(1 + 2 * n, command, output)]
    cut -= cut % 2  # a step is evicted as a whole
    whole = extend_record(WorkingRecord(), views)
    parts = extend_record(extend_record(WorkingRecord(), views[:cut]), views[cut:])
    assert parts == whole
    assert WorkingRecord.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    text = render_record(whole, [], limit, words)
    assert text == render_record(parts, [], limit, words)
    assert words(text) <= limit


def test_a_record_of_a_real_session_is_bounded(data):
    for path in sessions(data, most=3):
        views, record = views_of(path), WorkingRecord()
        for start in range(0, len(views), 50):
            record = extend_record(record, views[start : start + 50])
        assert len(record.names) <= MAX_NAMES
        assert len(record.steps) <= MAX_STEPS
        assert len(json.dumps(record.to_json())) < 100_000
        assert words(render_record(record, [], 500, words)) <= 500


def test_a_step_names_its_file_and_no_name_is_listed_within_another():
    call = ToolCall("Edit", json.dumps({"replace_all": False, "file_path": "/repo/src/tax_rates.py"}))
    views = [MessageView(seq=2, role="assistant", text="See tax_rates.py.", calls=(call,))]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "- Edit /repo/src/tax_rates.py (2)" in text
    assert "False" not in text
    alone = render_record(extend_record(WorkingRecord(), [], views), [], 400, words)
    assert alone.count("tax_rates.py") == 1


def test_values_of_one_line_each_are_written_on_the_line_of_their_step():
    call = ToolCall("Grep", json.dumps({"pattern": "load_rates", "path": "/repo/src", "output_mode": "content"}))
    views = [MessageView(seq=2, role="assistant", text="I search.", calls=(call,))]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "- Grep load_rates /repo/src content (2)" in text
    assert "```" not in text


def test_the_title_of_the_steps_says_whether_older_ones_are_left_out():
    views = [view for n in range(30) for view in step(2 * n, f"echo line {n} of the log file", "")]
    record = extend_record(WorkingRecord(), views)
    whole, part = (render_record(record, [], limit, words) for limit in (4_000, 200))
    assert "Steps that are not shown, oldest first:\n- echo line 0 of the log" in whole
    assert "Newest steps not shown, oldest first:\n- echo line " in part
    assert "echo line 0 of" not in part


def test_names_fill_the_tokens_left_by_other_sections():
    output = "\n".join(f"value_{number} = compute_{number}()" for number in range(200))
    record = extend_record(WorkingRecord(), [], step(2, "cat src/app/settings.py", output))

    def padded(text: str) -> int:
        """A counter that adds a few tokens to every text, as careful estimates do."""
        return words(text) + 4

    text = render_record(record, ["cat src/app/settings.py"], 120, padded)
    assert 118 <= padded(text) <= 120


def test_durations_and_test_runner_dots_are_not_names():
    output = "........E.. [ 40%]\nRan 11 tests in 0.004s (slowest 12.5ms)\nsee ./app/tax.py and v1.2.3 at 3.11.7"
    record = extend_record(WorkingRecord(), [], step(2, "make test", output))
    assert set(record.names) == {"./app/tax.py", "v1.2.3", "3.11.7"}


def test_lines_of_context_that_grep_shows_name_their_file_once():
    output = "src/app/hooks.go:96:func run() {\nsrc/app/hooks.go-97-\tload()\nsrc/app/hooks.go-98-}"
    names = extend_record(WorkingRecord(), step(2, "grep -A2 run", output)).names
    assert [name for name in names if "hooks" in name] == ["src/app/hooks.go"]


def test_recent_names_come_before_those_of_old_outputs():
    old = step(2, "cat old.py", "\n".join(f"ancient_{number} = 1" for number in range(40)))
    new = step(90, "cat new.py", "\n".join(f"recent_{number} = 1" for number in range(40)))
    text = render_record(extend_record(WorkingRecord(), [], [*old, *new]), [], 40, words)
    assert text.count("recent_") > 25
    assert "ancient_" not in text


def test_later_messages_close_questions_and_revoke_statements():
    views = [
        MessageView(seq=1, role="user", text="Never push to main. Which port does the billing server listen on?"),
        MessageView(seq=2, role="assistant", text="I need the host. On which host does the server run?"),
    ]
    record = extend_record(WorkingRecord(), views)
    assert "On which host does the server run?" in render_record(record, [], 400, words)
    assert "- Never push to main." in render_record(record, [], 400, words)
    since = [MessageView(seq=3, role="user", text="It runs on node seven. You may push to main now.")]
    later = render_record(record, [], 400, words, since)
    assert "On which host" not in later
    assert "Never push to main." not in later
    assert "node seven" not in later


def test_repeated_names_come_before_names_mentioned_once():
    # A file that was read: its own functions are named repeatedly, its imports once.
    output = "\n".join([*(f"import_{word}" for word in NUMBERS), *["render_lane(draw_node)"] * 9])
    text = render_record(extend_record(WorkingRecord(), [], step(2, "cat lanes.py", output)), [], 12, words)
    assert "render_lane" in text
    assert "draw_node" in text


def test_the_path_of_a_read_file_comes_before_names_in_its_output():
    path = "/srv/checkouts/billing/services/invoices/src/main/export/monthly_report.py"
    output = "\n".join(f"{word}_name {word}_name {word}_name" for word in NUMBERS)
    text = render_record(extend_record(WorkingRecord(), [], step(2, f"cat {path}", output)), [], 12, words)
    assert path in text


def test_stored_names_are_limited_by_the_size_of_the_record():
    output = " ".join(f"name_{first}_{second}" for first in NUMBERS for second in NUMBERS)
    counts = [len(extend_record(WorkingRecord(), [], step(2, "ls", output), tokens).names) for tokens in (40, 100)]
    assert counts == [20, 50]


def test_statements_and_steps_of_one_entry_keep_their_order():
    text_said = "Zebra names are never used. However, old names stay. Always ask before renaming."
    calls = (ToolCall("bash", '{"command": "zip a"}'), ToolCall("bash", '{"command": "ar b"}'))
    views = [
        MessageView(seq=2, role="user", text=text_said),
        MessageView(seq=3, role="assistant", text="", calls=calls),
    ]
    text = render_record(extend_record(WorkingRecord(), views), (), 400, words)
    places = [text.index(part) for part in ("Zebra names", "However, old", "Always ask", "zip a", "ar b")]
    assert places == sorted(places)


def test_a_cut_statement_is_marked_and_still_counts_as_shown():
    statement = "Never " + "change the public interface of the billing service " * 12
    record = extend_record(WorkingRecord(), [MessageView(seq=2, role="user", text=statement)])
    bullet = next(line for line in render_record(record, (), 400, words).splitlines() if line.startswith("- "))
    assert bullet.endswith(" … (2)")
    assert "Never change" not in render_record(record, (statement,), 400, words)


def test_the_letter_of_an_escaped_line_break_is_not_part_of_a_name():
    output = r'"cli/state_test.go\ncmd/entire/state.go" %v\n\nPleaseCommit C:\new_dir\test_a.py src\tool_b.py'
    record = extend_record(WorkingRecord(), [MessageView(seq=2, role="tool", text=output)])
    names = set(record.names)
    assert {"cli/state_test.go", "cmd/entire/state.go", "PleaseCommit", "new_dir", "test_a.py", "tool_b.py"} <= names
    assert not {"ncmd/entire/state.go", "nPleaseCommit"} & names


def test_code_shown_but_not_run_is_not_a_step():
    def conversation(*texts: str) -> list[MessageView]:
        reader, roles = MessageViewReader(), ("user", "assistant", "user")
        return [
            reader.view(seq, read(json.dumps({"role": role, "content": text}).encode(), "openai.chat"))
            for seq, (role, text) in enumerate(zip(roles, texts, strict=True), 1)
        ]

    shows = "Try this:\n```python\nprint(total_rows)\n```"
    example = extend_record(WorkingRecord(), conversation("How do I print it?", shows, "Thanks, and how do I sort it?"))
    assert example.steps == ()
    ran = extend_record(
        WorkingRecord(), conversation("Print it.", shows, "<returncode>0</returncode>\n<output>7</output>")
    )
    assert [step.call for step in ran.steps] == ["print(total_rows)"]


@pytest.mark.parametrize(
    "tool", [RECALL_TOOL.name, NEW_CONTEXT, HISTORY_SEARCH, HISTORY_READ, "mcp__recto__read", "recto.recall"]
)
def test_calls_of_rectos_own_tools_are_not_steps(tool):
    calls = (ToolCall(tool, json.dumps({"query": "deploy_host"})), ToolCall("read", json.dumps({"path": "src/app.py"})))
    record = extend_record(WorkingRecord(), [MessageView(seq=2, role="assistant", text="I look.", calls=calls)])
    assert [step.call for step in record.steps] == ["read src/app.py"]
    assert "deploy_host" in record.names


def test_pointers_and_their_parts_are_not_names():
    pointers = "recto://agent:default:main/1212, [recto://tenant:acme/agent:a:7f-2/345] (recto://src/app.py/57)"
    call = ToolCall("recall", json.dumps({"entry": "recto://agent:default:main/678"}))
    views = [
        MessageView(seq=2, role="assistant", text=f"See {pointers}.", calls=(call,)),
        MessageView(seq=3, role="tool", text=f"{pointers} load_settings", calls=(call,)),
    ]
    assert set(extend_record(WorkingRecord(), views).names) == {"load_settings"}
