"""Conversion between OpenAI's Chat Completions and the neutral model: requests, responses and streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from recto.errors import MalformedMessage
from recto.formats.convert.types import (
    FAILED,
    SHARED_HINTS,
    CallDelta,
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
    read_detail,
    read_output_schema,
    signs_earlier_text,
    split_url,
    stop_for,
    write_content,
    write_detail,
)
from recto.formats.json_spans import Json
from recto.formats.message import CACHE_MARKS, json_of, object_in, text_in
from recto.formats.openai_chat.request import stream_error
from recto.formats.streaming import DONE, SseEvent, error_in, event_object, index_of, sse

FINISH: Final[Mapping[Stop, str]] = {
    "ended": "stop",
    "sequence": "stop",
    "length": "length",
    "calls": "tool_calls",
    "filtered": "content_filter",
}
STOPS: Final[Mapping[str, Stop]] = {"length": "length", "tool_calls": "calls", "content_filter": "filtered"}

_KNOWN: Final = SHARED_HINTS | {
    "messages",
    "model",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "stream",
    "stream_options",
    "reasoning_effort",
    "response_format",
    "verbosity",
    "store",
}
_DEFAULTS: Final[Mapping[str, tuple[Json, ...]]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
}
_ROLES: Final[Mapping[str, TurnRole]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_MESSAGE: Final = frozenset({"role", "content"}) | CACHE_MARKS
_ASSISTANT: Final = _MESSAGE | {"tool_calls", "refusal", "reasoning_content", "reasoning", "reasoning_details", "id"}


def read_request(body: Mapping[str, Json], conversion: Conversion) -> CompletionRequest:
    """Reads a request body."""
    conversion.allow_only(body, _KNOWN | _DEFAULTS.keys())
    conversion.require_defaults(body, _DEFAULTS)
    limit = count(body, "max_completion_tokens")
    stop = body.get("stop")
    sequences = [stop] if isinstance(stop, str) else stop
    return CompletionRequest(
        model=text_in(body.get("model")),
        turns=tuple(_read_turns(object_list(body.get("messages"), "messages"), conversion)),
        tools=tuple(_read_tool(tool, conversion, f"tools[{n}]") for n, tool in enumerate(objects_in(body, "tools"))),
        choice=_read_choice(body.get("tool_choice"), conversion),
        parallel=flag(body, "parallel_tool_calls"),
        max_tokens=count(body, "max_tokens") if limit is None else limit,
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        stop=tuple(text_in(sequence) for sequence in sequences) if isinstance(sequences, list) else (),
        stream=bool(body.get("stream")),
        effort=text_in(body.get("reasoning_effort")),
        verbosity=text_in(body.get("verbosity")),
        output_schema=_read_schema(body.get("response_format"), conversion),
        hints={key: value for key, value in body.items() if key in SHARED_HINTS},
    )


def write_request(request: CompletionRequest, conversion: Conversion, max_tokens: int) -> dict[str, Json]:
    """Writes a request body. A stream always includes its usage, because the other formats always report it."""
    body: dict[str, Json] = {"model": request.model, "messages": list(_write_turns(request.turns, conversion))}
    if request.tools:
        body["tools"] = [_write_tool(tool) for tool in request.tools]
    if request.choice is not None:
        body["tool_choice"] = _write_choice(request.choice)
    if request.output_schema is not None:
        body["response_format"] = _write_schema(request.output_schema)
    if request.stream:
        body["stream"], body["stream_options"] = True, {"include_usage": True}
    optional: dict[str, Json] = {
        "parallel_tool_calls": request.parallel,
        "max_completion_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": list(request.stop) or None,
        "reasoning_effort": request.effort or None,
        "verbosity": request.verbosity or None,
        **request.hints,
    }
    return body | {key: value for key, value in optional.items() if value is not None}


def read_completion(body: Mapping[str, Json], conversion: Conversion) -> Completion:
    """Reads a response body."""
    choices = body.get("choices")
    first = object_in(choices[0]) if isinstance(choices, list) and choices else {}
    message = first.get("message")
    if not isinstance(message, dict):
        raise MalformedMessage("the reply has no choices[0].message")
    finish = text_in(first.get("finish_reason"))
    parts = merge_texts(_assistant_parts(message, conversion, "message"))
    ending = Ending(stop=stop_for(parts, STOPS.get(finish, "ended")), cost=read_cost(body.get("usage")))
    return Completion(model=text_in(body.get("model")), parts=parts, ending=ending)


def write_completion(completion: Completion, ids: ResponseIds, conversion: Conversion) -> dict[str, Json]:
    """Writes a response body."""
    message = _write_assistant(completion.parts, conversion)
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = "".join(text_in(object_in(part).get("text")) for part in content)
    choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH[completion.ending.stop]}
    return {
        "id": ids.reply,
        "object": "chat.completion",
        "created": ids.created,
        "model": completion.model,
        "choices": [choice],
        "usage": write_cost(completion.ending.cost),
    }


def stored_completion(
    messages: Sequence[dict[str, Json]], ids: ResponseIds, model: str, stop: str, cost: Cost | None
) -> dict[str, Json]:
    """Writes the response body that holds stored messages. `stop` is the stop reason; empty if unknown."""
    finish = stop or FINISH["calls" if messages[-1].get("tool_calls") else "ended"]
    choice: Json = {"index": 0, "message": messages[-1], "logprobs": None, "finish_reason": finish}
    head: dict[str, Json] = {"id": ids.reply, "object": "chat.completion", "created": ids.created, "model": model}
    return head | {"choices": [choice], "usage": write_cost(cost)}


def read_cost(value: Json) -> Cost | None:
    """Reads a `usage` object."""
    return cost_from_usage(value, "completion_tokens_details")


def write_cost(cost: Cost | None) -> Json:
    """Writes a `usage` object."""
    if cost is None:
        return None
    usage = cost.usage
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": cost.reasoning},
    }


def _read_turns(messages: Sequence[dict[str, Json]], conversion: Conversion) -> Iterator[ChatTurn]:
    results: list[ContentPart] = []
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        role = _ROLES.get(text_in(message.get("role")))
        if role is None:
            raise conversion.unsupported(f"{where}.role")
        if role == "tool":
            conversion.allow_only(message, _MESSAGE | {"tool_call_id", "name"}, where)
            parts = tuple(_content(message.get("content"), conversion, where))
            results.append(ResultPart(call_id=text_in(message.get("tool_call_id")), parts=parts))
            continue
        if results:
            yield ChatTurn(role="tool", parts=tuple(results))
            results = []
        if role == "assistant":
            yield ChatTurn(role=role, parts=tuple(_assistant_parts(message, conversion, where)))
        else:
            conversion.allow_only(message, _MESSAGE, where)
            yield ChatTurn(role=role, parts=tuple(_content(message.get("content"), conversion, where)))
    if results:
        yield ChatTurn(role="tool", parts=tuple(results))


def _assistant_parts(message: Mapping[str, Json], conversion: Conversion, where: str) -> Iterator[ContentPart]:
    conversion.allow_only(message, _ASSISTANT, where)
    yield from _thoughts(message, conversion, where)
    yield from _content(message.get("content"), conversion, where)
    if refusal := text_in(message.get("refusal")):
        yield RefusalPart(refusal)
    for n, call in enumerate(objects_in(message, "tool_calls")):
        yield read_call(call, conversion, f"{where}.tool_calls[{n}]")


def read_call(call: Mapping[str, Json], conversion: Conversion, where: str) -> CallPart:
    """Reads a call. Raises `CannotCross` for vendor members: they would not reach the vendor again."""
    conversion.allow_only(call, {"id", "type", "function", "index"}, where)
    if call.get("type", "function") != "function":
        raise conversion.unsupported(f"{where} ({text_in(call.get('type'))})")
    function = object_in(call.get("function"))
    conversion.allow_only(function, {"name", "arguments"}, f"{where}.function")
    name, arguments = text_in(function.get("name")), text_in(function.get("arguments"))
    return CallPart(id=text_in(call.get("id")), name=name, arguments=arguments)


def _thoughts(message: Mapping[str, Json], conversion: Conversion, where: str) -> Iterator[ContentPart]:
    details = objects_in(message, "reasoning_details")
    thoughts = [read_detail(detail, conversion, f"{where}.reasoning_details") for detail in details]
    if any(thought.block for thought in thoughts):
        yield from thoughts
        return
    text = text_in(message.get("reasoning_content")) or text_in(message.get("reasoning"))
    text = text or "".join(thought.text for thought in thoughts)
    if text:
        yield Thought(text=text)


def _content(content: Json, conversion: Conversion, where: str) -> Iterator[ContentPart]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for n, part in enumerate([] if content is None else object_list(content, "content")):
        here = f"{where}.content[{n}]"
        match part:
            case {"type": "text", "text": str(text)}:
                conversion.allow_only(part, {"type", "text"} | CACHE_MARKS, here)
                yield TextPart(text)
            case {"type": "refusal", "refusal": str(text)}:
                yield RefusalPart(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                image = object_in(part["image_url"])
                conversion.allow_only(image, {"url", "detail"}, here)
                kind, data, address = split_url(url)
                yield Picture(media_type=kind, data=data, url=address, detail=text_in(image.get("detail")))
            case {"type": "file", "file": {"file_data": str(url)}}:
                file = object_in(part["file"])
                conversion.allow_only(file, {"file_data", "filename"}, here)
                kind, data, address = split_url(url)
                yield FilePart(media_type=kind, data=data, url=address, name=text_in(file.get("filename")))
            case _:
                raise conversion.unsupported(f"{here} ({text_in(part.get('type'))})")


def _write_turns(turns: Iterable[ChatTurn], conversion: Conversion) -> Iterator[Json]:
    for turn in turns:
        if turn.role == "tool":
            for part in turn.parts:
                if isinstance(part, ResultPart):
                    yield {"role": "tool", "tool_call_id": part.call_id, "content": _write_result(part, conversion)}
        elif turn.role == "assistant":
            yield _write_assistant(turn.parts, conversion)
        else:
            yield {"role": turn.role, "content": write_content(turn.parts, conversion, _write_part)}


def _write_assistant(parts: Sequence[ContentPart], conversion: Conversion) -> dict[str, Json]:
    thoughts = [part for part in parts if isinstance(part, Thought)]
    calls = [part for part in parts if isinstance(part, CallPart)]
    if not conversion.reply and any(isinstance(part, TextPart) for part in parts[_first_call(parts) :]):
        raise conversion.unsupported("text behind a call in one message of the assistant")
    texts = [part for part in parts if isinstance(part, TextPart | Picture | FilePart)]
    message: dict[str, Json] = {
        "role": "assistant",
        "content": write_content(texts, conversion, _write_part) if texts else None,
    }
    if refusal := "".join(part.text for part in parts if isinstance(part, RefusalPart)):
        message["refusal"] = refusal
    if reasoning := "\n\n".join(part.text for part in thoughts if part.text):
        message["reasoning_content"] = reasoning
    sealed = [part.block for part in thoughts if part.block]
    if sealed and not conversion.reply:
        raise conversion.unsupported("reasoning that its model signed or sealed")
    if sealed:
        message["reasoning_details"] = [write_detail(block, n) for n, block in enumerate(sealed)]
    if calls:
        message["tool_calls"] = [write_call(call) for call in calls]
    return message


def write_call(call: CallPart) -> Json:
    """Writes a call."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}


