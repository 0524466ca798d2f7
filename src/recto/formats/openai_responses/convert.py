"""Conversion between OpenAI's Responses API and the neutral model: requests, responses and streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from recto.errors import InputError, MalformedMessage
from recto.formats.convert.types import (
    FAILED,
    SHARED_HINTS,
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
    TurnRole,
    cost_from_usage,
    count,
    data_url,
    flag,
    merge_texts,
    number,
    object_list,
    objects_in,
    read_output_schema,
    seal,
    sealed_in,
    split_url,
    stop_for,
    text_chunks,
    write_content,
)
from recto.formats.json_spans import Json
from recto.formats.message import CACHE_MARKS, fields_of, json_of, object_in, text_in
from recto.formats.openai_responses.request import stream_error
from recto.formats.streaming import DONE, SseEvent, error_in, event_object, index_of, sse

_KNOWN: Final = SHARED_HINTS | {
    "input",
    "instructions",
    "model",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "max_tool_calls",
    "temperature",
    "top_p",
    "stream",
    "stream_options",
    "reasoning",
    "text",
    "store",
    "client_metadata",
}
_DEFAULTS: Final[Mapping[str, tuple[Json, ...]]] = {
    "background": (False,),
    "top_logprobs": (0,),
    "truncation": ("disabled", "auto"),  # the prompt is within its budget already
    "include": (["reasoning.encrypted_content"],),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
_ITEM: Final = frozenset({"type", "id", "status", "phase"}) | CACHE_MARKS
_ROLES: Final[Mapping[str, TurnRole]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
}


def read_request(body: Mapping[str, Json], conversion: Conversion) -> CompletionRequest:
    """Reads a request body."""
    conversion.allow_only(body, _KNOWN | _DEFAULTS.keys())
    conversion.require_defaults(body, _DEFAULTS)
    reasoning, text = object_in(body.get("reasoning")), object_in(body.get("text"))
    conversion.allow_only(reasoning, {"effort", "summary", "generate_summary"}, "reasoning")
    conversion.allow_only(text, {"format", "verbosity"}, "text")
    return CompletionRequest(
        model=text_in(body.get("model")),
        turns=(
            *_instructions(body.get("instructions"), conversion),
            *read_turns(_items(body.get("input")), conversion),
        ),
        tools=tuple(_read_tool(tool, conversion, f"tools[{n}]") for n, tool in enumerate(objects_in(body, "tools"))),
        choice=_read_choice(body.get("tool_choice"), conversion),
        parallel=flag(body, "parallel_tool_calls"),
        max_tokens=count(body, "max_output_tokens"),
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        stream=bool(body.get("stream")),
        effort=text_in(reasoning.get("effort")),
        verbosity=text_in(text.get("verbosity")),
        output_schema=_read_schema(text.get("format"), conversion),
        hints={key: value for key, value in body.items() if key in SHARED_HINTS},
    )


def write_request(request: CompletionRequest, conversion: Conversion, max_tokens: int) -> dict[str, Json]:
    """Writes a request body with `"store": false`: in the formats it comes from, the provider stores nothing either."""
    if request.stop:
        raise conversion.unsupported("stop sequences")
    body: dict[str, Json] = {"model": request.model}
    turns = request.turns
    match turns:
        case (ChatTurn(role="system", parts=(TextPart(text=instructions),)), *_):
            body["instructions"] = instructions
            turns = turns[1:]
    body["input"] = list(write_turns(turns, conversion))
    if request.tools:
        body["tools"] = [_write_tool(tool) for tool in request.tools]
    if request.choice is not None:
        body["tool_choice"] = _write_choice(request.choice)
    text: dict[str, Json] = {}
    if request.output_schema is not None:
        text["format"] = _write_schema(request.output_schema)
    if request.verbosity:
        text["verbosity"] = request.verbosity
    optional: dict[str, Json] = {
        "parallel_tool_calls": request.parallel,
        "max_output_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "reasoning": {"effort": request.effort} if request.effort else None,
        "text": text or None,
        "stream": request.stream or None,
        "store": False,
        **request.hints,
    }
    return body | {key: value for key, value in optional.items() if value is not None}


def reasoning_item(part: Thought, conversion: Conversion) -> dict[str, Json]:
    """Writes a reasoning item: the original one, or one that seals another format's reasoning for the client."""
    if part.block and part.block.get("type") == "reasoning":
        return dict(part.block)
    if part.block and not conversion.reply:
        raise conversion.unsupported("reasoning that its model signed or sealed")
    summary: list[Json] = [{"type": "summary_text", "text": part.text}] if part.text else []
    sealed: dict[str, Json] = {"encrypted_content": seal(part.block)} if part.block else {}
    return {"type": "reasoning", "summary": summary, **sealed}


