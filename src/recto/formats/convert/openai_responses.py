"""The Responses API, read into meaning and written from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from recto.errors import InputError, MalformedMessage
from recto.formats.convert.openai_chat import FAILED, data_url, objects_in, read_shape, read_url
from recto.formats.convert.reasoning import seal, sealed_in
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
_USUAL: Final[Mapping[str, tuple[Json, ...]]] = {
    "background": (False,),
    "top_logprobs": (0,),
    "truncation": ("disabled", "auto"),  # whoever bounds the prompt has done so already
    "include": (["reasoning.encrypted_content"],),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
_ITEM: Final = frozenset({"type", "id", "status", "phase"}) | CACHE_MARKS
_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
}


def read_request(body: Mapping[str, Json], road: Road) -> CompletionRequest:
    """What a request body asks for."""
    road.only(body, _KNOWN | _USUAL.keys())
    road.plain(body, _USUAL)
    reasoning, text = object_in(body.get("reasoning")), object_in(body.get("text"))
    road.only(reasoning, {"effort", "summary", "generate_summary"}, "reasoning")
    road.only(text, {"format", "verbosity"}, "text")
    return CompletionRequest(
        model=text_in(body.get("model")),
        turns=(*_instructions(body.get("instructions"), road), *read_turns(_items(body.get("input")), road)),
        tools=tuple(_read_tool(tool, road, f"tools[{n}]") for n, tool in enumerate(objects_in(body, "tools"))),
        choice=_read_choice(body.get("tool_choice"), road),
        parallel=flag(body, "parallel_tool_calls"),
        most_tokens=count(body, "max_output_tokens"),
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        stream=bool(body.get("stream")),
        effort=text_in(reasoning.get("effort")),
        verbosity=text_in(text.get("verbosity")),
        shape=_read_shape(text.get("format"), road),
        hints={key: value for key, value in body.items() if key in SHARED_HINTS},
    )


def write_request(request: CompletionRequest, road: Road) -> dict[str, Json]:
    """A request body. Nothing is left with the provider: the formats that cross into this one leave nothing either."""
    if request.stop:
        raise road.lost("stop sequences")
    body: dict[str, Json] = {"model": request.model}
    turns = request.turns
    match turns:
        case (ChatTurn(role="system", parts=(TextPart(text=instructions),)), *_):
            body["instructions"] = instructions
            turns = turns[1:]
    body["input"] = list(write_turns(turns, road))
    if request.tools:
        body["tools"] = [_write_tool(tool) for tool in request.tools]
    if request.choice is not None:
        body["tool_choice"] = _write_choice(request.choice)
    text: dict[str, Json] = {}
    if request.shape is not None:
        text["format"] = _write_shape(request.shape)
    if request.verbosity:
        text["verbosity"] = request.verbosity
    given: dict[str, Json] = {
        "parallel_tool_calls": request.parallel,
        "max_output_tokens": request.most_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "reasoning": {"effort": request.effort} if request.effort else None,
        "text": text or None,
        "stream": request.stream or None,
        "store": False,
        **request.hints,
    }
    return body | {key: value for key, value in given.items() if value is not None}


def reasoning_item(part: Thought, road: Road) -> dict[str, Json]:
    """Reasoning as an item: its own, or one that keeps for a client what another model sealed."""
    if part.block and part.block.get("type") == "reasoning":
        return dict(part.block)
    if part.block and not road.reply:
        raise road.lost("reasoning that its model signed or sealed")
    summary: list[Json] = [{"type": "summary_text", "text": part.text}] if part.text else []
    sealed: dict[str, Json] = {"encrypted_content": seal(part.block)} if part.block else {}
    return {"type": "reasoning", "summary": summary, **sealed}


def call_item(call: CallPart) -> dict[str, Json]:
    """A call as an item."""
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments or "{}"}


def read_cost(value: Json) -> Cost | None:
    """What an answer cost, where it is told."""
    return cost_in(value, "output_tokens_details")


def write_cost(cost: Cost | None) -> Json:
    """The usage of a reply."""
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


def _instructions(value: Json, road: Road) -> Iterator[ChatTurn]:
    if isinstance(value, str):
        if value:
            yield ChatTurn(role="system", parts=(TextPart(value),))
    elif value is not None:
        raise road.lost("'instructions' that are not text")


def _items(value: Json) -> list[dict[str, Json]]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [] if value is None else objects(value, "input")


def read_turns(items: Iterable[dict[str, Json]], road: Road, where: str = "input") -> Iterator[ChatTurn]:
    """What items say. Those of one side that follow each other are one turn."""
    role: Role | None = None
    parts: list[Part] = []
    for n, item in enumerate(items):
        side, found = _read_item(item, road, f"{where}[{n}]")
        if side != role or side not in ("assistant", "tool"):
            if role is not None:
                yield ChatTurn(role=role, parts=tuple(parts))
            role, parts = side, []
        parts += found
    if role is not None:
        yield ChatTurn(role=role, parts=tuple(parts))


def _read_item(item: Mapping[str, Json], road: Road, where: str) -> tuple[Role, list[Part]]:
    match item.get("type", "message"):
        case "message":
            road.only(item, _ITEM | {"role", "content"}, where)
            role = _ROLES.get(text_in(item.get("role")))
            if role is None:
                raise road.lost(f"{where}.role")
            return role, list(_content(item.get("content"), road, where))
        case "reasoning":
            road.only(item, _ITEM | {"summary", "content", "encrypted_content"}, where)
            return "assistant", [_thought(item)]
        case "function_call":
            road.only(item, _ITEM | {"call_id", "name", "arguments"}, where)
            name, arguments = text_in(item.get("name")), text_in(item.get("arguments"))
            return "assistant", [CallPart(id=text_in(item.get("call_id")), name=name, arguments=arguments)]
        case "function_call_output":
            road.only(item, _ITEM | {"call_id", "output"}, where)
            parts = tuple(_content(item.get("output"), road, where))
            return "tool", [ResultPart(call_id=text_in(item.get("call_id")), parts=parts)]
        case kind:
            raise road.lost(f"{where} ({kind})")


def _thought(item: Mapping[str, Json]) -> Thought:
    texts = [text_in(part.get("text")) for key in ("summary", "content") for part in objects_in(item, key)]
    return Thought(text="\n\n".join(texts), block=sealed_in(item))


def _content(content: Json, road: Road, where: str) -> Iterator[Part]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for n, part in enumerate([] if content is None else objects(content, "content")):
        here = f"{where}.content[{n}]"
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                road.only(part, {"type", "text", "logprobs"} | CACHE_MARKS, here)
                yield TextPart(text)
            case {"type": "refusal", "refusal": str(text)}:
                yield RefusalPart(text)
            case {"type": "input_image", "image_url": str(url)}:
                road.only(part, {"type", "image_url", "detail"} | CACHE_MARKS, here)
                kind, data, address = read_url(url)
                yield Picture(media_type=kind, data=data, url=address, detail=text_in(part.get("detail")))
            case {"type": "input_file", "file_data": str(url)} | {"type": "input_file", "file_url": str(url)}:
                road.only(part, {"type", "file_data", "file_url", "filename"} | CACHE_MARKS, here)
                kind, data, address = read_url(url)
                yield FilePart(media_type=kind, data=data, url=address, name=text_in(part.get("filename")))
            case _:
                raise road.lost(f"{here} ({text_in(part.get('type'))})")


def write_turns(turns: Iterable[ChatTurn], road: Road) -> Iterator[Json]:
    """Turns as items."""
    for turn in turns:
        if turn.role not in ("assistant", "tool"):
            yield {"type": "message", "role": turn.role, "content": written_content(turn.parts, road, _write_part)}
            continue
        said: list[TextPart | RefusalPart] = []
        for part in turn.parts:
            if isinstance(part, TextPart | RefusalPart):
                if road.reply and said and type(said[-1]) is not type(part):
                    yield from _said(said, road)  # as in a stream, where an item is closed once something else begins
                    said = []
                said += [part] if part.text else []
                continue
            yield from _said(said, road)
            said = []
            yield from _write_item(part, road)
        yield from _said(said, road)


def _said(parts: Sequence[TextPart | RefusalPart], road: Road) -> Iterator[Json]:
    match parts:
        case []:
            return
        case [TextPart(text)] if not road.reply:
            yield {"type": "message", "role": "assistant", "content": text}
        case _:
            yield {"type": "message", "role": "assistant", "content": [said_part(part) for part in parts]}


def _write_item(part: Part, road: Road) -> Iterator[Json]:
    match part:
        case Thought():
            if part.text or part.block:
                yield reasoning_item(part, road)
        case CallPart():
            yield call_item(part)
        case ResultPart():
            marks = [TextPart(FAILED)] if part.failed else []
            output = written_content([*marks, *part.parts], road, _write_part)
            yield {"type": "function_call_output", "call_id": part.call_id, "output": output}
        case _:
            raise road.lost(f"a {type(part).__name__.lower()} from the assistant")


def said_part(part: TextPart | RefusalPart) -> dict[str, Json]:
    """What the assistant says."""
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.text}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}


def _write_part(part: Part, road: Road) -> Json:
    match part:
        case TextPart(text):
            return {"type": "input_text", "text": text}
        case Picture():
            return {"type": "input_image", "image_url": data_url(part), "detail": part.detail or "auto"}
        case FilePart():
            name: dict[str, Json] = {"filename": part.name} if part.name else {}
            return {"type": "input_file", "file_url" if part.url else "file_data": data_url(part), **name}
        case _:
            raise road.lost(f"a {type(part).__name__.lower()} in the content of a message")


def _read_tool(tool: Mapping[str, Json], road: Road, where: str) -> ToolDefinition:
    if tool.get("type") != "function":
        raise road.lost(f"{where} ({text_in(tool.get('type'))})")
    road.only(tool, {"type", "name", "description", "parameters", "strict"} | CACHE_MARKS, where)
    description = text_in(tool.get("description"))
    schema, strict = tool.get("parameters"), flag(tool, "strict")
    return ToolDefinition(name=text_in(tool.get("name")), description=description, schema=schema, strict=strict)


def _write_tool(tool: ToolDefinition) -> Json:
    # where nothing is said, this format is strict and the others are not
    told: dict[str, Json] = {"description": tool.description} if tool.description else {}
    return {"type": "function", "name": tool.name, **told, "parameters": tool.schema, "strict": tool.strict or False}


def _read_choice(value: Json, road: Road) -> ToolChoice | None:
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
            raise road.lost("'tool_choice'")


def _write_choice(choice: ToolChoice) -> Json:
    if choice.kind == "tool":
        return {"type": "function", "name": choice.name}
    return "required" if choice.kind == "any" else choice.kind


def _read_shape(value: Json, road: Road) -> Shape | None:
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return Shape()
        case {"type": "json_schema", "schema": dict()}:
            return read_shape(object_in(value), road, "text.format")
        case _:
            raise road.lost("'text.format'")


def _write_shape(shape: Shape) -> Json:
    if shape.schema is None:
        return {"type": "json_object"}
    told: dict[str, Json] = {"description": shape.description} if shape.description else {}
    strict: dict[str, Json] = {} if shape.strict is None else {"strict": shape.strict}
    return {"type": "json_schema", "name": shape.name or "answer", "schema": shape.schema, **told, **strict}


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
"""What a response repeats of its request, and what it says where the request said nothing."""


def read_answer(body: Mapping[str, Json], road: Road) -> Completion:
    """What a reply says."""
    if not isinstance(body.get("output"), list):
        raise MalformedMessage("the reply has no output")
    parts = joined(part for turn in read_turns(objects_in(body, "output"), road, "output") for part in turn.parts)
    return Completion(model=text_in(body.get("model")), parts=parts, ending=read_ending(body, parts, road))


def read_ending(body: Mapping[str, Json], parts: Sequence[Part], road: Road) -> Ending:
    """How a response ended."""
    reason = text_in(object_in(body.get("incomplete_details")).get("reason"))
    found = _STOPS.get(reason)
    if found is None:
        raise road.lost(f"a response that is incomplete for '{reason}'")
    return Ending(stop=stopped_for(parts, found), cost=read_cost(body.get("usage")))


def write_answer(answer: Completion, ids: Ids, road: Road) -> dict[str, Json]:
    """A reply."""
    turn = ChatTurn(role="assistant", parts=answer.parts)
    items = [with_id(object_in(item), ids, place) for place, item in enumerate(write_turns((turn,), road))]
    return finished(ids, answer.model, items, answer.ending)


def envelope(ids: Ids, model: str) -> dict[str, Json]:
    """A response that has begun: it repeats what was asked for."""
    asked: dict[str, Json] = {}
    if ids.request:
        try:
            asked = fields_of(ids.request)
        except InputError:
            asked = {}
    told = {key: usual if asked.get(key) is None else asked[key] for key, usual in _ECHOED.items()}
    tools = asked.get("tools")
    plain: dict[str, Json] = {"description": None, "parameters": None, "strict": None}
    listed = [{**plain, **object_in(tool)} for tool in tools] if isinstance(tools, list) else []
    reasoning: dict[str, Json] = {"effort": None, "summary": None, **object_in(asked.get("reasoning"))}
    head: dict[str, Json] = {"id": ids.reply, "object": "response", "created_at": ids.created, "completed_at": None}
    state: dict[str, Json] = {"status": "in_progress", "error": None, "incomplete_details": None, "model": model}
    text: dict[str, Json] = {"format": {"type": "text"}, **object_in(asked.get("text"))}
    held = asked.get("conversation")
    if held:
        told["conversation"] = {"id": held} if isinstance(held, str) else held
    return (
        head | state | {"output": [], "usage": None, "tools": [*listed], "reasoning": reasoning, "text": text, **told}
    )


def finished(ids: Ids, model: str, items: Iterable[Json], ending: Ending) -> dict[str, Json]:
    """A response that has ended."""
    reason = _INCOMPLETE.get(ending.stop)
    return envelope(ids, model) | {
        "status": "incomplete" if reason else "completed",
        "completed_at": None if reason else ids.created,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(items),
        "usage": write_cost(ending.cost),
    }


def with_id(item: dict[str, Json], ids: Ids, place: int) -> dict[str, Json]:
    """An item as an answer has it: finished, and with an id."""
    kind = {"message": "msg", "function_call": "fc", "reasoning": "rs"}.get(text_in(item.get("type")), "item")
    named: dict[str, Json] = {"id": ids.item(kind, place), "type": item.get("type")}
    return {**named, **item} if kind == "rs" else {**named, "status": "completed", **item}
