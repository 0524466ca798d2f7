"""Worked files: tracked by their paths; the most relevant ones are named in the summary."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.context.real_messages import count, lines_of, sessions

from recto.context.facts.files import render_files, track_files
from recto.context.facts.types import MessageView, ToolCall, WorkedFile

ROOT = "/srv/engine"


def calls(seq, tool, **arguments):
    return MessageView(seq=seq, role="assistant", text="", calls=(ToolCall(tool, json.dumps(arguments)),))


def answers(seq, tool, text, **arguments):
    return MessageView(seq=seq, role="tool", text=text, calls=(ToolCall(tool, json.dumps(arguments)),))


def by_path(touched):
    return {file.path: file for file in touched}


def test_reads_and_edits_are_recognised_by_their_tool():
    views = [
        calls(1, "Read", file_path=f"{ROOT}/src/mill.py"),
        answers(2, "Read", "1→x = 1", file_path=f"{ROOT}/src/mill.py"),
        calls(3, "Edit", file_path=f"{ROOT}/src/mill.py", old_string="1", new_string="2"),
        calls(4, "str_replace_based_edit_tool", command="view", path=f"{ROOT}/src/store.py"),
        calls(5, "str_replace_based_edit_tool", command="str_replace", path=f"{ROOT}/src/card.py"),
        calls(6, "NotebookEdit", notebookPath=f"{ROOT}/notes.ipynb"),
        calls(7, "MultiRead", files=[{"path": "src/gear.py"}, {"path": "src/axle.py"}]),
    ]
    found = by_path(track_files(views))
    assert found[f"{ROOT}/src/mill.py"] == WorkedFile(path=f"{ROOT}/src/mill.py", reads=1, edits=1, last=3, last_read=2)
    assert (found[f"{ROOT}/src/store.py"].reads, found[f"{ROOT}/src/store.py"].edits) == (1, 0)
    assert found[f"{ROOT}/src/card.py"].edits == 1
    assert found[f"{ROOT}/notes.ipynb"].edits == 1
    assert found["src/gear.py"].reads == found["src/axle.py"].reads == 1


def test_patches_and_commands_name_their_files():
    patch = "*** Begin Patch\n*** Update File: src/mill.py\n@@\n-a\n+b\n*** Add File: src/new.py\n+x\n*** End Patch"
    views = [
        MessageView(seq=1, role="assistant", text="", calls=(ToolCall("apply_patch", patch),)),
        calls(2, "shell", command=["bash", "-lc", "cat src/store.py | head -5 && sed -i 's/a/b/' src/card.py"]),
        calls(3, "Bash", command="cat > docs/plan.md <<'EOF'\nsee src/unseen.py\nEOF"),
        calls(4, "Bash", command="git add src/axle.py && go test ./src/... 2>/dev/null"),
    ]
    found = by_path(track_files(views))
    assert {path for path, file in found.items() if file.edits} == {
        "src/mill.py",
        "src/new.py",
        "src/card.py",
        "docs/plan.md",
    }
    assert found["src/store.py"].reads == 1
    assert (found["src/axle.py"].reads, found["src/axle.py"].edits) == (0, 0)
    assert "src/unseen.py" not in found
    assert not any(path.startswith("/dev") for path in found)


def test_relative_and_absolute_paths_of_a_file_are_merged():
    views = [
        MessageView(seq=1, role="user", text="Please look at mill.py and at src/store.py."),
        calls(2, "Read", file_path=f"{ROOT}/src/mill.py"),
        calls(3, "Bash", command="cat ./src/mill.py"),
        calls(4, "Read", file_path=f"{ROOT}/src/store.py"),
        MessageView(seq=5, role="assistant", text="`src/mill.py` is fine."),
    ]
    found = by_path(track_files(views))
    assert set(found) == {f"{ROOT}/src/mill.py", f"{ROOT}/src/store.py"}
    assert found[f"{ROOT}/src/mill.py"].reads == 2
    assert found[f"{ROOT}/src/mill.py"].last == 5


def test_a_listing_counts_for_little_and_does_not_make_a_file_new():
    views = [
        calls(1, "Read", file_path="src/mill.py"),
        answers(2, "Grep", "src/mill.py:3:x\nsrc/seen.py:9:x", pattern="x"),
    ]
    found = by_path(track_files(views))
    assert found["src/mill.py"].last == 1
    assert (found["src/seen.py"].reads, found["src/seen.py"].last) == (0, 2)


def test_a_failed_read_is_not_counted_as_seen():
    views = [calls(1, "Read", file_path="a/b.py"), answers(2, "Read", "File does not exist.", file_path="a/b.py")]
    assert track_files(views)[0].last_read == 0


def test_text_that_only_resembles_a_path_is_not_a_path():
    text = "See https://example.org/a/index.html, either/or, github.com/ada/mill.go, v1.2/3, origin/main..HEAD, Node.js"
    assert track_files([MessageView(seq=1, role="assistant", text=text)]) == ()


FILES = st.sampled_from(["a.py", "src/a.py", "/r/src/a.py", "/r/src/b.py", "src/b.py", "./src/c.go", "/q/src/a.py"])
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda path: ("assistant", "", "Read", path), FILES),
        st.builds(lambda path: ("assistant", "", "Edit", path), FILES),
        st.builds(lambda path: ("tool", "text", "Read", path), FILES),
        st.builds(lambda path: ("tool", f"{path}:1:x", "Grep", "x"), FILES),
        st.builds(lambda path: ("user", f"look at {path} please", "", ""), FILES),
        st.builds(lambda text: ("user", text, "", ""), st.text(max_size=40)),
    ),
    max_size=12,
)


def messages(drawn):
    return [
        MessageView(
            seq=seq, role=role, text=text, calls=(ToolCall(tool, json.dumps({"file_path": path})),) if tool else ()
        )
        for seq, (role, text, tool, path) in enumerate(drawn, 1)
    ]


@given(MESSAGES, st.integers(0, 12))
@settings(max_examples=60)
def test_tracking_can_be_folded_in_parts(drawn, cut):
    views = messages(drawn)
    assert track_files(views) == track_files(views[cut:], track_files(views[:cut]))


@given(MESSAGES, st.integers(0, 3))
@settings(max_examples=30)
def test_tracked_files_are_limited_to_max_files(drawn, most):
    assert len(track_files(messages(drawn), max_files=most)) <= most


TOUCHED = st.lists(
    st.builds(
        WorkedFile,
        path=st.text(max_size=20) | FILES,
        reads=st.integers(0, 3),
        edits=st.integers(0, 3),
        last=st.integers(1, 99),
    ),
    max_size=20,
)


@given(TOUCHED, st.integers(0, 60), st.sampled_from([count, len]))
@settings(max_examples=60)
def test_rendered_lines_stay_within_their_tokens(touched, tokens, count):
    lines = render_files(touched, tokens, count)
    assert count("\n".join(lines)) <= tokens
    assert lines == render_files(list(reversed(touched)), tokens, count) or len({file.path for file in touched}) < len(
        touched
    )


def test_rendered_lines_name_edited_files_first_grouped_by_folder():
    touched = [
        WorkedFile(path=f"{ROOT}/README.md", reads=1, edits=0, last=1, last_read=2),
        WorkedFile(path=f"{ROOT}/src/mill.py", reads=2, edits=3, last=9, last_read=8),
        WorkedFile(path=f"{ROOT}/src/store.py", reads=1, edits=0, last=7, last_read=7),
        WorkedFile(path=f"{ROOT}/src/named.py", reads=0, edits=0, last=6),
    ]
    assert render_files(touched, 100, count) == ["src: mill.py (edited, 8), store.py (7), named.py", ".: README.md (2)"]
    assert render_files(touched, 8, count) == ["src: mill.py (edited, 8)"]


def test_generated_names_come_last():
    made = [f"runs/0f44a06e-ed4c-48e8-82e3-60{number}.json" for number in range(3)]
    touched = [WorkedFile(path=path, reads=0, edits=0, last=9) for path in (*made, "runs/plan.md")]
    assert render_files(touched, 5, count) == ["runs: plan.md"]


def test_secrets_in_a_path_are_masked():
    key = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    lines = render_files([WorkedFile(path=f"logs/{key}.txt", reads=1, edits=0, last=1)], 100, count)
    assert lines
    assert key not in lines[0]


def test_a_flood_of_paths_is_bounded():
    flood = "\n".join(f"d{number}/f{number}.py" for number in range(30_000)) + "/a" * 500_000
    found = track_files([MessageView(seq=1, role="tool", text=flood), calls(2, "Edit", file_path="src/mill.py")])
    assert len(found) == 500
    assert "src/mill.py" in by_path(found)


def test_lone_surrogates_and_broken_arguments_do_no_harm():
    view = MessageView(
        seq=1, role="assistant", text="\ud800/a.py", calls=(ToolCall("Edit", "{"), ToolCall("Edit", "[" * 9_000))
    )
    assert isinstance(track_files([view]), tuple)


def test_most_files_of_real_sessions_that_are_touched_again_are_named(data):
    named = touched_again = 0
    for path in sessions(data, 8):
        lines = lines_of(path)
        at = next(index for index, (kind, _) in enumerate(lines) if kind == "boundary")
        before = [view for _, view in lines[:at]]
        text = "\n".join(render_files(track_files(before), 1000, count))
        seen = "\n".join(view.text + " ".join(call.arguments for call in view.calls) for view in before)
        later = {
            json.loads(call.arguments)["file_path"]
            for _, view in lines[at:]
            for call in view.calls
            if '"file_path"' in call.arguments
        }
        for file in later:
            parts = file.split("/")
            if "/".join(parts[-2:]) in seen:
                touched_again += 1
                named += re.search(rf"(?<![\w.-]){re.escape(parts[-1])}(?![\w-])", text) is not None
    assert touched_again >= 20
    assert named / touched_again > 0.9
