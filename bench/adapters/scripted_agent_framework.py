"""Microsoft Agent Framework's client interface over a script of Chat messages, for the benchmark and the tests."""

from __future__ import annotations

import json
from typing import Any

from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)
from agent_framework.exceptions import ChatClientException

from bench.adapters.scenario import count


def seen(messages: Any, options: Any = None) -> list[dict[str, Any]]:
    """What a client of theirs is sent, in Chat messages."""
    system = (options or {}).get("instructions")
    found: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        calls = []
        for content in message.contents:
            if content.type == "function_result":
                found.append({"role": "tool", "tool_call_id": content.call_id, "content": content.result})
            elif content.type == "function_call":
                arguments = content.arguments if isinstance(content.arguments, str) else json.dumps(content.arguments)
                function = {"name": content.name, "arguments": arguments}
                calls.append({"id": content.call_id, "type": "function", "function": function})
        if message.text or calls:
            more = {"tool_calls": calls} if calls else {}
            found.append({"role": str(message.role), "content": message.text, **more})
    return found


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Their client interface over a script, with the layers of their own clients."""

    def __init__(self, script: Any, refuses: list[str] | None = None) -> None:
        super().__init__()
        self.script = script
        self.refuses = refuses or []

    def answer(self, messages: Any, options: Any) -> list[Content]:
        if self.refuses:
            raise ChatClientException(self.refuses.pop())
        said = self.script.reply(seen(messages, options))
        calls = [Content.from_function_call(call["id"], **call["function"]) for call in said.get("tool_calls", ())]
        return calls or [Content.from_text(said["content"] or "")]

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        if stream:

            async def updates() -> Any:
                for content in self.answer(messages, options):
                    yield ChatResponseUpdate(contents=[content], role="assistant")

            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

        async def whole() -> ChatResponse:
            message = Message("assistant", self.answer(messages, options))
            usage = {"input_token_count": count(seen(messages, options)), "output_token_count": 10}
            return ChatResponse(messages=[message], usage_details=usage)

        return whole()
