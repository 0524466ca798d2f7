"""A process that dies while it writes memory leaves the old page or the new one, never a partial one.

Writers are ended with SIGKILL at random instants, and at every single step of an approval. At the next start pages and
approvals agree again, no acknowledged step is missing, and no partial file remains.
"""

from __future__ import annotations

import itertools
import os
import random
import select
from collections.abc import Callable
from pathlib import Path

import pytest
from witness import Child, findings

from recto.config import Settings
from recto.config.factory import SystemClock, make_meter
from recto.continuity.memory import files
from recto.continuity.memory.files import MemoryFolder
from recto.continuity.memory.manager import Memories
from recto.continuity.memory.markdown import amended, read_page
from recto.continuity.memory.proposals import Suggestion
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteStore
from recto.testing import FakeClock

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(0)]
SESSION = "agent:books:main"
AFRESH = 10
"""The number of kills after which a new store is used."""
METER = make_meter(Settings())


def opened(store, folder: Path) -> Memories:
    return Memories(store, SESSION, MemoryFolder(folder / "mem"), clock=SystemClock(), meter=METER)


def work(folder: Path, cycle: int, acknowledge: Callable[[str], None]) -> None:
    """Approves, uses and retires memories until it is killed."""
    store = SqliteStore(folder / "a.db")
    memories = opened(store, folder)
    memories.reconcile()
    for number in itertools.count():
        made = memories.propose("fact", f"Garden {cycle}-{number} is green. " + "It has been so for long. " * 20)
        memory_id = memories.approve(made.id, made.digest, "ada").memory.id
        acknowledge(f"{memory_id} approved")
        memories.applied(memory_id)
        acknowledge(f"{memory_id} applied")
        if number % 2:
            memories.retire(memory_id, "ada")
            acknowledge(f"{memory_id} retired")


def torn(folder: MemoryFolder) -> list[str]:
    """Returns incomplete pages and indexes, as they are before anything is repaired."""
    found = [str(problem) for problem in folder.pages().problems]
    for path in folder.root.glob("INDEX.md"):
        lines = path.read_text().split("\n")
        if (
            lines[0] != "# What is remembered"
            or lines[-1]
            or not all(not line or line.startswith("#") or line.endswith((")", ".")) for line in lines)
        ):
            found.append("INDEX.md")
    return found


def disagreements(memories: Memories) -> list[str]:
    """Returns every difference between pages and approvals."""
    known, pages = memories.decisions, memories.folder.pages()
    found = [f"{id} is on one side alone" for id in known.current.keys() ^ pages.by_id.keys()]
    for id, approval in known.current.items():
        expected = amended(read_page(approval.text.encode(), id), known.memory(id))
        if id in pages.by_id and pages.by_id[id].page.text != expected:
            found.append(f"{id} is not what was approved")
    found += [path.name for path in memories.folder.root.rglob("*.tmp")]
    listed = (memories.folder.root / "INDEX.md").read_text() if known.current else ""
    found += [f"{item.memory.id} is not in the index" for item in memories.remembered() if item.memory.id not in listed]
    return found


def run(folder: Path, rng: random.Random, cycles: int, doing=work) -> tuple[int, list[str]]:
    """Returns the number of acknowledged steps, and all violations."""
    acknowledged, wrong, root = 0, [], folder
    for cycle in range(cycles):
        if cycle % AFRESH == 0:  # so that it stays quick
            folder = root / str(cycle)
            folder.mkdir()
        child = Child.running(lambda acknowledge, cycle=cycle, folder=folder: doing(folder, cycle, acknowledge))
        lines = child.wait_for(rng.choice((1, 1, 2, 4)))
        lines += child.kill(rng.uniform(0, 0.004))
        with SqliteStore(folder / "a.db") as store:
            memories = opened(store, folder)
            wrong += torn(memories.folder)
            memories.reconcile()
            wrong += disagreements(memories)
            known = memories.decisions
            for line in lines:
                id, step = line.split(" ", 1)
                there = id in known.current and {
                    "approved": True,
                    "applied": known.memory(id).hits == 1,
                    "retired": bool(known.current[id].retired),
                }.get(step)
                wrong += [] if there else [f"lost or broken: {line}"]
                acknowledged += 1
            if cycle % AFRESH == AFRESH - 1:
                wrong += findings(store)
        if len(wrong) > 20:
            break
    return acknowledged, wrong


@pytest.mark.promise
def test_memory_survives_kill_9(swift_folder, scale):
    cycles = scale(25, ci=100, release=2_000)
    acknowledged, wrong = run(swift_folder, random.Random(1), cycles)
    assert wrong == []
    assert acknowledged >= cycles


def in_place(self: MemoryFolder, path: str, raw: bytes) -> None:
    """Overwrites the file in place: the control."""
    target = self.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb", buffering=0) as file:
        for at in range(0, len(raw), 64):
            file.write(raw[at : at + 64])
            select.select([], [], [], 0.0005)


def test_writing_in_place_is_detected(swift_folder):
    def careless(folder, cycle, acknowledge):
        MemoryFolder.write = in_place
        work(folder, cycle, acknowledge)

    _, wrong = run(swift_folder, random.Random(2), 25, careless)
    assert [finding for finding in wrong if "line" in finding or "INDEX" in finding]


class Killed(BaseException):
    pass


STEPS = ("open", "write", "fsync", "rename", "mkdir")


def dying(monkeypatch, at: int) -> list[str]:
    """Raises `Killed` at step `at` of all operations on the disk."""
    done: list[str] = []

    def counted(name, real):
        def step(*args, **kwargs):
            if len(done) >= at:
                raise Killed
            done.append(name)
            return real(*args, **kwargs)

        return step

    for name in STEPS:
        monkeypatch.setattr(files.os, name, counted(name, getattr(os, name)))
    return done


@pytest.mark.parametrize("doing", ["approve", "applied", "retire", "replace"])
def test_after_a_crash_at_any_step_the_next_start_repairs_the_memory(swift_folder, monkeypatch, doing):
    finished, at = False, 0
    while not finished:
        folder = swift_folder / f"{doing}{at}"
        folder.mkdir()
        store = MemoryStore()
        memories = Memories(store, SESSION, MemoryFolder(folder), clock=FakeClock(), meter=METER)
        first = memories.propose("fact", "The garden is green.")
        memory_id = memories.approve(first.id, first.digest, "ada").memory.id if doing != "approve" else ""
        made = first
        if doing == "replace":
            suggestion = Suggestion(kind="fact", text="The garden is blue.", replaces=[memory_id])
            made = memories.suggest(suggestion, by="person", why="")
        with monkeypatch.context() as patched:
            dying(patched, at)
            try:
                match doing:
                    case "applied":
                        memories.applied(memory_id)
                    case "retire":
                        memories.retire(memory_id, "ada")
                    case _:
                        memories.approve(made.id, made.digest, "ada")
                finished = True
            except Killed:
                pass
        after = Memories(store, SESSION, MemoryFolder(folder), clock=FakeClock(), meter=METER)
        assert torn(after.folder) == []
        after.reconcile()
        assert disagreements(after) == [], (doing, at)
        at += 1
    assert at > 20
