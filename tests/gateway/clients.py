"""Agents built with each client library: every agent asks questions, runs the tool and keeps its own history.

Requests and parsing are the library's own code; only the loop that the library leaves to its user is written here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.gateway.gateways import Running

Questions: TypeAlias = list[tuple[str, bool]]
"""Each question, and whether its answers are streamed."""
MODEL = "gpt-4o"
SYSTEM = "You read files and answer questions about them."
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
TOOL_DESCRIPTION = "Reads a file."


def file(path: str) -> str:
    """Returns the content of a file: a long text that is different for each path."""
    return f"{path} begins. " + f"Line of {path} with numbers and words. " * 260 + f"{path} ends."


@dataclass
class Agent:
    """The answers that an agent got, and the files that it read."""

    gateway: Running
    answers: list[str] = field(default_factory=list)
    """The text of each answer, as the library returned it."""
    read: list[str] = field(default_factory=list)
    """The files that the model read, in order."""

    @property
    def openai_url(self) -> str:
        return f"{self.gateway.url}/v1"

    def tool(self, path: str) -> str:
        self.read.append(path)
        return file(path)


def openai_chat(agent: Agent, questions: Questions) -> None:
    import openai

    tools: list[Any] = [
        {
            "type": "function",
            "function": {"name": "read_file", "description": TOOL_DESCRIPTION, "parameters": PARAMETERS},
        }
    ]
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    with openai.OpenAI(base_url=agent.openai_url, api_key=agent.gateway.secret, max_retries=0) as client:
        for question, stream in questions:
            messages.append({"role": "user", "content": question})
            while True:
                arguments = {"model": MODEL, "messages": messages, "tools": tools, "max_completion_tokens": 500}
                if stream:
                    with client.chat.completions.stream(**arguments) as events:
                        message = events.get_final_completion().choices[0].message
                else:
                    message = client.chat.completions.create(**arguments).choices[0].message
                messages.append(message.to_dict())
                for call in message.tool_calls or []:
                    result = agent.tool(json.loads(call.function.arguments)["path"])
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
                if not message.tool_calls:
                    agent.answers.append(message.content or "")
                    break


def openai_responses(agent: Agent, questions: Questions) -> None:
    asyncio.run(_openai_responses(agent, questions))


async def _openai_responses(agent: Agent, questions: Questions) -> None:
    import openai

    tools: list[Any] = [
        {
            "type": "function",
            "name": "read_file",
            "description": TOOL_DESCRIPTION,
            "parameters": PARAMETERS,
            "strict": True,
        }
    ]
    items: list[Any] = []
    async with openai.AsyncOpenAI(base_url=agent.openai_url, api_key=agent.gateway.secret, max_retries=0) as client:
        for question, stream in questions:
            items.append({"role": "user", "content": question})
            while True:
                arguments = {"model": MODEL, "input": items, "tools": tools, "instructions": SYSTEM}
                if stream:
                    async with client.responses.stream(**arguments) as events:
                        response = await events.get_final_response()
                else:
                    response = await client.responses.create(**arguments)
                items += response.output
                calls = [item for item in response.output if item.type == "function_call"]
                for call in calls:
                    result = agent.tool(json.loads(call.arguments)["path"])
                    items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
                if not calls:
                    agent.answers.append(response.output_text)
                    break


def anthropic_messages(agent: Agent, questions: Questions) -> None:
    import anthropic

    tools: list[Any] = [{"name": "read_file", "description": TOOL_DESCRIPTION, "input_schema": PARAMETERS}]
    messages: list[Any] = []
    with anthropic.Anthropic(base_url=agent.gateway.url, api_key=agent.gateway.secret, max_retries=0) as client:
        for question, stream in questions:
            messages.append({"role": "user", "content": question})
            while True:
                arguments = {"model": MODEL, "max_tokens": 500, "system": SYSTEM, "messages": messages, "tools": tools}
                if stream:
                    with client.messages.stream(**arguments) as events:
                        reply = events.get_final_message()
                else:
                    reply = client.messages.create(**arguments)
                messages.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
                results = [
                    {"type": "tool_result", "tool_use_id": block.id, "content": agent.tool(block.input["path"])}
                    for block in reply.content
                    if block.type == "tool_use"
                ]
                if not results:
                    agent.answers.append("".join(block.text for block in reply.content if block.type == "text"))
                    break
                messages.append({"role": "user", "content": results})


def anthropic_runner(agent: Agent, questions: Questions) -> None:
    """Runs the library's own loop, which first requests a thread."""
    asyncio.run(_anthropic_runner(agent, questions))


