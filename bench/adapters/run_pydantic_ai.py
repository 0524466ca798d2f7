"""The scenario in Pydantic AI: one agent, each turn with the conversation of the one before."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from bench.adapters import scenario
from bench.adapters.led import NAMES, Led, arguments_of, told
from recto.adapters.pydantic_ai import RectoHistory, written

NEWEST = 100


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return scenario.look_up(shelf)


def model_of(led: Led) -> FunctionModel:
    def answer(messages: list[ModelMessage], info: Any) -> ModelResponse:
        system = [{"role": "system", "content": info.instructions}]
        said = led.reply([*system, *(chat for message in messages for chat in written(message))])
        calls = [ToolCallPart(name, given, call) for call, name, given in arguments_of(said)]
        return ModelResponse(parts=[*([TextPart(said["content"])] if said["content"] else []), *calls])

    return FunctionModel(answer)


def row(what: str, note: str, *capabilities: Any) -> dict[str, Any]:
    led = Led()
    agent = Agent(model_of(led), instructions=scenario.SYSTEM, tools=[look_up], capabilities=list(capabilities))
    history: list[ModelMessage] = []

    def say(text: str) -> None:
        result = agent.run_sync(text, message_history=history, conversation_id="1")
        history[:] = result.all_messages()

    return led.run(what, say, note)


def rows() -> list[dict[str, Any]]:
    return [
        row("own defaults", "the whole history; a turn that was refused does not stay in it"),
        row(
            "own management",
            f"ProcessHistory with the documented `messages[-n:]`, n = {NEWEST}",
            ProcessHistory(lambda messages: messages[-NEWEST:]),
        ),
        row("with Recto", "", RectoHistory("memory:", **NAMES)),
    ]


if __name__ == "__main__":
    told(rows())