def _first_call(parts: Sequence[ContentPart]) -> int:
    return next((n for n, part in enumerate(parts) if isinstance(part, CallPart)), len(parts))


def _write_part(part: ContentPart, conversion: Conversion) -> Json:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case Picture():
            detail: dict[str, Json] = {"detail": part.detail} if part.detail else {}
            return {"type": "image_url", "image_url": {"url": data_url(part), **detail}}
        case FilePart(url=""):
            name: dict[str, Json] = {"filename": part.name} if part.name else {}
            return {"type": "file", "file": {"file_data": data_url(part), **name}}
        case _:
            raise conversion.unsupported(f"a {type(part).__name__.lower()} in the content of a message")


def _write_result(result: ResultPart, conversion: Conversion) -> Json:
    if not all(isinstance(part, TextPart) for part in result.parts):
        raise conversion.unsupported("what is not text in a tool's result")
    marks = [TextPart(FAILED)] if result.failed else []
    return write_content([*marks, *result.parts], conversion, _write_part)


def _read_tool(tool: Mapping[str, Json], conversion: Conversion, where: str) -> ToolDefinition:
    if tool.get("type") != "function":
        raise conversion.unsupported(f"{where} ({text_in(tool.get('type'))})")
    conversion.allow_only(tool, {"type", "function"} | CACHE_MARKS, where)
    function = object_in(tool.get("function"))
    conversion.allow_only(function, {"name", "description", "parameters", "strict"}, where)
    description = text_in(function.get("description"))
    schema, strict = function.get("parameters"), flag(function, "strict")
    return ToolDefinition(name=text_in(function.get("name")), description=description, schema=schema, strict=strict)


