"""Chat Completions, read into meaning and written from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from recto.errors import MalformedMessage
from recto.formats.convert.reasoning import detail, thought
from recto.formats.convert.types import (
    SHARED_HINTS,
    CallPart,
    ChatTurn,
    Completion,
    CompletionRequest,
    Cost,
    Ending,
    FilePart,
    Ids,
    Part,
    Picture,
    RefusalPart,
    ResultPart,
    Road,
    Role,
    Shape,
    Stop,
    TextPart,
    Thought,
    ToolChoice,
    ToolDefinition,
    cost_in,
    count,
    flag,
    joined,
    number,
    objects,
    stopped_for,
    written_content,
)
from recto.formats.json_spans import Json
from recto.formats.message import CACHE_MARKS, object_in, text_in

FINISH: Final[Mapping[Stop, str]] = {
    "ended": "stop",
    "sequence": "stop",
    "length": "length",
    "calls": "tool_calls",
    "filtered": "content_filter",
}
STOPS: Final[Mapping[str, Stop]] = {"length": "length", "tool_calls": "calls", "content_filter": "filtered"}
FAILED: Final = "[The call failed.]"
"""Says in words what Anthropic says of a result with a flag, for formats that have none."""

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
_USUAL: Final[Mapping[str, tuple[Json, ...]]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
}
_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_MESSAGE: Final = frozenset({"role", "content"}) | CACHE_MARKS
_SPOKEN: Final = _MESSAGE | {"tool_calls", "refusal", "reasoning_content", "reasoning", "reasoning_details", "id"}


def read_request(body: Mapping[str, Json], road: Road) -> CompletionRequest:
    """What a request body asks for."""
    road.only(body, _KNOWN | _USUAL.keys())
    road.plain(body, _USUAL)
    most = count(body, "max_completion_tokens")
    stop = body.get("stop")
    given = [stop] if isinstance(stop, str) else stop
    return CompletionRequest(
        model=text_in(body.get("model")),
        turns=tuple(_read_turns(objects(body.get("messages"), "messages"), road)),
        tools=tuple(_read_tool(tool, road, f"tools[{n}]") for n, tool in enumerate(objects_in(body, "tools"))),
        choice=_read_choice(body.get("tool_choice"), road),
        parallel=flag(body, "parallel_tool_calls"),
        most_tokens=count(body, "max_tokens") if most is None else most,
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        stop=tuple(text_in(word) for word in given) if isinstance(given, list) else (),
        stream=bool(body.get("stream")),
        effort=text_in(body.get("reasoning_effort")),
        verbosity=text_in(body.get("verbosity")),
        shape=_read_shape(body.get("response_format"), road),
        hints={key: value for key, value in body.items() if key in SHARED_HINTS},
    )


def write_request(request: CompletionRequest, road: Road) -> dict[str, Json]:
    """A request body. A stream is always asked for its usage: the other formats tell it."""
    body: dict[str, Json] = {"model": request.model, "messages": list(_write_turns(request.turns, road))}
    if request.tools:
        body["tools"] = [_write_tool(tool) for tool in request.tools]
    if request.choice is not None:
        body["tool_choice"] = _write_choice(request.choice)
    if request.shape is not None:
        body["response_format"] = _write_shape(request.shape)
    if request.stream:
        body["stream"], body["stream_options"] = True, {"include_usage": True}
    given: dict[str, Json] = {
        "parallel_tool_calls": request.parallel,
        "max_completion_tokens": request.most_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": list(request.stop) or None,
        "reasoning_effort": request.effort or None,
        "verbosity": request.verbosity or None,
        **request.hints,
    }
    return body | {key: value for key, value in given.items() if value is not None}


def read_answer(body: Mapping[str, Json], road: Road) -> Completion:
    """What a reply says."""
    choices = body.get("choices")
    first = object_in(choices[0]) if isinstance(choices, list) and choices else {}
    message = first.get("message")
    if not isinstance(message, dict):
        raise MalformedMessage("the reply has no choices[0].message")
    finish = text_in(first.get("finish_reason"))
    parts = joined(_spoken(message, road, "message"))
    ending = Ending(stop=stopped_for(parts, STOPS.get(finish, "ended")), cost=read_cost(body.get("usage")))
    return Completion(model=text_in(body.get("model")), parts=parts, ending=ending)


def write_answer(answer: Completion, ids: Ids, road: Road) -> dict[str, Json]:
    """A reply."""
    message = _write_spoken(answer.parts, road)
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = "".join(text_in(object_in(part).get("text")) for part in content)
    choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH[answer.ending.stop]}
    return {
        "id": ids.reply,
        "object": "chat.completion",
        "created": ids.created,
        "model": answer.model,
        "choices": [choice],
        "usage": write_cost(answer.ending.cost),
    }


def read_cost(value: Json) -> Cost | None:
    """What an answer cost, where it is told."""
    return cost_in(value, "completion_tokens_details")


def write_cost(cost: Cost | None) -> Json:
    """The usage of a reply."""
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


def objects_in(body: Mapping[str, Json], key: str) -> list[dict[str, Json]]:
    """The objects of a member that may be missing."""
    return [] if body.get(key) is None else objects(body[key], key)


def data_url(part: Picture | FilePart) -> str:
    """The address of a file, or its data as one."""
    return part.url or f"data:{part.media_type};base64,{part.data}"


def read_url(url: str) -> tuple[str, str, str]:
    """The media type and data of a data URL, or nothing and the address."""
    found = _DATA_URL.match(url)
    return (found[1], url[found.end() :], "") if found else ("", "", url)


def _read_turns(messages: Sequence[dict[str, Json]], road: Road) -> Iterator[ChatTurn]:
    results: list[Part] = []
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        role = _ROLES.get(text_in(message.get("role")))
        if role is None:
            raise road.lost(f"{where}.role")
        if role == "tool":
            road.only(message, _MESSAGE | {"tool_call_id", "name"}, where)
            parts = tuple(_content(message.get("content"), road, where))
            results.append(ResultPart(call_id=text_in(message.get("tool_call_id")), parts=parts))
            continue
        if results:
            yield ChatTurn(role="tool", parts=tuple(results))
            results = []
        if role == "assistant":
            yield ChatTurn(role=role, parts=tuple(_spoken(message, road, where)))
        else:
            road.only(message, _MESSAGE, where)
            yield ChatTurn(role=role, parts=tuple(_content(message.get("content"), road, where)))
    if results:
        yield ChatTurn(role="tool", parts=tuple(results))


def _spoken(message: Mapping[str, Json], road: Road, where: str) -> Iterator[Part]:
    road.only(message, _SPOKEN, where)
    yield from _thoughts(message, road, where)
    yield from _content(message.get("content"), road, where)
    if refusal := text_in(message.get("refusal")):
        yield RefusalPart(refusal)
    for n, call in enumerate(objects_in(message, "tool_calls")):
        yield read_call(call, road, f"{where}.tool_calls[{n}]")


def read_call(call: Mapping[str, Json], road: Road, where: str) -> CallPart:
    """A call, whole. What a vendor ties to it would not come back to the vendor."""
    road.only(call, {"id", "type", "function", "index"}, where)
    if call.get("type", "function") != "function":
        raise road.lost(f"{where} ({text_in(call.get('type'))})")
    function = object_in(call.get("function"))
    road.only(function, {"name", "arguments"}, f"{where}.function")
    name, arguments = text_in(function.get("name")), text_in(function.get("arguments"))
    return CallPart(id=text_in(call.get("id")), name=name, arguments=arguments)


def _thoughts(message: Mapping[str, Json], road: Road, where: str) -> Iterator[Part]:
    details = objects_in(message, "reasoning_details")
    read = [thought(found, road, f"{where}.reasoning_details") for found in details]
    if any(part.block for part in read):
        yield from read
        return
    text = text_in(message.get("reasoning_content")) or text_in(message.get("reasoning"))
    text = text or "".join(part.text for part in read)
    if text:
        yield Thought(text=text)


def _content(content: Json, road: Road, where: str) -> Iterator[Part]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for n, part in enumerate([] if content is None else objects(content, "content")):
        here = f"{where}.content[{n}]"
        match part:
            case {"type": "text", "text": str(text)}:
                road.only(part, {"type", "text"} | CACHE_MARKS, here)
                yield TextPart(text)
            case {"type": "refusal", "refusal": str(text)}:
                yield RefusalPart(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                given = object_in(part["image_url"])
                road.only(given, {"url", "detail"}, here)
                kind, data, address = read_url(url)
                yield Picture(media_type=kind, data=data, url=address, detail=text_in(given.get("detail")))
            case {"type": "file", "file": {"file_data": str(url)}}:
                given = object_in(part["file"])
                road.only(given, {"file_data", "filename"}, here)
                kind, data, address = read_url(url)
                yield FilePart(media_type=kind, data=data, url=address, name=text_in(given.get("filename")))
            case _:
                raise road.lost(f"{here} ({text_in(part.get('type'))})")


def _write_turns(turns: Iterable[ChatTurn], road: Road) -> Iterator[Json]:
    for turn in turns:
        if turn.role == "tool":
            for part in turn.parts:
                if isinstance(part, ResultPart):
                    yield {"role": "tool", "tool_call_id": part.call_id, "content": _write_result(part, road)}
        elif turn.role == "assistant":
            yield _write_spoken(turn.parts, road)
        else:
            yield {"role": turn.role, "content": written_content(turn.parts, road, _write_part)}


def _write_spoken(parts: Sequence[Part], road: Road) -> dict[str, Json]:
    thoughts = [part for part in parts if isinstance(part, Thought)]
    calls = [part for part in parts if isinstance(part, CallPart)]
    if not road.reply and any(isinstance(part, TextPart) for part in parts[_first_call(parts) :]):
        raise road.lost("text behind a call in one message of the assistant")
    texts = [part for part in parts if isinstance(part, TextPart | Picture | FilePart)]
    message: dict[str, Json] = {
        "role": "assistant",
        "content": written_content(texts, road, _write_part) if texts else None,
    }
    if refusal := "".join(part.text for part in parts if isinstance(part, RefusalPart)):
        message["refusal"] = refusal
    if reasoning := "\n\n".join(part.text for part in thoughts if part.text):
        message["reasoning_content"] = reasoning
    sealed = [part.block for part in thoughts if part.block]
    if sealed and not road.reply:
        raise road.lost("reasoning that its model signed or sealed")
    if sealed:
        message["reasoning_details"] = [detail(block, n) for n, block in enumerate(sealed)]
    if calls:
        message["tool_calls"] = [write_call(call) for call in calls]
    return message


def write_call(call: CallPart) -> Json:
    """A call."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}


