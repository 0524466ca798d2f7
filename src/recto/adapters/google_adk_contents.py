"""Contents of Google's ADK in Chat messages, and back.

ADK takes the ids of calls out of what Gemini gets, and pairs calls with responses by their order. Here a call without
an id gets one that follows from what it says, so that the same history has the same ids each time.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterator
from itertools import groupby

from google.genai import types

from recto.adapters.chat import Blocks, as_text, calls_in, text_in
from recto.engine.following import ChatMessage

_OWN = "recto-call-"
"""How ids begin that are made here; they are never sent."""
_RESULT = "result"


class Telling:
    """One request's contents, told in their order."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._open: dict[str, deque[str]] = {}
        """The ids of calls that wait for their response, by the name of the function."""

    def written(self, content: types.Content) -> Iterator[ChatMessage]:
        """A content in Chat messages."""
        blocks = Blocks(role="assistant" if content.role == "model" else "user")
        for part in content.parts or ():
            self._write(part, blocks)
        return blocks.messages()

    def _write(self, part: types.Part, blocks: Blocks) -> None:
        if call := part.function_call:
            blocks.call(self._called(call), call.name or "", call.args)
        elif response := part.function_response:
            blocks.result(self._answered(response), response.name or "", _output(response))
        elif part.text is not None and part.thought:
            blocks.thinking.append(part.text)
        elif part.text is not None:
            blocks.text(part.text)
        elif part.inline_data and part.inline_data.data is not None:
            blocks.media(part.inline_data.mime_type or "", part.inline_data.data)
        elif part.file_data:
            blocks.media(part.file_data.mime_type or "", part.file_data.file_uri or "")
        else:
            blocks.text(as_text(part.model_dump(mode="json", exclude_none=True)))

    def _called(self, call: types.FunctionCall) -> str:
        name = call.name or ""
        told = hashlib.sha256(f"{name} {as_text(call.args or {})}".encode()).hexdigest()[:12]
        self._seen[told] += 1
        call_id = call.id or f"{_OWN}{told}-{self._seen[told]}"
        self._open.setdefault(name, deque()).append(call_id)
        return call_id

    def _answered(self, response: types.FunctionResponse) -> str:
        waiting = self._open.get(response.name or "", deque())
        if response.id:
            if response.id in waiting:
                waiting.remove(response.id)
            return str(response.id)
        return waiting.popleft() if waiting else f"{_OWN}unknown"


def read(made: list[ChatMessage]) -> Iterator[types.Content]:
    """Contents for some messages that Recto wrote or changed; responses that stand together belong together."""
    for is_result, run in groupby(made, key=lambda one: one["role"] == "tool"):
        if is_result:
            yield types.Content(role="user", parts=[_response(one) for one in run])
            continue
        for one in run:
            role = "model" if one["role"] == "assistant" else "user"
            yield types.Content(role=role, parts=list(_parts(one)))


def is_whole(content: types.Content) -> bool:
    """Whether a content comes with the ids that it will have when it is told again."""
    calls = [part.function_call for part in content.parts or () if part.function_call]
    return all(call.id for call in calls)


def _parts(message: ChatMessage) -> Iterator[types.Part]:
    if text := text_in(message):
        yield types.Part(text=text)
    for call_id, name, arguments in calls_in(message):
        yield types.Part(function_call=types.FunctionCall(id=_sent(call_id), name=name, args=arguments))


def _response(message: ChatMessage) -> types.Part:
    answer = types.FunctionResponse(
        id=_sent(message["tool_call_id"]), name=message.get("name", ""), response={_RESULT: text_in(message)}
    )
    return types.Part(function_response=answer)


def _sent(call_id: str) -> str | None:
    return None if call_id.startswith(_OWN) else call_id


def _output(response: types.FunctionResponse) -> object:
    given = response.response or {}
    return given[_RESULT] if list(given) == [_RESULT] and isinstance(given[_RESULT], str) else given