def _write_tool(tool: ToolDefinition) -> Json:
    function: dict[str, Json] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.schema is not None:
        function["parameters"] = tool.schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _read_choice(value: Json, conversion: Conversion) -> ToolChoice | None:
    match value:
        case None:
            return None
        case "auto" | "none":
            return ToolChoice(kind=value)
        case "required":
            return ToolChoice(kind="any")
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolChoice(kind="tool", name=name)
        case _:
            raise conversion.unsupported("'tool_choice'")


def _write_choice(choice: ToolChoice) -> Json:
    if choice.kind == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.kind == "any" else choice.kind


def _read_schema(value: Json, conversion: Conversion) -> OutputSchema | None:
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return OutputSchema()
        case {"type": "json_schema", "json_schema": {"schema": dict()}}:
            return read_output_schema(
                object_in(object_in(value)["json_schema"]), conversion, "response_format.json_schema"
            )
        case _:
            raise conversion.unsupported("'response_format'")


def _write_schema(output_schema: OutputSchema) -> Json:
    if output_schema.schema is None:
        return {"type": "json_object"}
    fields: dict[str, Json] = {"name": output_schema.name or "answer", "schema": output_schema.schema}
    if output_schema.description:
        fields["description"] = output_schema.description
    if output_schema.strict is not None:
        fields["strict"] = output_schema.strict
    return {"type": "json_schema", "json_schema": fields}


