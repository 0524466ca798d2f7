"""Strands' model interface over a script of Chat messages, for the benchmark and the tests."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

from strands.models import Model
from strands.types.exceptions import ContextWindowOverflowException

from bench.adapters.scenario import PromptTooLong, count


def seen(messages: list[Any], system: str | None = None) -> list[dict[str, Any]]:
    """What a model of theirs is sent, in Chat messages."""
    found: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        calls, texts = [], []
        for block in message["content"]:
            if "toolResult" in block:
                text = "".join(part["text"] for part in block["toolResult"]["content"])
                found.append({"role": "tool", "tool_call_id": block["toolResult"]["toolUseId"], "content": text})
            elif "toolUse" in block:
                function = {"name": block["toolUse"]["name"], "arguments": json.dumps(block["toolUse"]["input"])}
                calls.append({"id": block["toolUse"]["toolUseId"], "type": "function", "function": function})
            else:
                texts.append(block["text"])
        more = {"tool_calls": calls} if calls else {}
        if texts or calls:
            found.append({"role": message["role"], "content": "\n".join(texts), **more})
    return found


class Scripted(Model):
    """Their model interface over a script."""

    def __init__(self, script: Any, refuses: list[str] | None = None, window: int | None = None) -> None:
        self.script = script
        self.refuses = refuses or []
        self.config = {"context_window_limit": window}
        self.sent: list[list[Any]] = []

    def update_config(self, **config: Any) -> None: ...

    def get_config(self) -> Any:
        return self.config

    def structured_output(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **more: Any
    ) -> AsyncIterator[Any]:
        if self.refuses:
            raise ContextWindowOverflowException(self.refuses.pop())
        self.sent.append(copy.deepcopy(messages))
        prompt = seen(messages, system_prompt)
        try:
            said = self.script.reply(prompt)
        except PromptTooLong as error:  # as their own models say it
            raise ContextWindowOverflowException(str(error)) from error
        calls = said.get("tool_calls", ())
        yield {"messageStart": {"role": "assistant"}}
        for call in calls:
            use = {"name": call["function"]["name"], "toolUseId": call["id"]}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call["function"]["arguments"]}}}}
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": said["content"]}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}
        tokens = count(prompt)
        usage = {"inputTokens": tokens, "outputTokens": 10, "totalTokens": tokens + 10}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}
