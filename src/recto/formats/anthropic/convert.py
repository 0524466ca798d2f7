"""Conversion between Anthropic's Messages API and the neutral model: requests, responses and streams."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from recto.errors import MalformedJson, MalformedMessage
from recto.formats.anthropic.request import stream_error
from recto.formats.arrangement import OPENING
from recto.formats.convert.types import (
    CallDelta,
    CallEnd,
    CallPart,
    CallStart,
    ChatTurn,
    Completion,
    CompletionRequest,
    ContentPart,
    Conversion,
    Cost,
    Ending,
    FilePart,
    OutputSchema,
    PartEnd,
    Picture,
    ReasoningSealed,
    RefusalPart,
    ResponseIds,
    ResultPart,
    Stop,
    StreamEnd,
    StreamEvent,
    StreamFailure,
    StreamStart,
    TextDelta,
    TextPart,
    Thought,
    ToolChoice,
    ToolDefinition,
    cost_from_usage,
    count,
    flag,
    merge_texts,
    number,
    object_list,
    objects_in,
    seal,
    text_chunks,
    unseal,
)
from recto.formats.json_spans import Json
from recto.formats.message import CACHE_MARKS, THINKING, json_of, object_in, text_in, value_in
from recto.formats.streaming import SseEvent, error_in, event_object, index_of, sse
from recto.text.lazy_re import lazy_re

STOP_REASONS: Final[Mapping[Stop, str]] = {
    "ended": "end_turn",
    "length": "max_tokens",
    "calls": "tool_use",
    "sequence": "stop_sequence",
    "filtered": "refusal",
}
_STOPS: Final[Mapping[str, Stop]] = {
    "": "ended",
    "end_turn": "ended",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "calls",
    "stop_sequence": "sequence",
    "refusal": "filtered",
}
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_KNOWN: Final = CACHE_MARKS | {
    "messages",
    "model",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "temperature",
    "top_p",
    "stop_sequences",
    "stream",
    "output_config",
    "thinking",
    "metadata",
    "service_tier",
    "diagnostics",
}
_ID = lazy_re(r"[A-Za-z0-9_-]{1,64}")


def read_request(body: Mapping[str, Json], conversion: Conversion) -> CompletionRequest:
    """Reads a request body."""
    conversion.allow_only(body, _KNOWN)
    if object_in(body.get("thinking")).get("type", "adaptive") not in ("adaptive", "disabled"):
        raise conversion.unsupported("'thinking'")
    config, choice = object_in(body.get("output_config")), object_in(body.get("tool_choice"))
    conversion.allow_only(config, {"effort", "format"}, "output_config")
    no_parallel = flag(choice, "disable_parallel_tool_use")
    stops = body.get("stop_sequences")
    turns = tuple(_read_turns(object_list(body.get("messages"), "messages"), conversion))
    if turns and turns[-1].role == "assistant":
        raise conversion.unsupported("the assistant's message at the end, which the model would go on with,")
    return CompletionRequest(
        model=text_in(body.get("model")),
        turns=(*_system(body.get("system"), conversion), *turns),
        tools=tuple(_read_tool(tool, conversion, f"tools[{n}]") for n, tool in enumerate(objects_in(body, "tools"))),
        choice=_read_choice(choice, conversion),
        parallel=None if no_parallel is None else not no_parallel,
        max_tokens=count(body, "max_tokens"),
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        stop=tuple(text_in(sequence) for sequence in stops) if isinstance(stops, list) else (),
        stream=bool(body.get("stream")),
        effort=text_in(config.get("effort")),
        output_schema=_read_schema(config.get("format"), conversion),
    )


def write_request(request: CompletionRequest, conversion: Conversion, max_tokens: int) -> dict[str, Json]:
    """Writes a request body. This format requires an output limit, so `max_tokens` applies if the request has none."""
    _refuse_unsupported(request, conversion)
    limit = max_tokens if request.max_tokens is None else request.max_tokens
    body: dict[str, Json] = {"model": request.model, "max_tokens": limit}
    start = 0
    while start < len(request.turns) and request.turns[start].role in ("system", "developer"):
        start += 1
    system = [part for turn in request.turns[:start] for part in turn.parts]
    if blocks := list(_write_blocks(system, conversion)):
        body["system"] = blocks
    messages = list(_write_turns(request.turns[start:], conversion))
    if not messages or messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    body["messages"] = [*messages]
    if request.tools:
        body["tools"] = [_write_tool(tool) for tool in request.tools]
    config: dict[str, Json] = {"effort": request.effort} if request.effort else {}
    if request.output_schema is not None:
        config["format"] = {"type": "json_schema", "schema": request.output_schema.schema}
    optional: dict[str, Json] = {
        "tool_choice": _write_choice(request),
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop_sequences": list(request.stop) or None,
        "stream": request.stream or None,
        "output_config": config or None,
    }
    return body | {key: value for key, value in optional.items() if value is not None}


def read_completion(body: Mapping[str, Json], conversion: Conversion) -> Completion:
    """Reads a response body."""
    content = body.get("content")
    if not isinstance(content, list):
        raise MalformedMessage("the reply has no content")
    parts = merge_texts(_assistant_parts(content, conversion, "content"))
    ending = read_ending(text_in(body.get("stop_reason")), body, body.get("usage"))
    return Completion(model=text_in(body.get("model")), parts=parts, ending=ending)


def read_ending(reason: str, fields: Mapping[str, Json], usage: Json) -> Ending:
    """Reads how a response ended. A reason that no other format has is an ordinary end: the answer is paid for."""
    return Ending(
        stop=_STOPS.get(reason, "ended"), sequence=text_in(fields.get("stop_sequence")), cost=read_cost(usage)
    )


def write_completion(completion: Completion, ids: ResponseIds, conversion: Conversion) -> dict[str, Json]:
    """Writes a response body."""
    parts = [TextPart(part.text) if isinstance(part, RefusalPart) else part for part in completion.parts]
    return envelope(ids, completion.model) | {
        "content": list(_write_blocks(parts, conversion)),
        "stop_reason": stop_reason(completion.ending, completion.parts),
        "stop_sequence": completion.ending.sequence or None,
        "usage": write_cost(completion.ending.cost),
    }


def stored_completion(
    messages: Sequence[dict[str, Json]], ids: ResponseIds, model: str, stop: str, cost: Cost | None
) -> dict[str, Json]:
    """Writes the response body that holds stored messages. `stop` is the stop reason; empty if unknown."""
    content = messages[-1].get("content")
    blocks: list[Json] = content if isinstance(content, list) else [{"type": "text", "text": text_in(content)}]
    calls = any(object_in(block).get("type") == "tool_use" for block in blocks)
    reason = stop or STOP_REASONS["calls" if calls else "ended"]
    return envelope(ids, model) | {"content": blocks, "stop_reason": reason, "usage": write_cost(cost)}


def envelope(ids: ResponseIds, model: str) -> dict[str, Json]:
    """Writes a message that has started."""
    head: dict[str, Json] = {"id": ids.reply, "type": "message", "role": "assistant", "model": model, "content": []}
    return head | {"stop_reason": None, "stop_sequence": None, "usage": write_cost(None)}


def stop_reason(ending: Ending, parts: Iterable[ContentPart]) -> str:
    """Returns the stop reason. This format has one for refusals, where others have a refusal part."""
    refused = ending.stop == "ended" and any(isinstance(part, RefusalPart) for part in parts)
    return "refusal" if refused else STOP_REASONS[ending.stop]


def read_cost(value: Json) -> Cost | None:
    """Reads a `usage` object."""
    return cost_from_usage(value, "output_tokens_details", "thinking_tokens")


def write_cost(cost: Cost | None) -> dict[str, Json]:
    """Writes a `usage` object. It counts cached tokens separately."""
    if cost is None:
        return {"input_tokens": 0, "output_tokens": 0}
    usage = cost.usage
    return {
        "input_tokens": max(usage.prompt - usage.cache_read - usage.cache_write, 0),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": cost.reasoning},
    }


def safe_id(call_id: str) -> str:
    """Returns an id that Anthropic accepts: the same one, or a stable hash of it."""
    return (
        call_id if _ID.fullmatch(call_id) else "id_" + hashlib.sha256(call_id.encode(errors="replace")).hexdigest()[:32]
    )


def input_of(call: CallPart, conversion: Conversion) -> dict[str, Json]:
    """Parses the arguments of a call. Raises `CannotCross` unless they are an object, as this format requires."""
    try:
        value = value_in(call.arguments) if call.arguments.strip() else {}
    except MalformedJson:
        value = None
    if not isinstance(value, dict):
        raise conversion.unsupported(f"a call of '{call.name}' whose arguments are no JSON object")
    return value


def _refuse_unsupported(request: CompletionRequest, conversion: Conversion) -> None:
    if request.temperature is not None and request.temperature > 1:
        raise conversion.unsupported("a 'temperature' above 1")
    if request.effort and request.effort not in _EFFORTS:
        raise conversion.unsupported(f"the reasoning effort '{request.effort}'")
    if request.verbosity not in ("", "medium"):
        raise conversion.unsupported("'verbosity'")
    if request.output_schema is not None and request.output_schema.schema is None:
        raise conversion.unsupported("an answer that has to be JSON of no given schema")


def _system(value: Json, conversion: Conversion) -> Iterator[ChatTurn]:
    if isinstance(value, str):
        yield ChatTurn(role="system", parts=(TextPart(value),))
    elif value:
        yield ChatTurn(role="system", parts=tuple(_content(value, conversion, "system")))


def _read_turns(messages: Sequence[dict[str, Json]], conversion: Conversion) -> Iterator[ChatTurn]:
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        conversion.allow_only(message, {"role", "content"} | CACHE_MARKS, where)
        match message.get("role"):
            case "assistant":
                yield ChatTurn(
                    role="assistant", parts=tuple(_assistant_parts(message.get("content"), conversion, where))
                )
            case "system":
                yield ChatTurn(role="system", parts=tuple(_content(message.get("content"), conversion, where)))
            case "user":
                parts = list(_content(message.get("content"), conversion, where))
                if results := tuple(part for part in parts if isinstance(part, ResultPart)):
                    yield ChatTurn(role="tool", parts=results)
                if rest := tuple(part for part in parts if not isinstance(part, ResultPart)):
                    yield ChatTurn(role="user", parts=rest)
            case _:
                raise conversion.unsupported(f"{where}.role")


def _assistant_parts(content: Json, conversion: Conversion, where: str) -> Iterator[ContentPart]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for n, block in enumerate(object_list(content, "content")):
        yield read_block(block, conversion, f"{where}[{n}]")


def read_block(block: Mapping[str, Json], conversion: Conversion, where: str) -> ContentPart:
    """Reads a block of the assistant."""
    match block:
        case {"type": "text", "text": str(text)}:
            conversion.allow_only(block, {"type", "text"} | CACHE_MARKS, where)
            return TextPart(text)
        case {"type": "thinking", "thinking": str(text)}:
            return Thought(text=text, block=sealed_block(block))
        case {"type": "redacted_thinking"}:
            return Thought(text="", block=sealed_block(block))
        case {"type": "tool_use", "id": str(call_id), "name": str(name)}:
            if object_in(block.get("caller")).get("type", "direct") != "direct":
                raise conversion.unsupported(f"{where}.caller")
            conversion.allow_only(block, {"type", "id", "name", "input", "caller"} | CACHE_MARKS, where)
            return CallPart(id=call_id, name=name, arguments=json_of(object_in(block.get("input"))))
        case _:
            raise conversion.unsupported(f"{where} ({text_in(block.get('type'))})")


def _content(content: Json, conversion: Conversion, where: str) -> Iterator[ContentPart]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for n, block in enumerate([] if content is None else object_list(content, "content")):
        here = f"{where}[{n}]"
        match block:
            case {"type": "text", "text": str(text)}:
                conversion.allow_only(block, {"type", "text"} | CACHE_MARKS, here)
                yield TextPart(text)
            case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
                yield Picture(media_type=kind, data=data)
            case {"type": "image", "source": {"type": "url", "url": str(url)}}:
                yield Picture(url=url)
            case {"type": "document", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
                conversion.allow_only(block, {"type", "source", "title"} | CACHE_MARKS, here)
                yield FilePart(media_type=kind, data=data, name=text_in(block.get("title")))
            case {"type": "document", "source": {"type": "url", "url": str(url)}}:
                conversion.allow_only(block, {"type", "source", "title"} | CACHE_MARKS, here)
                yield FilePart(url=url, name=text_in(block.get("title")))
            case {"type": "tool_result", "tool_use_id": str(call_id)}:
                conversion.allow_only(block, {"type", "tool_use_id", "content", "is_error"} | CACHE_MARKS, here)
                parts = tuple(_content(block.get("content"), conversion, here))
                yield ResultPart(call_id=call_id, parts=parts, failed=bool(block.get("is_error")))
            case _:
                raise conversion.unsupported(f"{here} ({text_in(block.get('type'))})")


def _write_turns(turns: Iterable[ChatTurn], conversion: Conversion) -> Iterator[dict[str, Json]]:
    """Merges adjacent turns of one role: the API does so anyway, and some endpoints require it.

    System text inside the conversation is the user's: few models accept it there. Results precede other content.
    """
    for side, group in groupby(turns, key=lambda turn: "assistant" if turn.role == "assistant" else "user"):
        blocks = list(_write_blocks([part for turn in group for part in turn.parts], conversion))
        if side == "user":
            blocks.sort(key=lambda block: object_in(block).get("type") != "tool_result")
        if blocks:
            yield {"role": side, "content": blocks}


def _write_blocks(parts: Iterable[ContentPart], conversion: Conversion) -> Iterator[Json]:
    """Writes parts as blocks. Blank text, which often comes with calls, is dropped, because the API rejects it."""
    for part in parts:
        match part:
            case TextPart(text):
                if text.strip() or conversion.reply:
                    yield {"type": "text", "text": text}
            case Thought():
                yield from _write_thought(part, conversion)
            case CallPart():
                call_id = part.id if conversion.reply else safe_id(part.id)
                yield {"type": "tool_use", "id": call_id, "name": part.name, "input": input_of(part, conversion)}
            case ResultPart():
                failed: dict[str, Json] = {"is_error": True} if part.failed else {}
                content = list(_write_blocks(part.parts, conversion))
                yield {"type": "tool_result", "tool_use_id": safe_id(part.call_id), "content": content, **failed}
            case Picture():
                yield {"type": "image", "source": _source(part)}
            case FilePart():
                title: dict[str, Json] = {"title": part.name} if part.name else {}
                yield {"type": "document", "source": _source(part), **title}
            case RefusalPart(text):
                yield {"type": "text", "text": text}


def _write_thought(part: Thought, conversion: Conversion) -> Iterator[Json]:
    if part.block and part.block.get("type") in THINKING:
        yield dict(part.block)
    elif (part.block or part.text) and not conversion.reply:
        raise conversion.unsupported("reasoning that Anthropic did not sign")
    elif part.text:
        yield {"type": "thinking", "thinking": part.text, "signature": seal(part.block) if part.block else ""}
    elif part.block:
        yield {"type": "redacted_thinking", "data": seal(part.block)}


def sealed_block(block: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Returns what must be sent back for a thinking block: the item sealed in it, or the block; `None` if neither."""
    sealed = text_in(block.get("signature")) or text_in(block.get("data"))
    return unseal(sealed) or block if sealed else None


