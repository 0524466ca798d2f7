"""Checkpoints and handoffs outlive the death of their writer: the version before or the new one, never half of one.

Writers are ended with SIGKILL at random instants. Afterwards each file is whole and of an acknowledged version or the
one on its way, the transcript has checkpoint and handoff together, and work can be resumed from either.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from witness import Child, findings

import recto
from recto.continuity.checkpoints.checkpoint import Changes, checkpoint_from
from recto.continuity.checkpoints.handoff import FOOTER, HEADER
from recto.engine import checkpoints as saving
from recto.engine.checkpoints import session_folder, write_atomically
from recto.engine.continuity import read_checkpoint
from recto.errors import CheckpointRefused
from recto.stores.sqlite import SqliteStore

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(0)]

KEY = "agent:default:main"
LONG = "What was learned, and is long enough to be written in several pieces. " * 20


def opened(folder: Path) -> recto.Session:
    continuity = {"folder": str(folder / "files"), "environment": False}
    return recto.open(folder / "a.db", model="gpt-4o", continuity=continuity, recall={"enabled": False})


def write_in_place(path: Path, content: bytes) -> None:
    """Overwrites the file without an atomic rename: the control."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(content), 512):
            file.write(content[start : start + 512])


def write(folder: Path, acknowledge: Callable[[str], None], way: Callable[[Path, bytes], None]) -> None:
    saving.write_atomically = way
    window = opened(folder).window
    for number in itertools.count():
        pair = window.continuity.checkpoint(Changes(learnings=(f"{number} {LONG}",)))
        acknowledge(str(json.loads(pair[0].content)["version"]))
        files = {path: path.read_bytes() for path in session_folder(folder / "files", KEY).glob("[!.]*")}
        for _ in range(10):  # so that as many kills hit the writing of files as that of the store
            for path, content in files.items():
                way(path, content)


def broken(folder: Path, acknowledged: int) -> list[str]:
    """Returns everything that is wrong after a kill."""
    files = session_folder(folder / "files", KEY)
    wrong: list[str] = []
    try:
        made = read_checkpoint(files / "checkpoint.json", session=KEY)
        if made.version < acknowledged:
            wrong.append(f"version {made.version} is there, version {acknowledged} was acknowledged")
    except CheckpointRefused as refused:
        wrong.append(str(refused))
    page = (files / "checkpoint.md").read_text().splitlines()
    if page[:1] != [f"# {KEY}"] or "## Learned" not in page or not page[-1].startswith("- "):
        wrong.append("checkpoint.md is not whole")
    handoff = (files / "handoff.md").read_text()
    if not (handoff.startswith(HEADER) and handoff.endswith(f"{FOOTER}\n")):
        wrong.append("handoff.md is not whole")
    return wrong


def stored(folder: Path) -> int:
    """Returns the newest version in the transcript, which ends with a complete pair of checkpoint and handoff."""
    with SqliteStore(folder / "a.db") as store:
        saved, handoff = store.tail(KEY, 2)
        assert (saved.kind, handoff.kind) == ("checkpoint_saved", "handoff_written")
        return checkpoint_from(saved.content, session=KEY).version


def run(folder: Path, cycles: int, way: Callable[[Path, bytes], None]) -> list[str]:
    rng = random.Random(6)
    found: list[str] = []
    with opened(folder) as session:
        session.append({"role": "user", "content": "Go."})
        session.checkpoint(learnings=LONG)
    for _ in range(cycles):
        child = Child.running(lambda acknowledge: write(folder, acknowledge, way))
        lines = child.wait_for(1)
        lines += child.kill(rng.uniform(0, 0.03))
        assert all(line.isdigit() for line in lines), lines
        acknowledged = int(lines[-1])
        wrong = broken(folder, acknowledged)
        found += wrong
        if way is write_atomically:
            assert stored(folder) in (acknowledged, acknowledged + 1)
        elif found:
            break
    return found


@pytest.mark.promise
def test_a_checkpoint_is_whole_whenever_its_writer_dies(swift_folder, scale):
    cycles = scale(20, ci=80, release=3_000)
    assert run(swift_folder, cycles, write_atomically) == []
    with SqliteStore(swift_folder / "a.db") as store:
        assert findings(store) == []
        kinds = [entry.kind for entry in store.read(KEY, 2)]
        assert kinds == ["checkpoint_saved", "handoff_written"] * (len(kinds) // 2)
    with opened(swift_folder) as session:
        session.resume()
        session.append({"role": "user", "content": "Go on."})
        assert b"What was learned" in session.prompt().raw[-2]


def test_writing_in_place_is_detected(swift_folder):
    assert run(swift_folder, 600, write_in_place) != []  # a kill has to meet a write; mostly one of the first does
