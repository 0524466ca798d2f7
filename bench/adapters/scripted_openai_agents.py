"""The OpenAI Agents SDK's model interface over a script of Chat messages, for the benchmark and the tests."""

from __future__ import annotations

from typing import Any

from agents import ModelResponse, Usage
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)

from bench.adapters.scenario import count


def seen(system: str | None, items: list[Any]) -> list[dict[str, Any]]:
    """What a model of theirs is sent, in Chat messages."""
    found: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for item in items:
        kind = item.get("type")
        if kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            if found and found[-1]["role"] == "assistant" and "tool_calls" in found[-1]:
                found[-1]["tool_calls"].append(call)
            else:
                found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            found.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
        elif kind == "compaction":
            found.append({"role": "assistant", "content": item["encrypted_content"]})
        elif kind != "reasoning":
            content = item["content"]
            text = content if isinstance(content, str) else "".join(part["text"] for part in content)
            found.append({"role": item["role"], "content": text})
    return found


class Scripted(Model):
    """Their model interface over a script; it thinks before it calls tools."""

    def __init__(self, script: Any, thinks: bool = True) -> None:
        self.script = script
        self.thinks = thinks
        self.items: list[list[Any]] = []
        self.tokens = 0

    def answer(self, system: str | None, items: list[Any]) -> list[Any]:
        self.items.append(list(items))
        prompt = seen(system, items)
        said = self.script.reply(prompt)
        self.tokens = count(prompt)
        number = len(self.items)
        calls = [
            ResponseFunctionToolCall(
                id=f"fc_{call['id']}", call_id=call["id"], type="function_call", status="completed", **call["function"]
            )
            for call in said.get("tool_calls", ())
        ]
        if calls and self.thinks:
            calls = [
                ResponseReasoningItem(id=f"rs_{number}", summary=[], type="reasoning", encrypted_content="x"),
                *calls,
            ]
        text = ResponseOutputText(annotations=[], text=said["content"] or "", type="output_text")
        answer = {"id": f"msg_{number}", "role": "assistant", "status": "completed", "type": "message"}
        return calls or [ResponseOutputMessage(content=[text], **answer)]

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        output = self.answer(system_instructions, input)
        usage = Usage(requests=1, input_tokens=self.tokens, output_tokens=10, total_tokens=self.tokens + 10)
        return ModelResponse(output=output, usage=usage, response_id=f"resp_{len(self.items)}")

    async def stream_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> Any:
        output = self.answer(system_instructions, input)
        about = {"created_at": 0, "model": "m", "object": "response", "tool_choice": "auto", "tools": []}
        response = Response(id="r", output=output, parallel_tool_calls=True, **about)
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)