def _source(part: Picture | FilePart) -> Json:
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type, "data": part.data}


def _read_tool(tool: Mapping[str, Json], conversion: Conversion, where: str) -> ToolDefinition:
    if tool.get("type", "custom") not in ("custom", None):
        raise conversion.unsupported(f"{where} ({tool.get('type')})")
    if tool.get("defer_loading") is True:
        raise conversion.unsupported(f"{where}.defer_loading")
    hints = {"defer_loading", "eager_input_streaming"} | CACHE_MARKS
    conversion.allow_only(tool, hints | {"type", "name", "description", "input_schema", "strict"}, where)
    description = text_in(tool.get("description"))
    schema, strict = tool.get("input_schema"), flag(tool, "strict")
    return ToolDefinition(name=text_in(tool.get("name")), description=description, schema=schema, strict=strict)


def _write_tool(tool: ToolDefinition) -> Json:
    description: dict[str, Json] = {"description": tool.description} if tool.description else {}
    strict: dict[str, Json] = {"strict": True} if tool.strict else {}
    schema: dict[str, Json] = tool.schema if isinstance(tool.schema, dict) else {"properties": {}}
    return {"name": tool.name, **description, "input_schema": {"type": "object", **schema}, **strict}


def _read_choice(value: Mapping[str, Json], conversion: Conversion) -> ToolChoice | None:
    match value.get("type"):
        case None:
            return None
        case "auto" | "none" | "any" as kind:
            return ToolChoice(kind=kind)
        case "tool":
            return ToolChoice(kind="tool", name=text_in(value.get("name")))
        case _:
            raise conversion.unsupported("'tool_choice'")


