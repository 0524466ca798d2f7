"""Chat Completions format of OpenAI and compatible servers (vLLM, Ollama, llama.cpp). Knows JSON, not HTTP."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from recto.context.compaction.protocols import Ending, ModelReply, ModelRequest
from recto.models.chat.http import joined_text, tokens_in
from recto.tokens.meter import replace_surrogates

PATH = "/chat/completions"
_ENDINGS: dict[object, Ending] = {"stop": "stop", "length": "length", "content_filter": "refused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIDialect:
    """Chat completions, not streamed."""

    model: str
    refusable: Collection[str] = ("max_tokens", "temperature")
    """Newer models of OpenAI need `max_completion_tokens` and reject a temperature."""

    def body(self, request: ModelRequest, without: Collection[str]) -> Mapping[str, Any]:
        """Build the request body, without the fields that the model does not accept."""
        system = [{"role": "system", "content": replace_surrogates(request.system)}] if request.system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, {"role": "user", "content": replace_surrogates(request.text)}],
            "stream": False,
        }
        body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = request.max_tokens
        return body if "temperature" in without else {**body, "temperature": 0}

    def reply(self, tree: object) -> ModelReply:
        """Parse a response. Raises `ValueError` with a readable message."""
        choices = tree.get("choices") if isinstance(tree, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(tree, dict) or not isinstance(choice, dict) or not isinstance(message, dict):
            raise ValueError("the answer has no message under 'choices'")
        usage = tree.get("usage")
        refused = bool(message.get("refusal"))
        ended = choice.get("finish_reason")
        return ModelReply(
            text="" if refused else joined_text(message.get("content")),
            ending="refused" if refused else _ENDINGS.get(ended if isinstance(ended, str) else "", "unknown"),
            prompt_tokens=tokens_in(usage, "prompt_tokens"),
            answer_tokens=tokens_in(usage, "completion_tokens"),
        )
