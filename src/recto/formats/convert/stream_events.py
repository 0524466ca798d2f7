"""The events of each protocol's streams, in the order its clients rely on.

Each writer knows one protocol and what it has written so far. What there is to say comes from outside: from an answer
that is read again, or piece by piece from a stream in another format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in
from recto.formats.sse import DONE, sse

_PIECE: Final = 4096
"""Characters of a text that are told at once when all of it is known."""


def pieces(text: str) -> Iterator[str]:
    """A text, cut where it does not matter."""
    for at in range(0, len(text), _PIECE):
        yield text[at : at + _PIECE]


class ChatEvents:
    """Chunks of Chat Completions. No other events are written: clients look for `choices` in each."""

    def __init__(self, head: Mapping[str, Json], *, include_usage: bool) -> None:
        self._head: dict[str, Json] = {**head, "object": "chat.completion.chunk"}
        self._include_usage = include_usage

    def delta(self, delta: Mapping[str, Json], finish: str | None = None) -> bytes:
        """One chunk."""
        choice: Json = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
        usage: dict[str, Json] = {"usage": None} if self._include_usage else {}
        return sse(None, json_of({**self._head, "choices": [choice], **usage}))

    def end(self, finish: str, usage: Json) -> Iterator[bytes]:
        """The last chunks: why it ended, what it cost where that was asked for, and the end."""
        yield self.delta({}, finish)
        if self._include_usage and usage is not None:
            yield sse(None, json_of({**self._head, "choices": [], "usage": usage}))
        yield sse(None, DONE)


class AnthropicEvents:
    """Events of the Messages API: one block after the other."""

    def __init__(self) -> None:
        self._index = -1

    def begin(self, message: Mapping[str, Json]) -> bytes:
        """The message, before anything is in it."""
        return _named({"type": "message_start", "message": dict(message)})

    def open(self, block: Mapping[str, Json]) -> bytes:
        """A block, before its deltas."""
        self._index += 1
        return _named({"type": "content_block_start", "index": self._index, "content_block": dict(block)})

    def delta(self, kind: str, key: str, value: Json) -> bytes:
        """One delta of the open block."""
        return _named({"type": "content_block_delta", "index": self._index, "delta": {"type": kind, key: value}})

    def close(self) -> bytes:
        """The end of the open block."""
        return _named({"type": "content_block_stop", "index": self._index})

    def block(self, block: Mapping[str, Json], source: str = "") -> Iterator[bytes]:
        """A whole block. The input of a call may be given as it was written."""
        match block:
            case {"type": "text", "text": str(text)}:
                yield self.open({**block, "text": "", **({"citations": []} if block.get("citations") else {})})
                yield from (self.delta("text_delta", "text", piece) for piece in pieces(text))
                cited = block.get("citations")
                for citation in cited if isinstance(cited, list) else []:
                    yield self.delta("citations_delta", "citation", citation)
            case {"type": "thinking", "thinking": str(text)}:
                yield self.open({**block, "thinking": "", "signature": ""})
                yield from (self.delta("thinking_delta", "thinking", piece) for piece in pieces(text))
                if signature := text_in(block.get("signature")):
                    yield self.delta("signature_delta", "signature", signature)
            case {"type": str(kind), "input": dict()} if kind.endswith("tool_use"):
                yield self.open({**block, "input": {}})
                yield from (
                    self.delta("input_json_delta", "partial_json", piece)
                    for piece in pieces(source or json_of(block["input"]))
                )
            case _:
                yield self.open(block)
        yield self.close()

    def end(self, delta: Mapping[str, Json], usage: Json) -> Iterator[bytes]:
        """Why it ended and what it cost, and the end."""
        yield _named({"type": "message_delta", "delta": dict(delta), "usage": usage})
        yield _named({"type": "message_stop"})


class ResponsesEvents:
    """Events of the Responses API, numbered; the name of each is its type."""

    def __init__(self) -> None:
        self.sequence = 0
        self._output = -1
        self._item = ""

    def begin(self, response: Mapping[str, Json]) -> Iterator[bytes]:
        """The response, before anything is in it."""
        yield self._event("response.created", {"response": dict(response)})
        yield self._event("response.in_progress", {"response": dict(response)})

    def open(self, item: Mapping[str, Json]) -> bytes:
        """An item, before what is in it."""
        self._output += 1
        self._item = text_in(item.get("id"))
        return self._event("response.output_item.added", {"output_index": self._output, "item": dict(item)})

    def close(self, item: Mapping[str, Json]) -> bytes:
        """An item, finished."""
        return self._event("response.output_item.done", {"output_index": self._output, "item": dict(item)})

    def piece(self, kind: str, more: Mapping[str, Json]) -> bytes:
        """Something inside the open item."""
        return self._event(f"response.{kind}", {"item_id": self._item, "output_index": self._output, **more})

    def part_added(self, at: int, part: Mapping[str, Json]) -> bytes:
        """A part of a message, before its text."""
        return self.piece("content_part.added", {"content_index": at, "part": dict(part)})

    def part_done(self, at: int, part: Mapping[str, Json]) -> Iterator[bytes]:
        """A part of a message, finished."""
        match part:
            case {"type": "output_text", "text": str(text)}:
                logprobs = part.get("logprobs") or []
                yield self.piece("output_text.done", {"content_index": at, "text": text, "logprobs": logprobs})
            case {"type": "refusal", "refusal": str(text)}:
                yield self.piece("refusal.done", {"content_index": at, "refusal": text})
        yield self.piece("content_part.done", {"content_index": at, "part": dict(part)})

    def text_delta(self, at: int, kind: str, delta: str) -> bytes:
        """The next words of a part: `output_text` or `refusal`."""
        logprobs: dict[str, Json] = {"logprobs": []} if kind == "output_text" else {}
        return self.piece(f"{kind}.delta", {"content_index": at, "delta": delta, **logprobs})

    def summary_added(self, at: int) -> bytes:
        """A part of the reasoning's summary, before its text."""
        empty: Json = {"type": "summary_text", "text": ""}
        return self.piece("reasoning_summary_part.added", {"summary_index": at, "part": empty})

    def summary_done(self, at: int, text: str) -> Iterator[bytes]:
        """A part of the reasoning's summary, finished."""
        yield self.piece("reasoning_summary_text.done", {"summary_index": at, "text": text})
        part: Json = {"type": "summary_text", "text": text}
        yield self.piece("reasoning_summary_part.done", {"summary_index": at, "part": part})

    def item(self, item: Mapping[str, Json]) -> Iterator[bytes]:
        """A whole item."""
        match item:
            case {"type": "message", "content": list(content)}:
                yield self.open({**item, "status": "in_progress", "content": []})
                for at, part in enumerate(content):
                    yield from self._part(at, object_in(part))
            case {"type": "function_call", "arguments": str(arguments)}:
                yield self.open({**item, "status": "in_progress", "arguments": ""})
                for piece in pieces(arguments):
                    yield self.piece("function_call_arguments.delta", {"delta": piece})
                yield self.piece("function_call_arguments.done", {"arguments": arguments})
            case {"type": "reasoning", "summary": list(summary)}:
                yield self.open({key: value for key, value in item.items() if key != "encrypted_content"} | _UNSAID)
                for at, part in enumerate(summary):
                    text = text_in(object_in(part).get("text"))
                    yield self.summary_added(at)
                    for piece in pieces(text):
                        yield self.piece("reasoning_summary_text.delta", {"summary_index": at, "delta": piece})
                    yield from self.summary_done(at, text)
            case _:
                yield self.open(item)
        yield self.close(item)

    def end(self, response: Mapping[str, Json]) -> Iterator[bytes]:
        """The whole response, and the end."""
        status = text_in(response.get("status"))
        kind = status if status in ("incomplete", "failed") else "completed"
        yield self._event(f"response.{kind}", {"response": dict(response)})
        yield sse(None, DONE)

    def _part(self, at: int, part: dict[str, Json]) -> Iterator[bytes]:
        kind = text_in(part.get("type"))
        key = "refusal" if kind == "refusal" else "text"
        text = text_in(part.get(key))
        if kind not in ("output_text", "refusal"):
            yield self.part_added(at, part)
        else:
            yield self.part_added(at, {**part, key: ""})
            yield from (self.text_delta(at, kind, piece) for piece in pieces(text))
        yield from self.part_done(at, part)

    def _event(self, kind: str, more: Mapping[str, Json]) -> bytes:
        event: dict[str, Json] = {"type": kind, "sequence_number": self.sequence, **more}
        self.sequence += 1
        return sse(kind, json_of(event))


_UNSAID: Final[dict[str, Json]] = {"summary": []}


def _named(event: dict[str, Json]) -> bytes:
    return sse(text_in(event["type"]), json_of(event))
