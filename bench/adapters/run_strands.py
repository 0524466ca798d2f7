"""The scenario in Strands: one agent, its messages in memory."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

from strands import Agent, tool
from strands.agent.conversation_manager import SummarizingConversationManager

from bench.adapters import scenario
from bench.adapters.led import NAMES, Led, told
from bench.adapters.scripted_strands import Scripted
from recto.adapters.strands import RectoConversationManager


@tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return scenario.look_up(shelf)


def row(what: str, note: str, manager: Any = None) -> dict[str, Any]:
    led = Led()
    agent = Agent(
        Scripted(led, window=scenario.WINDOW),
        system_prompt=scenario.SYSTEM,
        tools=[look_up],
        conversation_manager=manager,
        callback_handler=None,
    )
    return led.run(what, agent, note)


def summarizing() -> SummarizingConversationManager:
    said = {"role": "assistant", "content": "Shelves were checked."}
    writer = Agent(Scripted(SimpleNamespace(reply=lambda prompt: said)), callback_handler=None)
    return SummarizingConversationManager(summarization_agent=writer, proactive_compression=True)


def rows() -> list[dict[str, Any]]:
    logging.disable(logging.CRITICAL)
    return [
        row("own defaults", "SlidingWindowConversationManager: 40 messages, less after an overflow"),
        row(
            "own management",
            "SummarizingConversationManager, proactive_compression at 70 %; the summary is scripted",
            summarizing(),
        ),
        row("with Recto", "", RectoConversationManager("memory:", session_id="1", **NAMES)),
    ]


if __name__ == "__main__":
    told(rows())
