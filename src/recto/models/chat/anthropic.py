"""Messages format of Anthropic. Knows JSON, not HTTP."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from recto.context.compaction.protocols import Ending, ModelReply, ModelRequest
from recto.models.chat.http import joined_text, tokens_in
from recto.tokens.meter import replace_surrogates

URL = "https://api.anthropic.com"
PATH = "/v1/messages"
KEY_HEADER = "x-api-key"
HEADERS = {"anthropic-version": "2023-06-01"}
_ENDINGS: dict[object, Ending] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicDialect:
    """Messages, not streamed."""

    model: str
    refusable: Collection[str] = ("temperature",)
    """Some models reject a temperature."""

    def body(self, request: ModelRequest, without: Collection[str]) -> Mapping[str, Any]:
        """Build the request body, without the fields that the model does not accept."""
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "messages": [{"role": "user", "content": replace_surrogates(request.text)}],
        }
        if request.system:
            body["system"] = replace_surrogates(request.system)
        return body if "temperature" in without else {**body, "temperature": 0}

    def reply(self, tree: object) -> ModelReply:
        """Parse a response. Raises `ValueError` with a readable message."""
        if not isinstance(tree, dict) or "content" not in tree:
            raise ValueError("the answer has no 'content'")
        ended, usage = tree.get("stop_reason"), tree.get("usage")
        return ModelReply(
            text=joined_text(tree["content"]),
            ending=_ENDINGS.get(ended if isinstance(ended, str) else "", "unknown"),
            # Tokens read from and written to the cache are counted separately from the rest.
            prompt_tokens=tokens_in(usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
            answer_tokens=tokens_in(usage, "output_tokens"),
        )
