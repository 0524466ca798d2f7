"""Drives the terminal screens by keys, in front of a real gateway whose session has every kind of entry."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from difflib import unified_diff
from pathlib import Path
from typing import Any

from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running
from textual.pilot import Pilot
from textual.strip import Strip

from recto.config.factory import open_memory
from recto.gateway.api_keys import Key
from recto.gateway.client import GatewayClient
from recto.testing import scripted_session
from recto.tui.app import RectoApp

MAIN = "agent:default:main"
SMALL = {"gpt-4o": {"window": 12_000, "max_output": 1_000}}
SNAPSHOTS = Path(__file__).parent / "snapshots"
SCREENS = Path(__file__).parents[2] / "build" / "screens" / "tui"
UPDATE_SNAPSHOTS = bool(os.environ.get("RECTO_SNAPSHOTS"))
"""Set to write the snapshots instead of comparing them."""
_SECONDS = 60.0


def reply_hello(request: Asked) -> Says:
    return Says(text="Hello. The ledger is in store/ledger.py, and amounts are in cents.")


@contextmanager
def running_gateway(folder: Path, answer: Callable[[Asked], Says] = reply_hello, **more: Any) -> Iterator[Running]:
    """Runs a gateway in front of a scripted model with a small window."""
    recall = {"background": False, "embedder": {"use": "none"}}
    # Evict whole messages instead of trimming them: the screens show evictions.
    window = {"shorten_outputs": False, "record_percent": 0, "ceiling_percent": 92}
    overrides = {"model": "gpt-4o", "models": SMALL, "recall": recall, "window": window}
    overrides |= {"memory": {"folder": str(folder / "memory")}, **more}
    with running(ScriptedUpstream(answer)) as upstream, gateway(folder, upstream.url, **overrides) as made:
        yield made


def fill(made: Running, name: str = MAIN, exchanges: int = 12, proposals: int = 1) -> None:
    """Fills a session until messages are evicted; adds a pin, notes, a checkpoint and memory proposals."""
    with made.gateway.sessions.use(Key(name="test"), name) as session:
        for message in scripted_session(seed=7, exchanges=exchanges):
            session.append(message)
            if message["role"] in ("user", "tool"):
                session.prompt()
        session.pin(2)
        session.note("decisions", "Amounts stay in cents until 2.0.", critical=True)
        session.note("bugs", "The retry queue is empty on Mondays.")
        session.checkpoint(goal="Release 2.0 without touching migrations/", doing=["check rounding"])
        session.prompt()
    settings = made.gateway.settings
    known = open_memory(settings, made.store)
    proposed = (("preference", "Answers come in British English."), ("fact", "Amounts are stored in cents."))
    for kind, text in proposed[:proposals]:
        known.propose(kind, text, sources=[f"recto://{name}/2"], why="said so twice")


@asynccontextmanager
async def driven(
    made: Running, session: str = MAIN, size: tuple[int, int] = (80, 24), key: str = ""
) -> AsyncIterator[Pilot[None]]:
    """Runs the screens in a terminal of this size; yields once they are idle."""
    client = GatewayClient(made.url, key or made.secret)
    app = RectoApp(client, session)
    try:
        async with app.run_test(size=size) as pilot:
            await wait_until_idle(pilot)
            yield pilot
    finally:
        await client.close()


async def wait_until_idle(pilot: Pilot[None], until: Callable[[], bool] = lambda: True) -> None:
    """Waits until no request is running, `until` holds, and the screen no longer changes."""
    before = ""
    async with asyncio.timeout(_SECONDS):
        while True:
            while not all(worker.is_finished for worker in pilot.app.workers):
                await asyncio.sleep(0.01)  # the gateway answers in a thread of its own
            await pilot.pause()
            if until():
                now = drawn(pilot)
                if now == before:
                    return
                before = now
            else:
                await asyncio.sleep(0.01)


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Presses keys, and waits until the screen is idle again."""
    await pilot.press(*keys)
    await wait_until_idle(pilot)


def strips(pilot: Pilot[None]) -> list[Strip]:
    """The lines on the screen, with their styles."""
    return pilot.app.screen._compositor.render_strips()


def drawn(pilot: Pilot[None]) -> str:
    """The text on the screen."""
    return "\n".join(strip.text.rstrip() for strip in strips(pilot))


def save_screenshot(pilot: Pilot[None], name: str) -> None:
    """Saves a screenshot for reviewers."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    (SCREENS / f"{name}.svg").write_text(pilot.app.export_screenshot())


_VOLATILE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d"), r"2026-01-01\g<1>00:00:00"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d"), "2026-01-01 00:00"),
    (re.compile(r"\b\d\d-\d\d \d\d:\d\d\b"), "01-01 00:00"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "00:00:00"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{10,64}\b"), "0123456789abcdef"),
)
"""Values that differ from run to run: times, ids and hashes."""


def snapshot_diff(pilot: Pilot[None], name: str) -> list[str]:
    """Diff of a screen against its stored snapshot; with RECTO_SNAPSHOTS set, rewrites the snapshot first."""
    save_screenshot(pilot, name)
    found, snapshot = plain(drawn(pilot)), SNAPSHOTS / f"{name}.txt"
    if UPDATE_SNAPSHOTS:
        SNAPSHOTS.mkdir(exist_ok=True)
        snapshot.write_text(found)
    known = snapshot.read_text() if snapshot.exists() else ""
    return list(unified_diff(known.splitlines(), found.splitlines(), f"{name} as it was", f"{name} now", lineterm=""))


def plain(text: str) -> str:
    """The screen text with volatile values replaced by fixed ones."""
    for pattern, same in _VOLATILE:
        text = pattern.sub(same, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
