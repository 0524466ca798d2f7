"""Runs Recto under the driver of the peers, in an environment of its own, with their `common.py`; run by `bench.peers`.

A long history is stored once and copied for each cell, because building it is not a turn's cost. The driver also loads
the other peers in ways of their own, and times none of it.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import common  # of the peers' folder

import recto
from recto.engine.session import Session

STORES = Path(common.CACHE) / "recto-indexed"
RESERVE = 4096
LONG = 50
"""Histories from this length on are stored once: to index them is no turn's cost either."""
BATCH = 500


def message(said: common.Msg) -> dict:
    """A message of the corpus as OpenAI Chat writes it."""
    if said.role == "tool":
        return {"role": "tool", "tool_call_id": said.call_id, "content": said.text}
    if not said.calls:
        return {"role": said.role, "content": said.text}
    calls = [
        {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call, name, arguments in said.calls
    ]
    return {"role": "assistant", "content": said.text or None, "tool_calls": calls}


def opened(path: Path, budget: int, mode: str, *, recalls: bool = True) -> Session:
    """A session whose prompts may have exactly the budget, counted as gpt-4o does.

    As it is installed without extras: recall by words and spelling, whatever weights may lie on this machine.
    """
    limits = {"window": budget + RESERVE, "max_input": budget, "max_output": RESERVE}
    window = {"mode": mode, "reserve": RESERVE}
    settings = {"models": {"gpt-4o": limits}, "window": window}
    recall = {"enabled": recalls, "embedder": {"use": "none"}}
    return recto.open(path, session="agent:bench:peer", model="gpt-4o", recall=recall, **settings)


def stored(history: list[common.Msg]) -> Path:
    """A store that holds this history and has never been asked for a prompt."""
    named = "".join(f"{said.mid}{len(said.text)}" for said in history)
    path = STORES / f"{hashlib.sha256(named.encode()).hexdigest()[:20]}.db"
    if not path.exists():
        STORES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=STORES) as folder:
            made = Path(folder) / path.name
            fill(made, history)
            for file in sorted(made.parent.iterdir(), reverse=True):  # the store itself comes last
                file.rename(STORES / file.name)
    return path


def fill(path: Path, history: list[common.Msg]) -> None:
    """Everything is in the index afterwards, as it is in a session that came to this length turn by turn."""
    with opened(path, common.BUDGETS[0], "sliding_window") as session:
        for start in range(0, len(history), BATCH):
            session.append_all([message(said) for said in history[start : start + BATCH]])
        found = session.recall(history[0].text[:50], most=1)
        while found.behind or found.without_vectors:
            found = session.recall(history[0].text[:50], most=1)


class Recto(common.Peer):
    """The default: whole units leave, oldest first."""

    name, durable, recall = "recto-sliding_window", "yes, synced", "yes (transcript, restore)"
    mode, recalls = "sliding_window", True

    def load(self, history: list[common.Msg], budget: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "store.db"
        if len(history) < LONG:
            fill(path, history)
        else:
            whole = stored(history)
            for file in whole.parent.glob(f"{whole.name}*"):
                shutil.copyfile(file, path.with_name(file.name.replace(whole.name, path.name)))
        self.session = opened(path, budget, self.mode, recalls=self.recalls)

    def native(self, said: list[common.Msg]) -> list[dict]:
        return [message(each) for each in said]

    def turn(self, new: list[dict]) -> list[dict]:
        self.session.append_all(new)
        return self.session.prompt().messages

    def parts(self, prompt: list[dict]) -> list[tuple]:
        return [part for each in prompt for part in parts_of(each)]

    def close(self) -> None:
        self.session.close()
        self.folder.cleanup()


class RectoZones(Recto):
    """Old tool results shrink first, then units leave."""

    name, mode = "recto-zones", "zones"


class RectoWithoutRecall(Recto):
    """What leaves is kept and can be read, but does not come back by itself: what the peers do, and no more."""

    name, recalls = "recto-no-recall", False


def parts_of(each: dict) -> list[tuple]:
    """A message of a prompt in the shape the driver checks."""
    if each["role"] == "tool":
        return [("result", each["tool_call_id"], each["content"])]
    said = [("text", each["role"], each["content"])] if each.get("content") else []
    calls = (call["function"] | {"id": call["id"]} for call in each.get("tool_calls", ()))
    return said + [("call", call["id"], call["name"], call["arguments"]) for call in calls]


def histories() -> Iterator[list[common.Msg]]:
    """All that the driver begins with."""
    yield from (common.build(size, 60)[0] for size in common.NS)
    yield from (common.call_points(size, seed=3, mix=mix)[0] for size in (400, 1000) for mix in ("mixed", "dense"))
    yield common.edge_case("loop")[0]


if __name__ == "__main__":
    for history in histories():
        stored(history)
    common.run([Recto, RectoWithoutRecall, RectoZones])
