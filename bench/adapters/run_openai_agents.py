"""The scenario in the OpenAI Agents SDK: one agent, one session, its runner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agents import Agent, RunConfig, Runner, SQLiteSession, set_tracing_disabled
from agents.extensions import ToolOutputTrimmer
from agents.memory import OpenAIResponsesCompactionSession
from agents.tool import function_tool

from bench.adapters import scenario
from bench.adapters.led import NAMES, Led, told
from bench.adapters.scripted_openai_agents import Scripted
from recto.adapters.openai_agents import RectoSession


@function_tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return scenario.look_up(shelf)


def row(what: str, note: str, session: Any, fitting: Any = None) -> dict[str, Any]:
    led = Led()
    agent = Agent(name="keeper", instructions=scenario.SYSTEM, model=Scripted(led, thinks=False), tools=[look_up])
    config = RunConfig(call_model_input_filter=fitting)
    return led.run(what, lambda text: Runner.run_sync(agent, text, session=session, run_config=config), note)


def compacting() -> Any:
    """Their compaction with its own trigger; the service that would compact is scripted."""

    async def compact(**asked: Any) -> Any:
        item = {"type": "compaction", "id": "c", "encrypted_content": "Shelves were checked."}
        return SimpleNamespace(output=[item], usage=None)

    client: Any = SimpleNamespace(responses=SimpleNamespace(compact=compact))
    return OpenAIResponsesCompactionSession("1", SQLiteSession("1"), client=client, compaction_mode="input")


def rows() -> list[dict[str, Any]]:
    set_tracing_disabled(True)
    recto = RectoSession("1", "memory:", **NAMES)
    return [
        row("own defaults", "SQLiteSession", SQLiteSession("1")),
        row("own management", "ToolOutputTrimmer with its defaults", SQLiteSession("1"), ToolOutputTrimmer()),
        row("own management", "OpenAIResponsesCompactionSession; the service is scripted", compacting()),
        row("with Recto", "RectoSession and its filter", recto, recto.fitted),
    ]


if __name__ == "__main__":
    told(rows())