def call_item(call: CallPart) -> dict[str, Json]:
    """Writes a call item."""
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments or "{}"}


def read_cost(value: Json) -> Cost | None:
    """Reads a `usage` object."""
    return cost_from_usage(value, "output_tokens_details")


def write_cost(cost: Cost | None) -> Json:
    """Writes a `usage` object."""
    if cost is None:
        return None
    usage = cost.usage
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": cost.reasoning},
        "total_tokens": usage.prompt + usage.output,
    }


def _instructions(value: Json, conversion: Conversion) -> Iterator[ChatTurn]:
    if isinstance(value, str):
        if value:
            yield ChatTurn(role="system", parts=(TextPart(value),))
    elif value is not None:
        raise conversion.unsupported("'instructions' that are not text")


def _items(value: Json) -> list[dict[str, Json]]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [] if value is None else object_list(value, "input")


def read_turns(items: Iterable[dict[str, Json]], conversion: Conversion, where: str = "input") -> Iterator[ChatTurn]:
    """Reads items. Adjacent items of the assistant, or of tools, are one turn."""
    role: TurnRole | None = None
    parts: list[ContentPart] = []
    for n, item in enumerate(items):
        side, item_parts = _read_item(item, conversion, f"{where}[{n}]")
        if side != role or side not in ("assistant", "tool"):
            if role is not None:
                yield ChatTurn(role=role, parts=tuple(parts))
            role, parts = side, []
        parts += item_parts
    if role is not None:
        yield ChatTurn(role=role, parts=tuple(parts))


def _read_item(item: Mapping[str, Json], conversion: Conversion, where: str) -> tuple[TurnRole, list[ContentPart]]:
    match item.get("type", "message"):
        case "message":
            conversion.allow_only(item, _ITEM | {"role", "content"}, where)
            role = _ROLES.get(text_in(item.get("role")))
            if role is None:
                raise conversion.unsupported(f"{where}.role")
            return role, list(_content(item.get("content"), conversion, where))
        case "reasoning":
            conversion.allow_only(item, _ITEM | {"summary", "content", "encrypted_content"}, where)
            return "assistant", [_thought(item)]
        case "function_call":
            conversion.allow_only(item, _ITEM | {"call_id", "name", "arguments"}, where)
            name, arguments = text_in(item.get("name")), text_in(item.get("arguments"))
            return "assistant", [CallPart(id=text_in(item.get("call_id")), name=name, arguments=arguments)]
        case "function_call_output":
            conversion.allow_only(item, _ITEM | {"call_id", "output"}, where)
            parts = tuple(_content(item.get("output"), conversion, where))
            return "tool", [ResultPart(call_id=text_in(item.get("call_id")), parts=parts)]
        case kind:
            raise conversion.unsupported(f"{where} ({kind})")


def _thought(item: Mapping[str, Json]) -> Thought:
    texts = [text_in(part.get("text")) for key in ("summary", "content") for part in objects_in(item, key)]
    return Thought(text="\n\n".join(texts), block=sealed_in(item))


def _content(content: Json, conversion: Conversion, where: str) -> Iterator[ContentPart]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for n, part in enumerate([] if content is None else object_list(content, "content")):
        here = f"{where}.content[{n}]"
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                conversion.allow_only(part, {"type", "text", "logprobs"} | CACHE_MARKS, here)
                yield TextPart(text)
            case {"type": "refusal", "refusal": str(text)}:
                yield RefusalPart(text)
            case {"type": "input_image", "image_url": str(url)}:
                conversion.allow_only(part, {"type", "image_url", "detail"} | CACHE_MARKS, here)
                kind, data, address = split_url(url)
                yield Picture(media_type=kind, data=data, url=address, detail=text_in(part.get("detail")))
            case {"type": "input_file", "file_data": str(url)} | {"type": "input_file", "file_url": str(url)}:
                conversion.allow_only(part, {"type", "file_data", "file_url", "filename"} | CACHE_MARKS, here)
                kind, data, address = split_url(url)
                yield FilePart(media_type=kind, data=data, url=address, name=text_in(part.get("filename")))
            case _:
                raise conversion.unsupported(f"{here} ({text_in(part.get('type'))})")


