"""The terminal screens, driven by keys in front of a real gateway with a session that has something of everything."""

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
ANEW = bool(os.environ.get("RECTO_SNAPSHOTS"))
"""Set to write the snapshots instead of comparing them."""
_SECONDS = 60.0


def says_hello(asked: Asked) -> Says:
    return Says(text="Hello. The ledger is in store/ledger.py, and amounts are in cents.")


@contextmanager
def talking(folder: Path, answer: Callable[[Asked], Says] = says_hello, **more: Any) -> Iterator[Running]:
    """A gateway in front of a scripted model, whose window is small."""
    recall = {"background": False, "embedder": {"use": "none"}}
    # Whole messages leave: that is what the screens show.
    window = {"shorten_outputs": False, "record_percent": 0, "ceiling_percent": 92}
    given = {"model": "gpt-4o", "models": SMALL, "recall": recall, "window": window}
    given |= {"memory": {"folder": str(folder / "memory")}, **more}
    with running(ScriptedUpstream(answer)) as upstream, gateway(folder, upstream.url, **given) as made:
        yield made


def fill(made: Running, name: str = MAIN, exchanges: int = 12, proposals: int = 1) -> None:
    """A coding agent at work, long enough that things leave; with a pin, notes, a checkpoint and proposals."""
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
    said = (("preference", "Answers come in British English."), ("fact", "Amounts are stored in cents."))
    for kind, text in said[:proposals]:
        known.propose(kind, text, sources=[f"recto://{name}/2"], why="said so twice")


@asynccontextmanager
async def driven(
    made: Running, session: str = MAIN, size: tuple[int, int] = (80, 24), key: str = ""
) -> AsyncIterator[Pilot[None]]:
    """The screens in a terminal of this size, after they have come to rest."""
    client = GatewayClient(made.url, key or made.secret)
    app = RectoApp(client, session)
    try:
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            yield pilot
    finally:
        await client.close()


async def settled(pilot: Pilot[None], until: Callable[[], bool] = lambda: True) -> None:
    """Waits until nothing is asked any more, something is so, and the screen no longer changes."""
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
    """Presses keys, and waits until what they ask for is there."""
    await pilot.press(*keys)
    await settled(pilot)


def strips(pilot: Pilot[None]) -> list[Strip]:
    """The lines on the screen, with their styles."""
    return pilot.app.screen._compositor.render_strips()


def drawn(pilot: Pilot[None]) -> str:
    """What stands on the screen, as text."""
    return "\n".join(strip.text.rstrip() for strip in strips(pilot))


def photographed(pilot: Pilot[None], name: str) -> None:
    """A picture of the screen, for people."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    (SCREENS / f"{name}.svg").write_text(pilot.app.export_screenshot())


_SAME: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d"), r"2026-01-01\g<1>00:00:00"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d"), "2026-01-01 00:00"),
    (re.compile(r"\b\d\d-\d\d \d\d:\d\d\b"), "01-01 00:00"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "00:00:00"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{10,64}\b"), "0123456789abcdef"),
)
"""What differs from run to run: times, ids and hashes."""


def compared(pilot: Pilot[None], name: str) -> list[str]:
    """How a screen differs from what was kept of it; with RECTO_SNAPSHOTS set, it is kept as it is now."""
    photographed(pilot, name)
    found, kept = plain(drawn(pilot)), SNAPSHOTS / f"{name}.txt"
    if ANEW:
        SNAPSHOTS.mkdir(exist_ok=True)
        kept.write_text(found)
    known = kept.read_text() if kept.exists() else ""
    return list(unified_diff(known.splitlines(), found.splitlines(), f"{name} as it was", f"{name} now", lineterm=""))


def plain(text: str) -> str:
    """A screen without what differs from run to run."""
    for pattern, same in _SAME:
        text = pattern.sub(same, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
