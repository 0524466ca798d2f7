"""The scenario in smolagents: a ToolCallingAgent that goes on from turn to turn. It has no management of its own."""

from __future__ import annotations

from typing import Any

from smolagents import LogLevel, Model, ToolCallingAgent, tool
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    get_clean_message_list,
    tool_role_conversions,
)

from bench.adapters import scenario
from bench.adapters.led import NAMES, Led, arguments_of, told
from recto.adapters.smolagents import RectoMemory


@tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf.

    Args:
        shelf: The shelf, such as A-17.
    """
    return scenario.look_up(shelf)


class Scripted(Model):
    """Says that it is done by the tool that smolagents has for it."""

    def __init__(self, led: Led) -> None:
        super().__init__(model_id="scripted")
        self.led = led
        self.asked = 0

    def generate(self, messages: Any, *args: Any, **more: Any) -> ChatMessage:
        sent = get_clean_message_list(messages, tool_role_conversions)
        said = self.led.reply([{**message, "role": message["role"].value} for message in sent])
        self.asked += 1
        done = [(f"call_{self.asked}", "final_answer", {"answer": said["content"]})]
        calls = [
            ChatMessageToolCall(
                function=ChatMessageToolCallFunction(name=name, arguments=given), id=call, type="function"
            )
            for call, name, given in arguments_of(said) or done
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


def row(what: str, note: str, plug: Any = None) -> dict[str, Any]:
    led = Led()
    agent = ToolCallingAgent(
        tools=[look_up], model=Scripted(led), instructions=scenario.SYSTEM, verbosity_level=LogLevel.OFF
    )
    if plug is not None:
        plug(agent)
    return led.run(what, lambda text: agent.run(text, reset=False), note)


def rows() -> list[dict[str, Any]]:
    note = "calls and results are written as text, so there are no pairs to break"
    return [
        row("own defaults", note),
        row("with Recto", note, lambda agent: RectoMemory(agent, "memory:", **NAMES)),
    ]


if __name__ == "__main__":
    told(rows())
