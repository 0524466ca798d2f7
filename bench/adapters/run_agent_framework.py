"""The scenario in Microsoft Agent Framework: one agent, one session, its in-memory history."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import Agent, ContextWindowCompactionStrategy

from bench.adapters import scenario
from bench.adapters.led import NAMES, Led, told
from bench.adapters.scripted_agent_framework import Scripted
from recto.adapters.agent_framework import RectoMiddleware


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return scenario.look_up(shelf)


def row(what: str, note: str, **plugged: Any) -> dict[str, Any]:
    led = Led()
    agent = Agent(Scripted(led), instructions=scenario.SYSTEM, tools=[look_up], **plugged)
    session = agent.create_session(session_id="1")
    with asyncio.Runner() as loop:

        async def say(text: str) -> Any:
            return await agent.run(text, session=session)

        return led.run(what, lambda text: loop.run(say(text)), note)


def rows() -> list[dict[str, Any]]:
    window = ContextWindowCompactionStrategy(max_context_window_tokens=scenario.WINDOW, max_output_tokens=0)
    return [
        row("own defaults", "no compaction"),
        row("own management", "ContextWindowCompactionStrategy for the window", compaction_strategy=window),
        row("with Recto", "", middleware=[RectoMiddleware("memory:", **NAMES)]),
    ]


if __name__ == "__main__":
    told(rows())
