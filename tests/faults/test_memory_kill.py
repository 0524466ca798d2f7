"""A process that dies while memory is written leaves the page of before or the new one, never half of one.

Writers are ended with SIGKILL at random instants, and at every single step of an approval. At the next start pages and
approvals agree again, nothing that was acknowledged is missing, and nothing half-written is left.
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
"""Kills that one store lives through."""
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
        kept = memories.approve(made.id, made.digest, "ada").memory.id
        acknowledge(f"{kept} approved")
        memories.applied(kept)
        acknowledge(f"{kept} applied")
        if number % 2:
            memories.retire(kept, "ada")
            acknowledge(f"{kept} retired")


def torn(folder: MemoryFolder) -> list[str]:
    """Pages, index and log that are not whole, as they are found before anything is mended."""
    found = [str(one) for one in folder.pages().problems]
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
    """Where pages and approvals differ, to the byte."""
    known, pages = memories.decisions, memories.folder.pages()
    found = [f"{id} is on one side alone" for id in known.current.keys() ^ pages.by_id.keys()]
    for id, approval in known.current.items():
        expected = amended(read_page(approval.text.encode(), id), known.memory(id))
        if id in pages.by_id and pages.by_id[id].page.text != expected:
            found.append(f"{id} is not what was approved")
    found += [path.name for path in memories.folder.root.rglob("*.tmp")]
    listed = (memories.folder.root / "INDEX.md").read_text() if known.current else ""
    found += [f"{one.memory.id} is not in the index" for one in memories.remembered() if one.memory.id not in listed]
    return found


def run(folder: Path, rng: random.Random, cycles: int, doing=work) -> tuple[int, list[str]]:
    """How many acknowledged steps there were, and what went wrong."""
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
    """What one would write without thinking."""
    target = self.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb", buffering=0) as file:
        for at in range(0, len(raw), 64):
            file.write(raw[at : at + 64])
            select.select([], [], [], 0.0005)


def test_writing_in_place_would_be_seen(swift_folder):
    def careless(folder, cycle, acknowledge):
        MemoryFolder.write = in_place
        work(folder, cycle, acknowledge)

    _, wrong = run(swift_folder, random.Random(2), 25, careless)
    assert [one for one in wrong if "line" in one or "INDEX" in one]


class Killed(BaseException):
    pass


STEPS = ("open", "write", "fsync", "rename", "mkdir")


def dying(monkeypatch, at: int) -> list[str]:
    """Ends the process at one step among all that touch the disk or the transcript."""
    done: list[str] = []

    def counted(name, real):
        def step(*given, **more):
            if len(done) >= at:
                raise Killed
            done.append(name)
            return real(*given, **more)

        return step

    for name in STEPS:
        monkeypatch.setattr(files.os, name, counted(name, getattr(os, name)))
    return done


@pytest.mark.parametrize("doing", ["approve", "applied", "retire", "replace"])
def test_at_whatever_step_it_dies_the_next_start_makes_it_whole(swift_folder, monkeypatch, doing):
    finished, at = False, 0
    while not finished:
        folder = swift_folder / f"{doing}{at}"
        folder.mkdir()
        store = MemoryStore()
        memories = Memories(store, SESSION, MemoryFolder(folder), clock=FakeClock(), meter=METER)
        first = memories.propose("fact", "The garden is green.")
        kept = memories.approve(first.id, first.digest, "ada").memory.id if doing != "approve" else ""
        made = first
        if doing == "replace":
            given = Suggestion(kind="fact", text="The garden is blue.", replaces=[kept])
            made = memories.suggest(given, by="person", why="")
        with monkeypatch.context() as patched:
            dying(patched, at)
            try:
                match doing:
                    case "applied":
                        memories.applied(kept)
                    case "retire":
                        memories.retire(kept, "ada")
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