_DELTA: Final = frozenset(
    {"role", "content", "refusal", "tool_calls", "reasoning_content", "reasoning", "reasoning_details"}
)
_DELTA_KEYS: Final = {"text": "content", "thought": "reasoning_content", "refusal": "refusal"}


class ChatStreamReader:
    """Reads Chat Completions. Usage follows the finish reason, so the end is reported only at the end of the stream."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._has_started = False
        self._has_ended = False
        self._stop: Stop | None = None
        self._cost: Cost | None = None
        self._places: dict[int, int] = {}
        self._ids: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._started: set[int] = set()
        self._unsigned: dict[int, list[str]] = {}

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what an event holds."""
        if event.data.strip() == DONE:
            yield from self.finish()
            return
        data = event_object(event)
        if data is None:
            return
        if error := data.get("error"):
            yield StreamFailure(error_in(error))
            return
        if not self._has_started:
            self._has_started = True
            yield StreamStart(text_in(data.get("model")))
        self._cost = read_cost(data.get("usage")) or self._cost
        choices = data.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                yield from self._delta(object_in(choice.get("delta")))
                if finish := text_in(choice.get("finish_reason")):
                    self._stop = STOPS.get(finish, "ended")

    def finish(self) -> Iterator[StreamEvent]:
        """Yields the end, if a finish reason arrived."""
        if self._stop is not None and not self._has_ended:
            self._has_ended = True
            for key in sorted(self._names.keys() - self._started):
                yield from self._start_call(key)
            stop: Stop = "calls" if self._stop == "ended" and self._started else self._stop
            yield StreamEnd(Ending(stop=stop, cost=self._cost))

    def _delta(self, delta: dict[str, Json]) -> Iterator[StreamEvent]:
        self._conversion.allow_only(delta, _DELTA, "delta")
        yield from self._reasoning(delta)
        content = delta.get("content")
        if content is not None and not isinstance(content, str):
            raise self._conversion.unsupported("delta.content that is not text")
        if content:
            yield TextDelta("text", content)
        if refusal := text_in(delta.get("refusal")):
            yield TextDelta("refusal", refusal)
        for call in objects_in(delta, "tool_calls"):
            yield from self._call(call)

    def _reasoning(self, delta: dict[str, Json]) -> Iterator[StreamEvent]:
        text = text_in(delta.get("reasoning_content")) or text_in(delta.get("reasoning"))
        sealed: list[StreamEvent] = []
        unsigned = ""
        for detail in objects_in(delta, "reasoning_details"):
            before = self._unsigned.setdefault(index_of(detail.get("index")) or 0, [])
            signed = "".join(before) if signs_earlier_text(detail) else ""
            thought = read_detail(detail, self._conversion, "delta.reasoning_details", signed)
            if thought.block is None:
                before.append(thought.text)
                unsigned += thought.text
            else:
                sealed.append(ReasoningSealed(dict(thought.block)))
        if text or unsigned:
            yield TextDelta("thought", text or unsigned)
        yield from sealed

    def _call(self, delta: dict[str, Json]) -> Iterator[StreamEvent]:
        call = read_call(delta, self._conversion, "delta.tool_calls")
        key = self._key(index_of(delta.get("index")), call.id)
        if key in self._started:
            if call.arguments:
                yield CallDelta(key, call.arguments)
            return
        self._names[key] = self._names.get(key, "") + call.name
        if call.arguments:  # the name is complete once the arguments start
            yield from self._start_call(key)
            yield CallDelta(key, call.arguments)

    def _key(self, index: int | None, call_id: str) -> int:
        """Returns the key of the call: its index, or a new key if a new id repeats an index."""
        place = max(self._places, default=0) if index is None else index
        key = self._places.setdefault(place, place)
        if call_id and self._ids.get(key, call_id) != call_id:
            key = self._places[place] = max(*self._places.values(), *self._ids) + 1
        if call_id:
            self._ids[key] = call_id
        return key

    def _start_call(self, key: int) -> Iterator[StreamEvent]:
        self._started.add(key)
        yield CallStart(key, self._ids.get(key, ""), self._names[key])