def write_turns(turns: Iterable[ChatTurn], conversion: Conversion) -> Iterator[Json]:
    """Writes turns as items."""
    for turn in turns:
        if turn.role not in ("assistant", "tool"):
            yield {"type": "message", "role": turn.role, "content": write_content(turn.parts, conversion, _write_part)}
            continue
        texts: list[TextPart | RefusalPart] = []
        for part in turn.parts:
            if isinstance(part, TextPart | RefusalPart):
                if conversion.reply and texts and type(texts[-1]) is not type(part):
                    yield from _assistant_message(
                        texts, conversion
                    )  # as in a stream, where another kind of part ends the item
                    texts = []
                texts += [part] if part.text else []
                continue
            yield from _assistant_message(texts, conversion)
            texts = []
            yield from _write_item(part, conversion)
        yield from _assistant_message(texts, conversion)


def _assistant_message(parts: Sequence[TextPart | RefusalPart], conversion: Conversion) -> Iterator[Json]:
    match parts:
        case []:
            return
        case [TextPart(text)] if not conversion.reply:
            yield {"type": "message", "role": "assistant", "content": text}
        case _:
            yield {"type": "message", "role": "assistant", "content": [output_part(part) for part in parts]}


def _write_item(part: ContentPart, conversion: Conversion) -> Iterator[Json]:
    match part:
        case Thought():
            if part.text or part.block:
                yield reasoning_item(part, conversion)
        case CallPart():
            yield call_item(part)
        case ResultPart():
            marks = [TextPart(FAILED)] if part.failed else []
            output = write_content([*marks, *part.parts], conversion, _write_part)
            yield {"type": "function_call_output", "call_id": part.call_id, "output": output}
        case _:
            raise conversion.unsupported(f"a {type(part).__name__.lower()} from the assistant")


def output_part(part: TextPart | RefusalPart) -> dict[str, Json]:
    """Writes an output part of the assistant."""
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.text}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}


def _write_part(part: ContentPart, conversion: Conversion) -> Json:
    match part:
        case TextPart(text):
            return {"type": "input_text", "text": text}
        case Picture():
            return {"type": "input_image", "image_url": data_url(part), "detail": part.detail or "auto"}
        case FilePart():
            name: dict[str, Json] = {"filename": part.name} if part.name else {}
            return {"type": "input_file", "file_url" if part.url else "file_data": data_url(part), **name}
        case _:
            raise conversion.unsupported(f"a {type(part).__name__.lower()} in the content of a message")


def _read_tool(tool: Mapping[str, Json], conversion: Conversion, where: str) -> ToolDefinition:
    if tool.get("type") != "function":
        raise conversion.unsupported(f"{where} ({text_in(tool.get('type'))})")
    conversion.allow_only(tool, {"type", "name", "description", "parameters", "strict"} | CACHE_MARKS, where)
    description = text_in(tool.get("description"))
    schema, strict = tool.get("parameters"), flag(tool, "strict")
    return ToolDefinition(name=text_in(tool.get("name")), description=description, schema=schema, strict=strict)


def _write_tool(tool: ToolDefinition) -> Json:
    # without a value, this format is strict and the others are not
    description: dict[str, Json] = {"description": tool.description} if tool.description else {}
    return {
        "type": "function",
        "name": tool.name,
        **description,
        "parameters": tool.schema,
        "strict": tool.strict or False,
    }


def _read_choice(value: Json, conversion: Conversion) -> ToolChoice | None:
    match value:
        case None:
            return None
        case "auto" | "none":
            return ToolChoice(kind=value)
        case "required":
            return ToolChoice(kind="any")
        case {"type": "function", "name": str(name)}:
            return ToolChoice(kind="tool", name=name)
        case _:
            raise conversion.unsupported("'tool_choice'")