def _first_call(parts: Sequence[Part]) -> int:
    return next((n for n, part in enumerate(parts) if isinstance(part, CallPart)), len(parts))


def _write_part(part: Part, road: Road) -> Json:
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
            raise road.lost(f"a {type(part).__name__.lower()} in the content of a message")


def _write_result(result: ResultPart, road: Road) -> Json:
    if not all(isinstance(part, TextPart) for part in result.parts):
        raise road.lost("what is not text in a tool's result")
    marks = [TextPart(FAILED)] if result.failed else []
    return written_content([*marks, *result.parts], road, _write_part)


def _read_tool(tool: Mapping[str, Json], road: Road, where: str) -> ToolDefinition:
    if tool.get("type") != "function":
        raise road.lost(f"{where} ({text_in(tool.get('type'))})")
    road.only(tool, {"type", "function"} | CACHE_MARKS, where)
    function = object_in(tool.get("function"))
    road.only(function, {"name", "description", "parameters", "strict"}, where)
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


def _read_choice(value: Json, road: Road) -> ToolChoice | None:
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
            raise road.lost("'tool_choice'")


def _write_choice(choice: ToolChoice) -> Json:
    if choice.kind == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.kind == "any" else choice.kind


def _read_shape(value: Json, road: Road) -> Shape | None:
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return Shape()
        case {"type": "json_schema", "json_schema": {"schema": dict()}}:
            return read_shape(object_in(object_in(value)["json_schema"]), road, "response_format.json_schema")
        case _:
            raise road.lost("'response_format'")


def read_shape(given: Mapping[str, Json], road: Road, where: str) -> Shape:
    """A schema with its name."""
    road.only(given, {"type", "schema", "name", "description", "strict"}, where)
    named, told = text_in(given.get("name")), text_in(given.get("description"))
    return Shape(schema=given.get("schema"), name=named, description=told, strict=flag(given, "strict"))


def _write_shape(shape: Shape) -> Json:
    if shape.schema is None:
        return {"type": "json_object"}
    given: dict[str, Json] = {"name": shape.name or "answer", "schema": shape.schema}
    if shape.description:
        given["description"] = shape.description
    if shape.strict is not None:
        given["strict"] = shape.strict
    return {"type": "json_schema", "json_schema": given}
