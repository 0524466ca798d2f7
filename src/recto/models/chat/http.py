"""A chat model behind an HTTP endpoint: one request, one response, validated.

A dialect defines the wire format of a provider; `recto.models.http` is the transport.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from recto.context.compaction.protocols import Cancelled, ModelReply, ModelRequest
from recto.errors import ModelFailed
from recto.models.http import Endpoint, Trouble, parsed
from recto.tokens.meter import replace_surrogates

ANSWER_MOST = 8 * 1024 * 1024
"""Largest response that is read, in bytes."""
MOST_TOKENS = 10**9
"""Largest plausible token count."""
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


class Dialect(Protocol):
    """The wire format of a provider."""

    @property
    def refusable(self) -> Collection[str]:
        """Fields that some of its models do not accept."""
        ...

    def body(self, request: ModelRequest, without: Collection[str]) -> Mapping[str, Any]:
        """Build the request body, without the fields that the model does not accept."""
        ...

    def reply(self, tree: object) -> ModelReply:
        """Parse a response. Raises `ValueError` with a readable message."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class HostedModel:
    """Calls an endpoint in its wire format."""

    name: str
    window: int
    seconds: float
    """Time limit of one response in seconds; a request may allow less."""
    endpoint: Endpoint
    dialect: Dialect
    _without: frozenset[str] = field(default=frozenset(), init=False, repr=False)
    """Fields that the model is known to reject."""

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """Generate the response to a request. Raises `ModelFailed`."""
        answer = self._answer(request, cancelled)
        try:
            reply = self.dialect.reply(parsed(answer))
        except ValueError as error:
            detail = self.endpoint.complaint(answer)
            raise ModelFailed(self.name, f"{error} ({detail})" if detail else str(error)) from None
        return checked(self.name, reply)

    def close(self) -> None:
        """Close its connections; the next use opens new ones."""
        self.endpoint.close()

    def _answer(self, request: ModelRequest, cancelled: Cancelled | None) -> bytes:
        """Call the endpoint. A field that the model rejects is dropped, permanently if that fixes the request."""
        seconds = min(request.seconds, self.seconds)
        ends = time.monotonic() + seconds
        without = self._without
        while True:
            body = self.dialect.body(request, without)
            got = self.endpoint.post(body, seconds=seconds, ends=ends, most=ANSWER_MOST, cancelled=cancelled)
            if isinstance(got, bytes):
                self._without = without
                return got
            refused = self._refused(got) - without
            if not refused:
                raise ModelFailed(self.name, got.reason)
            without |= refused

    def _refused(self, trouble: Trouble) -> frozenset[str]:
        if trouble.status != 400:
            return frozenset()
        return frozenset(name for name in self.dialect.refusable if name in trouble.reason)


def checked(name: str, reply: ModelReply) -> ModelReply:
    """Return a usable reply, without reasoning text before it. Raises `ModelFailed` otherwise."""
    if reply.ending == "refused":
        raise ModelFailed(name, "it would not answer")
    text = replace_surrogates(_spoken(reply.text))
    if not text:
        late = "it ran out of room before it wrote an answer" if reply.ending == "length" else "its answer is empty"
        raise ModelFailed(name, late)
    return ModelReply(
        text=text, ending=reply.ending, prompt_tokens=reply.prompt_tokens, answer_tokens=reply.answer_tokens
    )


def joined_text(content: object) -> str:
    """Return the text of a response's content: a string, or parts of which some are text. Raises `ValueError`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("there is no text in the answer")
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def tokens_in(usage: object, *names: str) -> int:
    """Sum the usage counts under these names; invalid ones count as 0."""
    if not isinstance(usage, dict):
        return 0
    found = [usage.get(name) for name in names]
    return sum(count for count in found if type(count) is int and 0 <= count <= MOST_TOKENS)


def _spoken(text: str) -> str:
    """Strip reasoning text at the beginning, and surrounding whitespace."""
    at = 0
    while thought := _THOUGHT.match(text, at):
        at = thought.end()
    rest = text[at:].strip()
    return "" if rest.startswith("<think>") else rest
