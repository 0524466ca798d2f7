"""A model that writes text behind an endpoint: one question over HTTP, one answer, checked before it is believed.

How providers write questions and answers is known to a dialect; how they are carried, to `models/http.py`.
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
from recto.tokens.estimates import replace_surrogates

ANSWER_MOST = 8 * 1024 * 1024
"""Bytes of an answer that are read at most."""
MOST_TOKENS = 10**9
"""A count above it is nonsense."""
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


class Dialect(Protocol):
    """How a provider's questions and answers are written."""

    @property
    def refusable(self) -> Collection[str]:
        """Fields that some of its models do not take."""
        ...

    def body(self, request: ModelRequest, without: Collection[str]) -> Mapping[str, Any]:
        """The question, without the fields that the model does not take."""
        ...

    def reply(self, tree: object) -> ModelReply:
        """What an answer says. Raises `ValueError` in plain words where it is none."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class HostedModel:
    """Asks an endpoint in its dialect."""

    name: str
    window: int
    seconds: float
    """The longest that one answer may take; a request may allow less."""
    endpoint: Endpoint
    dialect: Dialect
    _without: frozenset[str] = field(default=frozenset(), init=False, repr=False)
    """Fields that the model is known not to take."""

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """The answer to a request. Raises `ModelFailed`."""
        answer = self._answer(request, cancelled)
        try:
            reply = self.dialect.reply(parsed(answer))
        except ValueError as error:
            said = self.endpoint.complaint(answer)
            raise ModelFailed(self.name, f"{error} ({said})" if said else str(error)) from None
        return checked(self.name, reply)

    def close(self) -> None:
        """Lets go of its connections; the next use makes new ones."""
        self.endpoint.close()

    def _answer(self, request: ModelRequest, cancelled: Cancelled | None) -> bytes:
        """What came back. A field that the model does not take is left out, from then on too if that was the cure."""
        ends = time.monotonic() + min(request.seconds, self.seconds)
        without = self._without
        while True:
            body = self.dialect.body(request, without)
            left = max(ends - time.monotonic(), 0.0)
            got = self.endpoint.post(body, seconds=left, most=ANSWER_MOST, cancelled=cancelled)
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
    """A reply that can be used: without what a model thought aloud before it. Raises `ModelFailed` for any other."""
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
    """The text of an answer's content: a text, or parts of which some are text. Raises `ValueError`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("there is no text in the answer")
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def tokens_in(usage: object, *names: str) -> int:
    """What a provider counted under these names together; what is no count counts for nothing."""
    if not isinstance(usage, dict):
        return 0
    found = [usage.get(name) for name in names]
    return sum(count for count in found if type(count) is int and 0 <= count <= MOST_TOKENS)


def _spoken(text: str) -> str:
    """A text without the thoughts at its beginning, and without blanks around it."""
    at = 0
    while thought := _THOUGHT.match(text, at):
        at = thought.end()
    rest = text[at:].strip()
    return "" if rest.startswith("<think>") else rest
