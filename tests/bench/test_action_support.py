"""Action support counts what the recorded next action uses from the history, in the prompt of every arm."""

from __future__ import annotations

import gzip
import json

import pytest
from bench.action_support import DEFAULT, EQUAL, TRIMMED, WHOLE, Arm, action_of, judge, referents, text_of

from bench import action_support


def test_paths_identifiers_and_numbers_are_referents():
    text = "sed -n '120,140p' src/app/models.py; run_tests a b userName DataFrame 12 a.b the word 250"
    assert referents(text) == {"120", "src/app/models.py", "run_tests", "userName", "DataFrame", "250"}


@pytest.mark.parametrize(
    ("content", "action"),
    [
        ("I look.\n```bash\nls src_dir\n```\n", "ls src_dir\n"),
        ("no command", "no command"),
        (
            [
                {"type": "text", "text": "not_this"},
                {"type": "tool_use", "id": "a", "name": "Edit", "input": {"file_path": "a/b.py", "new": ["x_y", 123]}},
            ],
            "a/b.py\nx_y\n123",
        ),
    ],
)
def test_an_action_is_the_arguments_of_calls_or_the_command_written_as_text(content, action):
    assert action_of(json.dumps({"role": "assistant", "content": content}).encode()) == action


def test_the_text_of_a_message_has_arguments_and_results():
    blocks = [
        {"type": "tool_use", "id": "a", "name": "Read", "input": {"file_path": "a/b.py"}},
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "def f_g(): ..."}]},
    ]
    assert text_of(json.dumps({"role": "user", "content": blocks}).encode()) == "a/b.py\ndef f_g(): ..."


def test_a_run_is_judged_where_its_history_no_longer_fits(tmp_path, monkeypatch):
    messages = [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": "Fix first_name."}]
    for step in range(40):
        messages.append({"role": "assistant", "content": f"Look.\n```bash\ncat src/part_{step}.py\n```"})
        output = "\n".join(f"line {step} {line} of the file" for line in range(60))
        messages.append({"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{output}\n</output>"})
    messages.append(
        {"role": "assistant", "content": "Done.\n```bash\ncat src/part_0.py src/part_39.py never_seen\n```"}
    )
    folder = tmp_path / "swebench_trajectories"
    folder.mkdir()
    with gzip.open(folder / "trajectories.jsonl.gz", "wt") as lines:
        lines.write(json.dumps({"instance_id": "made_up-1", "messages": messages}) + "\n")
    monkeypatch.setattr(action_support, "DATA", tmp_path)

    assert list(action_support.run_names()) == [("made_up-1", "swebench_trajectories")]
    windows = Arm(mode=DEFAULT.mode, new_window=10)
    found = judge("made_up-1", "swebench_trajectories", 8_000, (DEFAULT, windows))
    assert (found[windows.label].needed, found[windows.label].refused) == (2, 0)
    assert found[windows.label].tokens < found[DEFAULT.label].tokens
    whole, trimmed, recto = found[WHOLE], found[TRIMMED], found[DEFAULT.label]
    assert (whole.all, whole.old) == (1, 1)
    assert trimmed.needed == whole.needed == recto.needed == 2  # in the last step; every other names a new file
    assert (trimmed.found, trimmed.old_found, trimmed.old_needed) == (1, 0, 1)
    assert (recto.found, recto.old_found) == (2, 1)  # the step stays though its output is shortened
    assert recto.refused == 0
    assert 0 < trimmed.unchanged < recto.unchanged
    assert recto.picodollars < trimmed.picodollars
    assert found[EQUAL].tokens <= recto.tokens
    assert recto.tokens == pytest.approx(recto.unchanged + recto.new, rel=0.5)