def _write_choice(choice: ToolChoice) -> Json:
    if choice.kind == "tool":
        return {"type": "function", "name": choice.name}
    return "required" if choice.kind == "any" else choice.kind


def _read_schema(value: Json, conversion: Conversion) -> OutputSchema | None:
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return OutputSchema()
        case {"type": "json_schema", "schema": dict()}:
            return read_output_schema(object_in(value), conversion, "text.format")
        case _:
            raise conversion.unsupported("'text.format'")


def _write_schema(output_schema: OutputSchema) -> Json:
    if output_schema.schema is None:
        return {"type": "json_object"}
    description: dict[str, Json] = {"description": output_schema.description} if output_schema.description else {}
    strict: dict[str, Json] = {} if output_schema.strict is None else {"strict": output_schema.strict}
    return {
        "type": "json_schema",
        "name": output_schema.name or "answer",
        "schema": output_schema.schema,
        **description,
        **strict,
    }


_INCOMPLETE: Final[Mapping[Stop, str]] = {"length": "max_output_tokens", "filtered": "content_filter"}
_STOPS: Final[Mapping[str, Stop]] = {"max_output_tokens": "length", "content_filter": "filtered", "": "ended"}
_ECHOED: Final[Mapping[str, Json]] = {
    "instructions": None,
    "previous_response_id": None,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "truncation": "disabled",
    "temperature": 1.0,
    "top_p": 1.0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "top_logprobs": 0,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
    "user": None,
}
"""Request members that a response repeats, with their values if the request does not set them."""


def read_completion(body: Mapping[str, Json], conversion: Conversion) -> Completion:
    """Reads a response body."""
    if not isinstance(body.get("output"), list):
        raise MalformedMessage("the reply has no output")
    parts = merge_texts(
        part for turn in read_turns(objects_in(body, "output"), conversion, "output") for part in turn.parts
    )
    return Completion(model=text_in(body.get("model")), parts=parts, ending=read_ending(body, parts))


def read_ending(body: Mapping[str, Json], parts: Sequence[ContentPart]) -> Ending:
    """Reads how a response ended. A reason that no other format has is an ordinary end: the answer is paid for."""
    reason = text_in(object_in(body.get("incomplete_details")).get("reason"))
    return Ending(stop=stop_for(parts, _STOPS.get(reason, "ended")), cost=read_cost(body.get("usage")))


def write_completion(completion: Completion, ids: ResponseIds, conversion: Conversion) -> dict[str, Json]:
    """Writes a response body."""
    turn = ChatTurn(role="assistant", parts=completion.parts)
    items = [with_id(object_in(item), ids, place) for place, item in enumerate(write_turns((turn,), conversion))]
    return finished(ids, completion.model, items, completion.ending)


def stored_completion(
    messages: Sequence[dict[str, Json]], ids: ResponseIds, model: str, stop: str, cost: Cost | None
) -> dict[str, Json]:
    """Writes the response body that holds stored messages. `stop` is the stop reason; empty if unknown."""
    items = [with_id({"type": "message", **item}, ids, place) for place, item in enumerate(messages)]
    return finished(ids, model, items, Ending(stop=_STOPS.get(stop) or "ended", cost=cost))


def envelope(ids: ResponseIds, model: str) -> dict[str, Json]:
    """Writes a response that has started. It repeats members of the request."""
    request: dict[str, Json] = {}
    if ids.request:
        try:
            request = fields_of(ids.request)
        except InputError:
            request = {}
    echoed = {key: usual if request.get(key) is None else request[key] for key, usual in _ECHOED.items()}
    tools = request.get("tools")
    plain: dict[str, Json] = {"description": None, "parameters": None, "strict": None}
    listed = [{**plain, **object_in(tool)} for tool in tools] if isinstance(tools, list) else []
    reasoning: dict[str, Json] = {"effort": None, "summary": None, **object_in(request.get("reasoning"))}
    head: dict[str, Json] = {"id": ids.reply, "object": "response", "created_at": ids.created, "completed_at": None}
    state: dict[str, Json] = {"status": "in_progress", "error": None, "incomplete_details": None, "model": model}
    text: dict[str, Json] = {"format": {"type": "text"}, **object_in(request.get("text"))}
    conversation = request.get("conversation")
    if conversation:
        echoed["conversation"] = {"id": conversation} if isinstance(conversation, str) else conversation
    return (
        head | state | {"output": [], "usage": None, "tools": [*listed], "reasoning": reasoning, "text": text, **echoed}
    )