class ChatStreamWriter:
    """Writes Chat Completions."""

    def __init__(self, conversion: Conversion, ids: ResponseIds, include_usage: bool) -> None:
        self._ids = ids
        self._include_usage = include_usage
        self._events = self._events_for("")
        self._calls: list[int] = []
        self._sealed = 0
        self._thought: Literal["no", "now", "before"] = "no"

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the events for a neutral one."""
        events = self._events
        match event:
            case StreamStart(model=model):
                self._events = self._events_for(model)
                yield self._events.delta({"role": "assistant"})
            case TextDelta(kind=kind, text=text):
                separator = "\n\n" if kind == "thought" and self._thought == "before" else ""
                if kind == "thought":
                    self._thought = "now"
                else:
                    self._end_thought()
                yield events.delta({_DELTA_KEYS[kind]: separator + text})
            case PartEnd():
                self._end_thought()
            case ReasoningSealed(block=block):
                self._end_thought()
                yield events.delta({"reasoning_details": [write_detail(block, self._sealed)]})
                self._sealed += 1
            case CallStart(key=key):
                self._end_thought()
                self._calls.append(key)
                call_id = event.id or self._ids.item("call", len(self._calls))
                function: Json = {"name": event.name, "arguments": ""}
                start: Json = {"index": len(self._calls) - 1, "id": call_id, "type": "function", "function": function}
                yield events.delta({"tool_calls": [start]})
            case CallDelta(key=key, text=text) if key in self._calls:
                more: Json = {"index": self._calls.index(key), "function": {"arguments": text}}
                yield events.delta({"tool_calls": [more]})
            case StreamEnd(ending=ending):
                yield from events.end(FINISH[ending.stop], write_cost(ending.cost))

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last events of a stream that cannot go on."""
        return stream_error(code, message)

    def _end_thought(self) -> None:
        """Separates the next reasoning part from this one: in Chat, all reasoning is one text."""
        self._thought = "before" if self._thought == "now" else self._thought

    def _events_for(self, model: str) -> ChatEvents:
        head: dict[str, Json] = {"id": self._ids.reply, "created": self._ids.created, "model": model}
        return ChatEvents(head, include_usage=self._include_usage)


class ChatEvents:
    """Builds the chunks of Chat Completions. There are no other events: clients look for `choices` in each."""

    def __init__(self, head: Mapping[str, Json], *, include_usage: bool) -> None:
        self._head: dict[str, Json] = {**head, "object": "chat.completion.chunk"}
        self._include_usage = include_usage

    def delta(self, delta: Mapping[str, Json], finish: str | None = None) -> bytes:
        """Builds one chunk."""
        choice: Json = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
        usage: dict[str, Json] = {"usage": None} if self._include_usage else {}
        return sse(None, json_of({**self._head, "choices": [choice], **usage}))

    def end(self, finish: str, usage: Json) -> Iterator[bytes]:
        """Builds the last chunks: the finish reason, the usage if the client requested it, and the end."""
        yield self.delta({}, finish)
        if self._include_usage and usage is not None:
            yield sse(None, json_of({**self._head, "choices": [], "usage": usage}))
        yield sse(None, DONE)


def reader(conversion: Conversion) -> ChatStreamReader:
    """Creates a reader for one stream."""
    return ChatStreamReader(conversion)


def writer(conversion: Conversion, ids: ResponseIds, include_usage: bool) -> ChatStreamWriter:
    """Creates a writer for one stream."""
    return ChatStreamWriter(conversion, ids, include_usage)
