"""The trial's section: counts of every run are kept, and an interrupted measurement goes on."""

from __future__ import annotations

import gzip
import json

import pytest

from bench import action_support, trial
from recto.lab.moments import EQUAL, WHOLE
from recto.lab.variants import MODES


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two recorded runs of an agent that writes commands as text."""
    folder = tmp_path / "swebench_trajectories"
    folder.mkdir()
    with gzip.open(folder / "trajectories.jsonl.gz", "wt") as lines:
        for name in ("made_up-1", "made_up-2"):
            messages = [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": "Fix first_name."}]
            for step in range(30):
                messages.append({"role": "assistant", "content": f"Look.\n```bash\ncat src/part_{step}.py\n```"})
                output = "\n".join(f"line {step} {line} of the file" for line in range(60))
                messages.append({"role": "user", "content": f"<output>\n{output}\n</output>"})
            messages.append({"role": "assistant", "content": "Done.\n```bash\ncat src/part_0.py\n```"})
            lines.write(json.dumps({"instance_id": name, "messages": messages}) + "\n")
    monkeypatch.setattr(action_support, "DATA", tmp_path)
    return tmp_path


def test_every_run_is_counted_once_and_the_first_in_every_mode(runs, tmp_path):
    file = tmp_path / "counts.jsonl"
    trial.measure(file, [8_000])
    complete = file.read_text()
    first, second = map(json.loads, complete.splitlines())
    assert (first["every_mode"], second["every_mode"]) == (True, False)
    file.write_text(complete.splitlines(keepends=True)[0])
    trial.measure(file, [8_000])
    assert file.read_text() == complete

    groups = trial.groups([first, second])
    assert [len(groups[name]) for name in ("all runs", "tool calls", "commands as text", "sample")] == [2, 0, 2, 1]
    assert {arm for run in groups["all runs"] for _, arm in run.support}.isdisjoint(MODES[1:])
    support = groups["sample"][0].support
    assert support[8_000, WHOLE].all == 1
    assert support[8_000, MODES[0]].old_found > support[8_000, EQUAL].old_found == 0
    assert "sliding_window" in trial.picture(groups["all runs"])


def test_the_kept_likelihoods_are_judged_and_the_page_shows_them():
    judged = trial.likelihoods()
    assert WHOLE not in judged
    assert all(found.runs > 10 for found in judged.values())
    rows = trial.run(quick=True)
    assert {row["what"] for row in rows} >= {"all runs", "sample", *judged}
