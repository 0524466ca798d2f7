"""Google ADK's model interface over a script of Chat messages, for the benchmark and the tests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from bench.adapters.scenario import count


def seen(contents: list[types.Content], system: Any = None) -> list[dict[str, Any]]:
    """What a model of theirs is sent, in Chat messages; calls are paired by their order."""
    found: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    waiting: list[str] = []
    for number, content in enumerate(contents):
        calls, texts = [], []
        for place, part in enumerate(content.parts or ()):
            if response := part.function_response:
                given = response.response["result"]
                found.append({"role": "tool", "tool_call_id": waiting.pop(0), "content": given})
            elif call := part.function_call:
                waiting.append(call.id or f"{number}-{place}")
                function = {"name": call.name, "arguments": json.dumps(call.args)}
                calls.append({"id": waiting[-1], "type": "function", "function": function})
            elif part.text and not part.thought:
                texts.append(part.text)
        more = {"tool_calls": calls} if calls else {}
        if texts or calls:
            role = "assistant" if content.role == "model" else "user"
            found.append({"role": role, "content": "\n".join(texts), **more})
    return found


class Scripted(BaseLlm):
    """Their model interface over a script; like Gemini it gives its calls no ids, unless it is told to."""

    model: str = "scripted"
    script: Any = None
    names_calls: bool = False
    refuses: list[str] = []  # noqa: RUF012  # pydantic copies it

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        if self.refuses:
            raise ValueError(self.refuses.pop())
        prompt = seen(llm_request.contents, llm_request.config.system_instruction)
        said = self.script.reply(prompt)
        parts = [types.Part(text="Hm.", thought=True)]
        for call in said.get("tool_calls", ()):
            told = {"name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
            call_id = call["id"] if self.names_calls else None
            parts.append(types.Part(function_call=types.FunctionCall(id=call_id, **told)))
        if said["content"]:
            parts.append(types.Part(text=said["content"]))
            if stream:
                first = types.Content(role="model", parts=[types.Part(text=said["content"][:3])])
                yield LlmResponse(content=first, partial=True)
        counted = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=count(prompt), candidates_token_count=10
        )
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=counted)
