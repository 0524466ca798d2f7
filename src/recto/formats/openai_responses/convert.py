"""The Responses API, converted to and from neutral requests and responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from recto.errors import InputError, MalformedMessage
from recto.formats.convert.reasoning import seal, sealed_in
from recto.formats.convert.types import (
    FAILED,
    SHARED_HINTS,
    CallPart,
    ChatTurn,
    Completion,
    CompletionRequest,
    ContentPart,
    Conversion,
    Cost,
    Ending,
    FilePart,
    OutputSchema,
    Picture,
    RefusalPart,
    ResponseIds,
    ResultPart,
    Stop,
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
    split_url,
    stop_for,
    write_content,
)
from recto.formats.json_spans import Json
from recto.formats.message import CACHE_MARKS, fields_of, object_in, text_in

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
    return Completion(model=text_in(body.get("model")), parts=parts, ending=read_ending(body, parts, conversion))


def read_ending(body: Mapping[str, Json], parts: Sequence[ContentPart], conversion: Conversion) -> Ending:
    """Reads how a response ended."""
    reason = text_in(object_in(body.get("incomplete_details")).get("reason"))
    stop = _STOPS.get(reason)
    if stop is None:
        raise conversion.unsupported(f"a response that is incomplete for '{reason}'")
    return Ending(stop=stop_for(parts, stop), cost=read_cost(body.get("usage")))


def write_completion(completion: Completion, ids: ResponseIds, conversion: Conversion) -> dict[str, Json]:
    """Writes a response body."""
    turn = ChatTurn(role="assistant", parts=completion.parts)
    items = [with_id(object_in(item), ids, place) for place, item in enumerate(write_turns((turn,), conversion))]
    return finished(ids, completion.model, items, completion.ending)


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