def finished(ids: ResponseIds, model: str, items: Iterable[Json], ending: Ending) -> dict[str, Json]:
    """Writes a response that has ended."""
    reason = _INCOMPLETE.get(ending.stop)
    return envelope(ids, model) | {
        "status": "incomplete" if reason else "completed",
        "completed_at": None if reason else ids.created,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(items),
        "usage": write_cost(ending.cost),
    }


def with_id(item: dict[str, Json], ids: ResponseIds, place: int) -> dict[str, Json]:
    """Completes an item of a response: adds its id and status."""
    kind = {"message": "msg", "function_call": "fc", "reasoning": "rs"}.get(text_in(item.get("type")), "item")
    named: dict[str, Json] = {"id": ids.item(kind, place), "type": item.get("type")}
    return {**named, **item} if kind == "rs" else {**named, "status": "completed", **item}


_TEXT_DELTAS: Final[Mapping[str, Literal["text", "thought", "refusal"]]] = {
    "output_text.delta": "text",
    "refusal.delta": "refusal",
    "reasoning_summary_text.delta": "thought",
    "reasoning_text.delta": "thought",
}
_PARTS: Final[Mapping[str, ContentPart]] = {
    "text": TextPart(""),
    "thought": Thought(text=""),
    "refusal": RefusalPart(""),
}


class ResponsesStreamReader:
    """Reads the Responses API."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._kinds: dict[int, str] = {}
        self._seen_parts: set[int] = set()
        self._has_calls = False
        self._has_ended = False

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what an event holds."""
        data = event_object(event)
        if data is None:
            return
        index = index_of(data.get("output_index")) or 0
        kind = text_in(data.get("type")) or event.name
        delta = text_in(data.get("delta"))
        response = object_in(data.get("response"))
        match kind.removeprefix("response."):
            case "created":
                yield StreamStart(text_in(response.get("model")))
            case "output_item.added":
                yield from self._open(index, object_in(data.get("item")))
            case kind if kind in _TEXT_DELTAS:
                yield TextDelta(_TEXT_DELTAS[kind], delta)
            case "reasoning_summary_part.added":
                if index in self._seen_parts:
                    yield TextDelta("thought", "\n\n")
                self._seen_parts.add(index)
            case "function_call_arguments.delta":
                self._seen_parts.add(index)
                yield CallDelta(index, delta)
            case "output_item.done":
                yield from self._close(index, object_in(data.get("item")))
            case "completed" | "incomplete" if not self._has_ended:
                self._has_ended = True
                yield StreamEnd(self._ending(response))
            case "failed":
                yield StreamFailure(error_in(response.get("error")))
            case "error":
                yield StreamFailure(error_in(data.get("error") or data))

    def finish(self) -> Iterator[StreamEvent]:
        """Yields nothing: this format marks its end itself."""
        return iter(())

    def _ending(self, response: dict[str, Json]) -> Ending:
        calls = (CallPart(id="", name="", arguments=""),) if self._has_calls else ()
        return read_ending(response, calls)

    def _open(self, index: int, item: dict[str, Json]) -> Iterator[StreamEvent]:
        kind = self._kinds[index] = text_in(item.get("type"))
        if kind == "function_call":
            self._has_calls = True
            yield CallStart(index, text_in(item.get("call_id")), text_in(item.get("name")))
        elif kind not in ("message", "reasoning"):
            raise self._conversion.unsupported(f"output[{index}] ({kind})")

    def _close(self, index: int, item: dict[str, Json]) -> Iterator[StreamEvent]:
        kind = text_in(item.get("type"))
        if index not in self._kinds:
            yield from self._open(index, item)
        if kind == "function_call":
            if index not in self._seen_parts:
                yield CallDelta(index, text_in(item.get("arguments")))
            yield CallEnd(index)
        elif kind == "reasoning":
            block = sealed_in(item)
            yield PartEnd() if block is None else ReasoningSealed(dict(block))
        elif kind == "message":
            for part in objects_in(item, "content"):
                sources: dict[str, Json] = {"annotations": part.get("annotations")}
                self._conversion.allow_only(sources, (), f"output[{index}].content")


