"""The scenario in LlamaIndex: a FunctionAgent, one memory for all turns."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool

from bench.adapters import scenario
from bench.adapters.led import NAMES, Led, arguments_of, told
from recto.adapters.llama_index import RectoMemory, written


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return scenario.look_up(shelf)


def model_of(led: Led) -> MockFunctionCallingLLM:
    def respond(messages: list[ChatMessage], **more: Any) -> ChatMessage:
        said = led.reply([written(message) for message in messages])
        calls = [
            ToolCallBlock(tool_call_id=call, tool_name=name, tool_kwargs=given)
            for call, name, given in arguments_of(said)
        ]
        text = [TextBlock(text=said["content"])] if said["content"] else []
        return ChatMessage(role="assistant", blocks=[*text, *calls])

    return MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)


def row(what: str, note: str, memory: Any) -> dict[str, Any]:
    led = Led()
    agent = FunctionAgent(
        tools=[FunctionTool.from_defaults(look_up)],
        llm=model_of(led),
        system_prompt=scenario.SYSTEM,
        streaming=False,
    )

    async def asked(text: str) -> None:
        await agent.run(text, memory=memory)

    with asyncio.Runner() as runner:
        return led.run(what, lambda text: runner.run(asked(text)), note)


def rows() -> list[dict[str, Any]]:
    names = {key: value for key, value in NAMES.items() if key != "max_tokens"}
    return [
        row(
            "own defaults",
            "Memory with its token_limit of 30,000; of a run that was refused only the question stays in it",
            Memory.from_defaults("1"),
        ),
        row(
            "own management",
            "Memory with token_limit = window",
            Memory.from_defaults("2", token_limit=scenario.WINDOW),
        ),
        row(
            "with Recto",
            "token_limit = window",
            RectoMemory.from_defaults("1", token_limit=scenario.WINDOW, store="memory:", **names),
        ),
    ]


if __name__ == "__main__":
    told(rows())
