"""The scenario in Google ADK: one app with one agent, one session in memory."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import InMemoryRunner
from google.genai import types

from bench.adapters import scenario
from bench.adapters.led import NAMES, Led, told
from bench.adapters.scripted_google_adk import Scripted
from recto.adapters.google_adk import RectoPlugin

WHO = {"user_id": "u", "session_id": "1"}
KEPT = 20


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return scenario.look_up(shelf)


class Summary(BaseEventsSummarizer):
    """Writes always the same."""

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event:
        text = types.Content(role="model", parts=[types.Part(text="Shelves were checked.")])
        span = {"start_timestamp": events[0].timestamp, "end_timestamp": events[-1].timestamp}
        actions = EventActions(compaction=EventCompaction(compacted_content=text, **span))
        return Event(author="user", invocation_id=Event.new_id(), actions=actions)


def row(what: str, note: str, **plugged: Any) -> dict[str, Any]:
    led = Led()
    agent = LlmAgent(name="keeper", model=Scripted(script=led), instruction=scenario.SYSTEM, tools=[look_up])
    runner = InMemoryRunner(app=App(name="warehouse", root_agent=agent, **plugged))

    async def say(text: str) -> None:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for _ in runner.run_async(new_message=message, **WHO):
            pass

    with asyncio.Runner() as loop:
        loop.run(runner.session_service.create_session(app_name="warehouse", **WHO))
        return led.run(what, lambda text: loop.run(say(text)), note)


def rows() -> list[dict[str, Any]]:
    logging.disable(logging.CRITICAL)
    threshold = int(scenario.WINDOW * 0.8)
    compacted = EventsCompactionConfig(summarizer=Summary(), token_threshold=threshold, event_retention_size=KEPT)
    return [
        row("own defaults", "no compaction"),
        row("own management", "ContextFilterPlugin, keeps 4 invocations", plugins=[ContextFilterPlugin(4)]),
        row(
            "own management",
            f"EventsCompactionConfig at 80 % of the window, keeps {KEPT} events; the summary is scripted",
            events_compaction_config=compacted,
        ),
        row("with Recto", "", plugins=[RectoPlugin("memory:", **NAMES)]),
    ]


if __name__ == "__main__":
    told(rows())