class ResponsesStreamWriter:
    """Writes the Responses API, one item after the other."""

    def __init__(self, conversion: Conversion, ids: ResponseIds, include_usage: bool) -> None:
        self._conversion = conversion
        self._ids = ids
        self._model = ""
        self._events = ResponsesEvents()
        self._items: list[Json] = []
        self._open: ContentPart | None = None
        self._text: list[str] = []
        self._block: dict[str, Json] | None = None
        self._has_started = False

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the events for a neutral one."""
        match event:
            case StreamStart(model=model):
                self._has_started, self._model = True, model
                yield from self._events.begin(envelope(self._ids, model))
            case TextDelta(kind=kind, text=text):
                yield from self._begin(_PARTS[kind])
                self._text.append(text)
                yield self._delta(kind, text)
            case ReasoningSealed(block=block):
                yield from self._begin(_PARTS["thought"], summary=False)
                self._block = block
            case CallStart():
                call_id = event.id or self._ids.item("call", len(self._items))
                yield from self._begin(CallPart(id=call_id, name=event.name, arguments=""))
            case CallDelta(text=text) if text:
                self._text.append(text)
                yield self._events.piece("function_call_arguments.delta", {"delta": text})
            case PartEnd() if self._open is not None:
                yield from self._close(self._open, "".join(self._text))
                self._open, self._text, self._block = None, [], None
            case StreamEnd(ending=ending):
                yield from self._events.end(finished(self._ids, self._model, self._items, ending))

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last events of a stream that cannot go on."""
        response = envelope(self._ids, self._model) | {"output": self._items} if self._has_started else None
        return stream_error(code, message, self._events.sequence, response=response)

    def _begin(self, part: ContentPart, *, summary: bool = True) -> Iterator[bytes]:
        if self._open is not None:
            return
        self._open = part
        match part:
            case TextPart() | RefusalPart():
                empty: dict[str, Json] = {"type": "message", "role": "assistant", "content": []}
                yield self._events.open(self._numbered(empty) | {"status": "in_progress"})
                yield self._events.part_added(0, output_part(part))
            case CallPart():
                start = self._numbered(call_item(part)) | {"status": "in_progress", "arguments": ""}
                yield self._events.open(start)
            case _:
                yield self._events.open(self._numbered({"type": "reasoning", "summary": []}))
                if summary:
                    yield self._events.summary_added(0)

    def _delta(self, kind: str, text: str) -> bytes:
        if kind == "thought":
            return self._events.piece("reasoning_summary_text.delta", {"summary_index": 0, "delta": text})
        return self._events.text_delta(0, "output_text" if kind == "text" else "refusal", text)

    def _close(self, part: ContentPart, text: str) -> Iterator[bytes]:
        match part:
            case TextPart() | RefusalPart():
                content = output_part(TextPart(text) if isinstance(part, TextPart) else RefusalPart(text))
                yield from self._events.part_done(0, content)
                item: dict[str, Json] = {"type": "message", "role": "assistant", "content": [content]}
            case CallPart():
                item = call_item(CallPart(id=part.id, name=part.name, arguments=text))
                yield self._events.piece("function_call_arguments.done", {"arguments": item["arguments"]})
            case _:
                if text:
                    yield from self._events.summary_done(0, text)
                item = reasoning_item(Thought(text=text, block=self._block), self._conversion)
                item["id"] = self._numbered({"type": "reasoning"})["id"]  # the id that the item started with
        complete = self._numbered(item)
        self._items.append(complete)
        yield self._events.close(complete)

    def _numbered(self, item: dict[str, Json]) -> dict[str, Json]:
        return with_id(item, self._ids, len(self._items))


