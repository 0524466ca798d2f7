"""The working record: from raw messages, bounded, the same however often it is extended."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.context.real_messages import sessions, told_of

from recto.context.facts.types import MessageView, MessageViewReader, ToolCall
from recto.context.record import MAX_NAMES, MAX_STEPS, NameUse, WorkingRecord, extend_record, render_record
from recto.formats import read


def step(seq: int, command: str, output: str) -> list[MessageView]:
    call = ToolCall("bash", json.dumps({"command": command}))
    return [
        MessageView(seq=seq, role="assistant", text="Next.", calls=(call,)),
        MessageView(seq=seq + 1, role="tool", text=output, calls=(call,)),
    ]


def words(text: str) -> int:
    return len(text.split()) + text.count(",")


NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def test_it_keeps_what_the_user_said_the_steps_and_the_names():
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


def test_nothing_that_is_still_shown_is_repeated():
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


def test_secrets_are_masked_and_text_cannot_break_out_of_its_line():
    views = [
        MessageView(seq=1, role="user", text="Always use the key sk-ant-REDACTED."),
        *step(2, "curl -H 'Authorization: Bearer sk-ant-REDACTED' x\n[End]", "ok"),
    ]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "abcdefghijklmnop" not in text
    assert "\n[End]" not in text


def test_a_secret_is_no_name_wherever_it_stands_among_words_that_were_seen_before():
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
def test_extended_in_parts_it_is_the_same_and_never_longer_than_allowed(commands, cut, limit):
    views = [view for n, (command, output) in enumerate(commands) for view in step(1 + 2 * n, command, output)]
    cut -= cut % 2  # a step leaves as a whole
    whole = extend_record(WorkingRecord(), views)
    parts = extend_record(extend_record(WorkingRecord(), views[:cut]), views[cut:])
    assert parts == whole
    assert WorkingRecord.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    text = render_record(whole, [], limit, words)
    assert text == render_record(parts, [], limit, words)
    assert words(text) <= limit


def test_it_is_bounded_on_real_sessions(data):
    for path in sessions(data, most=3):
        views, record = told_of(path), WorkingRecord()
        for start in range(0, len(views), 50):
            record = extend_record(record, views[start : start + 50])
        assert len(record.names) <= MAX_NAMES
        assert len(record.steps) <= MAX_STEPS
        assert len(json.dumps(record.to_json())) < 100_000
        assert words(render_record(record, [], 500, words)) <= 500


def test_a_step_names_what_it_worked_on_and_no_name_is_listed_within_another():
    call = ToolCall("Edit", json.dumps({"replace_all": False, "file_path": "/repo/src/tax_rates.py"}))
    views = [MessageView(seq=2, role="assistant", text="See tax_rates.py.", calls=(call,))]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "- Edit /repo/src/tax_rates.py (2)" in text
    assert "False" not in text
    alone = render_record(extend_record(WorkingRecord(), [], views), [], 400, words)
    assert alone.count("tax_rates.py") == 1


def test_names_fill_what_the_other_sections_leave():
    output = "\n".join(f"value_{number} = compute_{number}()" for number in range(200))
    record = extend_record(WorkingRecord(), [], step(2, "cat src/app/settings.py", output))

    def padded(text: str) -> int:
        """A counter that adds a few tokens to every text, as careful estimates do."""
        return words(text) + 4

    text = render_record(record, ["cat src/app/settings.py"], 120, padded)
    assert 118 <= padded(text) <= 120


def test_durations_and_the_dots_of_a_test_runner_are_no_names():
    output = "........E.. [ 40%]\nRan 11 tests in 0.004s (slowest 12.5ms)\nsee ./app/tax.py and v1.2.3 at 3.11.7"
    record = extend_record(WorkingRecord(), [], step(2, "make test", output))
    assert set(record.names) == {"./app/tax.py", "v1.2.3", "3.11.7"}


def test_names_that_were_used_recently_come_before_those_of_old_outputs():
    old = step(2, "cat old.py", "\n".join(f"ancient_{number} = 1" for number in range(40)))
    new = step(90, "cat new.py", "\n".join(f"recent_{number} = 1" for number in range(40)))
    text = render_record(extend_record(WorkingRecord(), [], [*old, *new]), [], 40, words)
    assert text.count("recent_") > 25
    assert "ancient_" not in text


def test_what_a_later_message_answers_is_not_open_and_what_it_takes_back_does_not_hold():
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


def test_what_an_output_repeats_comes_before_what_it_mentions_once():
    # A file that was read: its own functions are named again and again, its imports once.
    output = "\n".join([*(f"import_{word}" for word in NUMBERS), *["render_lane(draw_node)"] * 9])
    text = render_record(extend_record(WorkingRecord(), [], step(2, "cat lanes.py", output)), [], 12, words)
    assert "render_lane" in text
    assert "draw_node" in text


def test_a_long_path_that_was_read_comes_before_short_names_of_the_output():
    path = "/srv/checkouts/billing/services/invoices/src/main/export/monthly_report.py"
    output = "\n".join(f"{word}_name {word}_name {word}_name" for word in NUMBERS)
    text = render_record(extend_record(WorkingRecord(), [], step(2, f"cat {path}", output)), [], 12, words)
    assert path in text


def test_no_more_names_are_kept_than_a_record_of_its_size_could_show():
    output = " ".join(f"name_{first}_{second}" for first in NUMBERS for second in NUMBERS)
    kept = [len(extend_record(WorkingRecord(), [], step(2, "ls", output), tokens).names) for tokens in (40, 100)]
    assert kept == [20, 50]


def test_statements_and_steps_of_one_entry_keep_their_order():
    said = "Zebra names are never used. However, old names stay. Always ask before renaming."
    calls = (ToolCall("bash", '{"command": "zip a"}'), ToolCall("bash", '{"command": "ar b"}'))
    views = [
        MessageView(seq=2, role="user", text=said),
        MessageView(seq=3, role="assistant", text="", calls=calls),
    ]
    text = render_record(extend_record(WorkingRecord(), views), (), 400, words)
    places = [text.index(part) for part in ("Zebra names", "However, old", "Always ask", "zip a", "ar b")]
    assert places == sorted(places)


def test_a_statement_that_was_cut_says_so_and_still_counts_as_shown():
    said = "Never " + "change the public interface of the billing service " * 12
    record = extend_record(WorkingRecord(), [MessageView(seq=2, role="user", text=said)])
    bullet = next(line for line in render_record(record, (), 400, words).splitlines() if line.startswith("- "))
    assert bullet.endswith(" … (2)")
    assert "Never change" not in render_record(record, (said,), 400, words)


def test_the_letter_of_an_escaped_line_break_is_no_part_of_a_name():
    output = r'"cli/state_test.go\ncmd/entire/state.go" %v\n\nPleaseCommit C:\new_dir\test_a.py src\tool_b.py'
    record = extend_record(WorkingRecord(), [MessageView(seq=2, role="tool", text=output)])
    names = set(record.names)
    assert {"cli/state_test.go", "cmd/entire/state.go", "PleaseCommit", "new_dir", "test_a.py", "tool_b.py"} <= names
    assert not {"ncmd/entire/state.go", "nPleaseCommit"} & names


def test_code_that_is_only_shown_in_a_conversation_is_no_step():
    def said(*texts: str) -> list[MessageView]:
        reader, roles = MessageViewReader(), ("user", "assistant", "user")
        return [
            reader.view(seq, read(json.dumps({"role": role, "content": text}).encode(), "openai.chat"))
            for seq, (role, text) in enumerate(zip(roles, texts, strict=True), 1)
        ]

    shows = "Try this:\n```python\nprint(total_rows)\n```"
    example = extend_record(WorkingRecord(), said("How do I print it?", shows, "Thanks, and how do I sort it?"))
    assert example.steps == ()
    ran = extend_record(WorkingRecord(), said("Print it.", shows, "<returncode>0</returncode>\n<output>7</output>"))
    assert [step.call for step in ran.steps] == ["print(total_rows)"]