async def _anthropic_runner(agent: Agent, questions: Questions) -> None:
    import anthropic

    @anthropic.beta_async_tool
    async def read_file(path: str) -> str:
        """Reads a file.

        Args:
            path: where it is
        """
        return agent.tool(path)

    messages: list[Any] = []
    async with anthropic.AsyncAnthropic(
        base_url=agent.gateway.url, api_key=agent.gateway.secret, max_retries=0
    ) as client:
        for question, stream in questions:
            messages.append({"role": "user", "content": question})
            runner = client.beta.messages.tool_runner(
                model=MODEL, max_tokens=500, system=SYSTEM, messages=messages, tools=[read_file], stream=stream
            )
            async for step in runner:
                reply = await step.get_final_message() if stream else step
                messages.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
                results = await runner.generate_tool_call_response()
                if results is not None:
                    messages.append(results)
            agent.answers.append("".join(block.text for block in reply.content if block.type == "text"))


def pydantic_chat(agent: Agent, questions: Questions) -> None:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=agent.openai_url, api_key=agent.gateway.secret)
    _pydantic(agent, questions, OpenAIChatModel(MODEL, provider=provider))


def pydantic_responses(agent: Agent, questions: Questions) -> None:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=agent.openai_url, api_key=agent.gateway.secret)
    _pydantic(agent, questions, OpenAIResponsesModel(MODEL, provider=provider))


def pydantic_anthropic(agent: Agent, questions: Questions) -> None:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(base_url=agent.gateway.url, api_key=agent.gateway.secret)
    _pydantic(agent, questions, AnthropicModel(MODEL, provider=provider))


def _pydantic(agent: Agent, questions: Questions, model: Any) -> None:
    from pydantic_ai import Agent as PydanticAgent

    made = PydanticAgent(model, instructions=SYSTEM, tools=[_named(agent)], model_settings={"max_tokens": 500})

    async def seen(context: Any, events: Any) -> None:
        async for _ in events:
            pass

    async def run_agent() -> None:
        history: list[Any] = []
        async with made:
            for question, stream in questions:
                watch = seen if stream else None  # with an event handler, the library requests streams
                done = await made.run(question, message_history=history, event_stream_handler=watch)
                agent.answers.append(done.output)
                history = done.all_messages()

    asyncio.run(run_agent())


def agents_chat(agent: Agent, questions: Questions) -> None:
    from agents import OpenAIChatCompletionsModel

    _agents(agent, questions, OpenAIChatCompletionsModel)


def agents_responses(agent: Agent, questions: Questions) -> None:
    from agents import OpenAIResponsesModel

    _agents(agent, questions, OpenAIResponsesModel)


def _agents(agent: Agent, questions: Questions, kind: Any) -> None:
    import openai
    from agents import Agent as OpenAIAgent
    from agents import RunConfig, Runner, function_tool

    async def run_agent() -> None:
        history: list[Any] = []
        async with openai.AsyncOpenAI(base_url=agent.openai_url, api_key=agent.gateway.secret, max_retries=0) as client:
            model = kind(model=MODEL, openai_client=client)
            tool = function_tool(_named(agent))
            made: Any = OpenAIAgent(name="reader", instructions=SYSTEM, model=model, tools=[tool])
            untraced = RunConfig(tracing_disabled=True)
            for question, stream in questions:
                messages = [*history, {"role": "user", "content": question}]
                if stream:
                    result: Any = Runner.run_streamed(made, messages, max_turns=30, run_config=untraced)
                    async for _ in result.stream_events():
                        pass
                else:
                    result = await Runner.run(made, messages, max_turns=30, run_config=untraced)
                agent.answers.append(result.final_output)
                history = result.to_input_list()

    asyncio.run(run_agent())


def _named(agent: Agent) -> Callable[[str], str]:
    def read_file(path: str) -> str:
        """Reads a file."""
        return agent.tool(path)

    return read_file


SPOKEN: dict[Callable[[Agent, Questions], None], str] = {
    openai_chat: "chat",
    pydantic_chat: "chat",
    agents_chat: "chat",
    openai_responses: "responses",
    pydantic_responses: "responses",
    agents_responses: "responses",
    anthropic_messages: "messages",
    anthropic_runner: "messages",
    pydantic_anthropic: "messages",
}
"""The format that the library of each agent speaks."""