def _write_choice(request: CompletionRequest) -> Json:
    if not request.tools or (request.choice is None and request.parallel is not False):
        return None
    choice = request.choice or ToolChoice(kind="auto")
    name: dict[str, Json] = {"name": choice.name} if choice.kind == "tool" else {}
    parallel: dict[str, Json] = {}
    if request.parallel is not None and choice.kind != "none":
        parallel["disable_parallel_tool_use"] = not request.parallel
    return {"type": choice.kind, **name, **parallel}


def _read_schema(value: Json, conversion: Conversion) -> OutputSchema | None:
    match value:
        case None:
            return None
        case {"type": "json_schema", "schema": schema}:
            return OutputSchema(schema=schema, strict=True)
        case _:
            raise conversion.unsupported("'output_config.format'")


class AnthropicStreamReader:
    """Reads the Messages API."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._kinds: dict[int, str] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._signatures: dict[int, str] = {}
        self._usage: dict[str, Json] = {}
        self._ending: dict[str, Json] = {}
        self._has_ended = False

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what an event holds."""
        data = event_object(event)
        if data is None:
            return
        index = index_of(data.get("index")) or 0
        match text_in(data.get("type")) or event.name:
            case "message_start":
                message = object_in(data.get("message"))
                self._count(message.get("usage"))
                yield StreamStart(text_in(message.get("model")))
            case "content_block_start":
                yield from self._open(index, object_in(data.get("content_block")))
            case "content_block_delta":
                yield from self._delta(index, object_in(data.get("delta")))
            case "content_block_stop":
                yield from self._close(index)
            case "message_delta":
                self._count(data.get("usage"))
                self._ending |= object_in(data.get("delta"))
            case "message_stop" if not self._has_ended:
                self._has_ended = True
                reason = text_in(self._ending.get("stop_reason"))
                yield StreamEnd(read_ending(reason, self._ending, self._usage))
            case "error":
                yield StreamFailure(error_in(data.get("error")))

    def finish(self) -> Iterator[StreamEvent]:
        """Yields nothing: this format marks its end itself."""
        return iter(())

    def _count(self, usage: Json) -> None:
        self._usage.update({key: value for key, value in object_in(usage).items() if value is not None})

    def _open(self, index: int, block: dict[str, Json]) -> Iterator[StreamEvent]:
        part = read_block(block, self._conversion, f"content[{index}]")
        self._kinds[index] = text_in(block.get("type"))
        if isinstance(part, CallPart):
            yield CallStart(index, part.id, part.name)
            if block.get("input"):
                yield CallDelta(index, part.arguments)
        elif isinstance(part, Thought) and part.block is not None:
            yield ReasoningSealed(dict(part.block))
        elif text := text_in(block.get("text")):
            yield TextDelta("text", text)

    def _delta(self, index: int, delta: dict[str, Json]) -> Iterator[StreamEvent]:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                yield TextDelta("text", text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                yield CallDelta(index, text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._thoughts.setdefault(index, []).append(text)
                yield TextDelta("thought", text)
            case {"type": "signature_delta", "signature": str(signature)}:
                self._signatures[index] = signature
            case {"type": "citations_delta"}:
                self._conversion.allow_only({"citations": delta.get("citation")}, (), f"content[{index}]")
            case _:
                raise self._conversion.unsupported(f"content[{index}] ({text_in(delta.get('type'))})")

    def _close(self, index: int) -> Iterator[StreamEvent]:
        if self._kinds.get(index) == "tool_use":
            yield CallEnd(index)
        elif signature := self._signatures.get(index):
            text = "".join(self._thoughts.get(index, ()))
            block = sealed_block({"type": "thinking", "thinking": text, "signature": signature})
            if block is not None:
                yield ReasoningSealed(dict(block))
        elif index in self._thoughts:
            yield PartEnd()


class AnthropicStreamWriter:
    """Writes the Messages API, one block after the other."""

    def __init__(self, conversion: Conversion, ids: ResponseIds, include_usage: bool) -> None:
        self._conversion = conversion
        self._ids = ids
        self._events = AnthropicEvents()
        self._open = False
        self._call: CallStart | None = None
        self._arguments: list[str] = []
        self._parts: list[ContentPart] = []
        """Parts that determine the stop reason, if the source format does not report it."""

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the events for a neutral one."""
        match event:
            case StreamStart(model=model):
                yield self._events.begin(envelope(self._ids, model))
            case TextDelta():
                yield from self._write_text(event)
            case ReasoningSealed(block=block):
                yield from self._write_sealed(block)
            case CallStart():
                self._call, self._open, self._arguments = event, True, []
                call_id = event.id or self._ids.item("call", len(self._parts))
                self._parts.append(CallPart(id=call_id, name=event.name, arguments=""))
                yield self._events.open({"type": "tool_use", "id": call_id, "name": event.name, "input": {}})
            case CallDelta(text=text) if text:
                self._arguments.append(text)
                yield self._events.delta("input_json_delta", "partial_json", text)
            case PartEnd() if self._open:
                self._check_call()
                self._open = False
                yield self._events.close()
            case StreamEnd(ending=ending):
                yield from self._end(ending)

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last events of a stream that cannot go on."""
        return stream_error(code, message)

    def _write_text(self, event: TextDelta) -> Iterator[bytes]:
        thinking = event.kind == "thought"
        if not self._open:
            self._open = True
            empty: dict[str, Json] = {"type": "thinking", "thinking": "", "signature": ""}
            yield self._events.open(empty if thinking else {"type": "text", "text": ""})
        if event.kind == "refusal" and RefusalPart("") not in self._parts:
            self._parts.append(RefusalPart(""))
        kind = "thinking" if thinking else "text"
        yield self._events.delta(f"{kind}_delta", kind, event.text)

    def _write_sealed(self, block: dict[str, Json]) -> Iterator[bytes]:
        own = block.get("type") in THINKING
        if self._open:
            signature = block.get("signature") if own else seal(block)
            yield self._events.delta("signature_delta", "signature", signature)
        elif own:
            yield from self._events.block(block)
        else:
            yield from self._events.block({"type": "redacted_thinking", "data": seal(block)})

    def _check_call(self) -> None:
        if self._call is not None:
            call = CallPart(id=self._call.id, name=self._call.name, arguments="".join(self._arguments))
            input_of(call, self._conversion)
            self._call = None

    def _end(self, ending: Ending) -> Iterator[bytes]:
        delta: dict[str, Json] = {"stop_reason": stop_reason(ending, self._parts)}
        delta["stop_sequence"] = ending.sequence or None
        yield from self._events.end(delta, write_cost(ending.cost))


class AnthropicEvents:
    """Builds the events of the Messages API, one block after the other."""

    def __init__(self) -> None:
        self._index = -1

    def begin(self, message: Mapping[str, Json]) -> bytes:
        """Starts the message."""
        return _named({"type": "message_start", "message": dict(message)})

    def open(self, block: Mapping[str, Json]) -> bytes:
        """Starts a block."""
        self._index += 1
        return _named({"type": "content_block_start", "index": self._index, "content_block": dict(block)})

    def delta(self, kind: str, key: str, value: Json) -> bytes:
        """Builds one delta of the open block."""
        return _named({"type": "content_block_delta", "index": self._index, "delta": {"type": kind, key: value}})

    def close(self) -> bytes:
        """Ends the open block."""
        return _named({"type": "content_block_stop", "index": self._index})

    def block(self, block: Mapping[str, Json], source: str = "") -> Iterator[bytes]:
        """Builds all events of a complete block. `source` is the exact JSON of a call's input, if it is known."""
        match block:
            case {"type": "text", "text": str(text)}:
                yield self.open({**block, "text": "", **({"citations": []} if block.get("citations") else {})})
                yield from (self.delta("text_delta", "text", piece) for piece in text_chunks(text))
                cited = block.get("citations")
                for citation in cited if isinstance(cited, list) else []:
                    yield self.delta("citations_delta", "citation", citation)
            case {"type": "thinking", "thinking": str(text)}:
                yield self.open({**block, "thinking": "", "signature": ""})
                yield from (self.delta("thinking_delta", "thinking", piece) for piece in text_chunks(text))
                if signature := text_in(block.get("signature")):
                    yield self.delta("signature_delta", "signature", signature)
            case {"type": str(kind), "input": dict()} if kind.endswith("tool_use"):
                yield self.open({**block, "input": {}})
                yield from (
                    self.delta("input_json_delta", "partial_json", piece)
                    for piece in text_chunks(source or json_of(block["input"]))
                )
            case _:
                yield self.open(block)
        yield self.close()

    def end(self, delta: Mapping[str, Json], usage: Json) -> Iterator[bytes]:
        """Builds the stop reason, the usage, and the end."""
        yield _named({"type": "message_delta", "delta": dict(delta), "usage": usage})
        yield _named({"type": "message_stop"})


def _named(event: dict[str, Json]) -> bytes:
    return sse(text_in(event["type"]), json_of(event))


def reader(conversion: Conversion) -> AnthropicStreamReader:
    """Creates a reader for one stream."""
    return AnthropicStreamReader(conversion)


def writer(conversion: Conversion, ids: ResponseIds, include_usage: bool) -> AnthropicStreamWriter:
    """Creates a writer for one stream."""
    return AnthropicStreamWriter(conversion, ids, include_usage)