class ResponsesEvents:
    """Builds the numbered events of the Responses API; the name of each is its type."""

    def __init__(self) -> None:
        self.sequence = 0
        self._output = -1
        self._item = ""

    def begin(self, response: Mapping[str, Json]) -> Iterator[bytes]:
        """Starts the response."""
        yield self._event("response.created", {"response": dict(response)})
        yield self._event("response.in_progress", {"response": dict(response)})

    def open(self, item: Mapping[str, Json]) -> bytes:
        """Starts an item."""
        self._output += 1
        self._item = text_in(item.get("id"))
        return self._event("response.output_item.added", {"output_index": self._output, "item": dict(item)})

    def close(self, item: Mapping[str, Json]) -> bytes:
        """Ends an item."""
        return self._event("response.output_item.done", {"output_index": self._output, "item": dict(item)})

    def piece(self, kind: str, more: Mapping[str, Json]) -> bytes:
        """Builds an event inside the open item."""
        return self._event(f"response.{kind}", {"item_id": self._item, "output_index": self._output, **more})

    def part_added(self, at: int, part: Mapping[str, Json]) -> bytes:
        """Starts a part of a message."""
        return self.piece("content_part.added", {"content_index": at, "part": dict(part)})

    def part_done(self, at: int, part: Mapping[str, Json]) -> Iterator[bytes]:
        """Ends a part of a message."""
        match part:
            case {"type": "output_text", "text": str(text)}:
                logprobs = part.get("logprobs") or []
                yield self.piece("output_text.done", {"content_index": at, "text": text, "logprobs": logprobs})
            case {"type": "refusal", "refusal": str(text)}:
                yield self.piece("refusal.done", {"content_index": at, "refusal": text})
        yield self.piece("content_part.done", {"content_index": at, "part": dict(part)})

    def text_delta(self, at: int, kind: str, delta: str) -> bytes:
        """Builds the next characters of a part: `output_text` or `refusal`."""
        logprobs: dict[str, Json] = {"logprobs": []} if kind == "output_text" else {}
        return self.piece(f"{kind}.delta", {"content_index": at, "delta": delta, **logprobs})

    def summary_added(self, at: int) -> bytes:
        """Starts a part of the reasoning summary."""
        empty: Json = {"type": "summary_text", "text": ""}
        return self.piece("reasoning_summary_part.added", {"summary_index": at, "part": empty})

    def summary_done(self, at: int, text: str) -> Iterator[bytes]:
        """Ends a part of the reasoning summary."""
        yield self.piece("reasoning_summary_text.done", {"summary_index": at, "text": text})
        part: Json = {"type": "summary_text", "text": text}
        yield self.piece("reasoning_summary_part.done", {"summary_index": at, "part": part})

    def item(self, item: Mapping[str, Json]) -> Iterator[bytes]:
        """Builds all events of a complete item."""
        match item:
            case {"type": "message", "content": list(content)}:
                yield self.open({**item, "status": "in_progress", "content": []})
                for at, part in enumerate(content):
                    yield from self._part(at, object_in(part))
            case {"type": "function_call", "arguments": str(arguments)}:
                yield self.open({**item, "status": "in_progress", "arguments": ""})
                for piece in text_chunks(arguments):
                    yield self.piece("function_call_arguments.delta", {"delta": piece})
                yield self.piece("function_call_arguments.done", {"arguments": arguments})
            case {"type": "reasoning", "summary": list(summary)}:
                yield self.open(
                    {key: value for key, value in item.items() if key != "encrypted_content"} | {"summary": []}
                )
                for at, part in enumerate(summary):
                    text = text_in(object_in(part).get("text"))
                    yield self.summary_added(at)
                    for piece in text_chunks(text):
                        yield self.piece("reasoning_summary_text.delta", {"summary_index": at, "delta": piece})
                    yield from self.summary_done(at, text)
            case _:
                yield self.open(item)
        yield self.close(item)

    def end(self, response: Mapping[str, Json]) -> Iterator[bytes]:
        """Builds the complete response, and the end."""
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
            yield from (self.text_delta(at, kind, piece) for piece in text_chunks(text))
        yield from self.part_done(at, part)

    def _event(self, kind: str, more: Mapping[str, Json]) -> bytes:
        event: dict[str, Json] = {"type": kind, "sequence_number": self.sequence, **more}
        self.sequence += 1
        return sse(kind, json_of(event))


def reader(conversion: Conversion) -> ResponsesStreamReader:
    """Creates a reader for one stream."""
    return ResponsesStreamReader(conversion)


def writer(conversion: Conversion, ids: ResponseIds, include_usage: bool) -> ResponsesStreamWriter:
    """Creates a writer for one stream."""
    return ResponsesStreamWriter(conversion, ids, include_usage)
