"""Anthropic's Messages, read into meaning and written from it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from recto.errors import MalformedJson, MalformedMessage
from recto.formats.convert.openai_chat import objects_in
from recto.formats.convert.reasoning import seal, unseal
from recto.formats.convert.types import (
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
)
from recto.formats.json_spans import Json
from recto.formats.message import CACHE_MARKS, json_of, object_in, text_in, value_in
from recto.formats.validation import THINKING

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
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def read_request(body: Mapping[str, Json], road: Road) -> CompletionRequest:
    """What a request body asks for."""
    road.only(body, _KNOWN)
    if object_in(body.get("thinking")).get("type", "adaptive") not in ("adaptive", "disabled"):
        raise road.lost("'thinking'")
    config, choice = object_in(body.get("output_config")), object_in(body.get("tool_choice"))
    road.only(config, {"effort", "format"}, "output_config")
    alone = flag(choice, "disable_parallel_tool_use")
    stops = body.get("stop_sequences")
    turns = tuple(_read_turns(objects(body.get("messages"), "messages"), road))
    if turns and turns[-1].role == "assistant":
        raise road.lost("the assistant's message at the end, which the model would go on with,")
    return CompletionRequest(
        model=text_in(body.get("model")),
        turns=(*_system(body.get("system"), road), *turns),
        tools=tuple(_read_tool(tool, road, f"tools[{n}]") for n, tool in enumerate(objects_in(body, "tools"))),
        choice=_read_choice(choice, road),
        parallel=None if alone is None else not alone,
        most_tokens=count(body, "max_tokens"),
        temperature=number(body, "temperature"),
        top_p=number(body, "top_p"),
        stop=tuple(text_in(word) for word in stops) if isinstance(stops, list) else (),
        stream=bool(body.get("stream")),
        effort=text_in(config.get("effort")),
        shape=_read_shape(config.get("format"), road),
    )


def write_request(request: CompletionRequest, road: Road, max_tokens: int) -> dict[str, Json]:
    """A request body. How long the answer may be has to be said here, whether the client did or not."""
    _refuse_foreign(request, road)
    most = max_tokens if request.most_tokens is None else request.most_tokens
    body: dict[str, Json] = {"model": request.model, "max_tokens": most}
    start = 0
    while start < len(request.turns) and request.turns[start].role in ("system", "developer"):
        start += 1
    system = [part for turn in request.turns[:start] for part in turn.parts]
    if blocks := list(_write_blocks(system, road)):
        body["system"] = blocks
    body["messages"] = list(_write_turns(request.turns[start:], road))
    if request.tools:
        body["tools"] = [_write_tool(tool) for tool in request.tools]
    config: dict[str, Json] = {"effort": request.effort} if request.effort else {}
    if request.shape is not None:
        config["format"] = {"type": "json_schema", "schema": request.shape.schema}
    given: dict[str, Json] = {
        "tool_choice": _write_choice(request),
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop_sequences": list(request.stop) or None,
        "stream": request.stream or None,
        "output_config": config or None,
    }
    return body | {key: value for key, value in given.items() if value is not None}


def read_answer(body: Mapping[str, Json], road: Road) -> Completion:
    """What a reply says."""
    content = body.get("content")
    if not isinstance(content, list):
        raise MalformedMessage("the reply has no content")
    parts = joined(_spoken(content, road, "content"))
    ending = read_ending(text_in(body.get("stop_reason")), body, body.get("usage"), road)
    return Completion(model=text_in(body.get("model")), parts=parts, ending=ending)


def read_ending(reason: str, told: Mapping[str, Json], usage: Json, road: Road) -> Ending:
    """How an answer ended."""
    stop = _STOPS.get(reason)
    if stop is None:
        raise road.lost(f"an answer that stopped for '{reason}'")
    return Ending(stop=stop, sequence=text_in(told.get("stop_sequence")), cost=read_cost(usage))


def write_answer(answer: Completion, ids: Ids, road: Road) -> dict[str, Json]:
    """A reply."""
    parts = [TextPart(part.text) if isinstance(part, RefusalPart) else part for part in answer.parts]
    return envelope(ids, answer.model) | {
        "content": list(_write_blocks(parts, road)),
        "stop_reason": stop_reason(answer.ending, answer.parts),
        "stop_sequence": answer.ending.sequence or None,
        "usage": write_cost(answer.ending.cost),
    }


def envelope(ids: Ids, model: str) -> dict[str, Json]:
    """A message that has begun."""
    head: dict[str, Json] = {"id": ids.reply, "type": "message", "role": "assistant", "model": model, "content": []}
    return head | {"stop_reason": None, "stop_sequence": None, "usage": write_cost(None)}


def stop_reason(ending: Ending, parts: Iterable[Part]) -> str:
    """Why the answer ended. A model that declines is told apart here, and by its words elsewhere."""
    refused = ending.stop == "ended" and any(isinstance(part, RefusalPart) for part in parts)
    return "refusal" if refused else STOP_REASONS[ending.stop]


def read_cost(value: Json) -> Cost | None:
    """What an answer cost, where it is told."""
    return cost_in(value, "output_tokens_details", "thinking_tokens")


def write_cost(cost: Cost | None) -> dict[str, Json]:
    """The usage of a reply: what came from the cache is counted apart."""
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
    """An id as Anthropic takes it; another in its place, always the same, where it would be refused."""
    return (
        call_id if _ID.fullmatch(call_id) else "id_" + hashlib.sha256(call_id.encode(errors="replace")).hexdigest()[:32]
    )


def input_of(call: CallPart, road: Road) -> dict[str, Json]:
    """The arguments of a call, which have to be an object here."""
    try:
        value = value_in(call.arguments) if call.arguments.strip() else {}
    except MalformedJson:
        value = None
    if not isinstance(value, dict):
        raise road.lost(f"a call of '{call.name}' whose arguments are no JSON object")
    return value


def _refuse_foreign(request: CompletionRequest, road: Road) -> None:
    if request.temperature is not None and request.temperature > 1:
        raise road.lost("a 'temperature' above 1")
    if request.effort and request.effort not in _EFFORTS:
        raise road.lost(f"the reasoning effort '{request.effort}'")
    if request.verbosity not in ("", "medium"):
        raise road.lost("'verbosity'")
    if request.shape is not None and request.shape.schema is None:
        raise road.lost("an answer that has to be JSON of no given schema")


def _system(value: Json, road: Road) -> Iterator[ChatTurn]:
    if isinstance(value, str):
        yield ChatTurn(role="system", parts=(TextPart(value),))
    elif value:
        yield ChatTurn(role="system", parts=tuple(_content(value, road, "system")))


def _read_turns(messages: Sequence[dict[str, Json]], road: Road) -> Iterator[ChatTurn]:
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        road.only(message, {"role", "content"} | CACHE_MARKS, where)
        match message.get("role"):
            case "assistant":
                yield ChatTurn(role="assistant", parts=tuple(_spoken(message.get("content"), road, where)))
            case "system":
                yield ChatTurn(role="system", parts=tuple(_content(message.get("content"), road, where)))
            case "user":
                parts = list(_content(message.get("content"), road, where))
                if results := tuple(part for part in parts if isinstance(part, ResultPart)):
                    yield ChatTurn(role="tool", parts=results)
                if rest := tuple(part for part in parts if not isinstance(part, ResultPart)):
                    yield ChatTurn(role="user", parts=rest)
            case _:
                raise road.lost(f"{where}.role")


def _spoken(content: Json, road: Road, where: str) -> Iterator[Part]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for n, block in enumerate(objects(content, "content")):
        yield read_block(block, road, f"{where}[{n}]")


def read_block(block: Mapping[str, Json], road: Road, where: str) -> Part:
    """A block that the assistant said."""
    match block:
        case {"type": "text", "text": str(text)}:
            road.only(block, {"type", "text"} | CACHE_MARKS, where)
            return TextPart(text)
        case {"type": "thinking", "thinking": str(text)}:
            return Thought(text=text, block=sealed_block(block))
        case {"type": "redacted_thinking"}:
            return Thought(text="", block=sealed_block(block))
        case {"type": "tool_use", "id": str(call_id), "name": str(name)}:
            if object_in(block.get("caller")).get("type", "direct") != "direct":
                raise road.lost(f"{where}.caller")
            road.only(block, {"type", "id", "name", "input", "caller"} | CACHE_MARKS, where)
            return CallPart(id=call_id, name=name, arguments=json_of(object_in(block.get("input"))))
        case _:
            raise road.lost(f"{where} ({text_in(block.get('type'))})")


def _content(content: Json, road: Road, where: str) -> Iterator[Part]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    for n, block in enumerate([] if content is None else objects(content, "content")):
        here = f"{where}[{n}]"
        match block:
            case {"type": "text", "text": str(text)}:
                road.only(block, {"type", "text"} | CACHE_MARKS, here)
                yield TextPart(text)
            case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
                yield Picture(media_type=kind, data=data)
            case {"type": "image", "source": {"type": "url", "url": str(url)}}:
                yield Picture(url=url)
            case {"type": "document", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
                road.only(block, {"type", "source", "title"} | CACHE_MARKS, here)
                yield FilePart(media_type=kind, data=data, name=text_in(block.get("title")))
            case {"type": "document", "source": {"type": "url", "url": str(url)}}:
                road.only(block, {"type", "source", "title"} | CACHE_MARKS, here)
                yield FilePart(url=url, name=text_in(block.get("title")))
            case {"type": "tool_result", "tool_use_id": str(call_id)}:
                road.only(block, {"type", "tool_use_id", "content", "is_error"} | CACHE_MARKS, here)
                parts = tuple(_content(block.get("content"), road, here))
                yield ResultPart(call_id=call_id, parts=parts, failed=bool(block.get("is_error")))
            case _:
                raise road.lost(f"{here} ({text_in(block.get('type'))})")


def _write_turns(turns: Iterable[ChatTurn], road: Road) -> Iterator[Json]:
    """Neighbours of one side become one message: read as one they are anyway, and some take no other."""
    sides = {"tool": "user", "developer": "system"}
    for side, group in groupby(turns, key=lambda turn: sides.get(turn.role, turn.role)):
        blocks = list(_write_blocks([part for turn in group for part in turn.parts], road))
        if blocks:
            yield {"role": side, "content": blocks}


def _write_blocks(parts: Iterable[Part], road: Road) -> Iterator[Json]:
    """Parts as blocks. Text that says nothing is left out: it is refused here, and often stands beside calls."""
    for part in parts:
        match part:
            case TextPart(text):
                if text.strip() or road.reply:
                    yield {"type": "text", "text": text}
            case Thought():
                yield from _write_thought(part, road)
            case CallPart():
                call_id = part.id if road.reply else safe_id(part.id)
                yield {"type": "tool_use", "id": call_id, "name": part.name, "input": input_of(part, road)}
            case ResultPart():
                failed: dict[str, Json] = {"is_error": True} if part.failed else {}
                content = list(_write_blocks(part.parts, road))
                yield {"type": "tool_result", "tool_use_id": safe_id(part.call_id), "content": content, **failed}
            case Picture():
                yield {"type": "image", "source": _source(part)}
            case FilePart():
                title: dict[str, Json] = {"title": part.name} if part.name else {}
                yield {"type": "document", "source": _source(part), **title}
            case RefusalPart(text):
                yield {"type": "text", "text": text}


def _write_thought(part: Thought, road: Road) -> Iterator[Json]:
    if part.block and part.block.get("type") in THINKING:
        yield dict(part.block)
    elif (part.block or part.text) and not road.reply:
        raise road.lost("reasoning that Anthropic did not sign")
    elif part.text:
        yield {"type": "thinking", "thinking": part.text, "signature": seal(part.block) if part.block else ""}
    elif part.block:
        yield {"type": "redacted_thinking", "data": seal(part.block)}


def sealed_block(block: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """What has to go back of a block of thinking: what is sealed in it, or the block; nothing where nothing is."""
    sealed = text_in(block.get("signature")) or text_in(block.get("data"))
    return unseal(sealed) or block if sealed else None


def _source(part: Picture | FilePart) -> Json:
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type, "data": part.data}


def _read_tool(tool: Mapping[str, Json], road: Road, where: str) -> ToolDefinition:
    if tool.get("type", "custom") not in ("custom", None):
        raise road.lost(f"{where} ({tool.get('type')})")
    if tool.get("defer_loading") is True:
        raise road.lost(f"{where}.defer_loading")
    hints = {"defer_loading", "eager_input_streaming"} | CACHE_MARKS
    road.only(tool, hints | {"type", "name", "description", "input_schema", "strict"}, where)
    description = text_in(tool.get("description"))
    schema, strict = tool.get("input_schema"), flag(tool, "strict")
    return ToolDefinition(name=text_in(tool.get("name")), description=description, schema=schema, strict=strict)


def _write_tool(tool: ToolDefinition) -> Json:
    told: dict[str, Json] = {"description": tool.description} if tool.description else {}
    strict: dict[str, Json] = {"strict": True} if tool.strict else {}
    schema: dict[str, Json] = tool.schema if isinstance(tool.schema, dict) else {"properties": {}}
    return {"name": tool.name, **told, "input_schema": {"type": "object", **schema}, **strict}


def _read_choice(value: Mapping[str, Json], road: Road) -> ToolChoice | None:
    match value.get("type"):
        case None:
            return None
        case "auto" | "none" | "any" as kind:
            return ToolChoice(kind=kind)
        case "tool":
            return ToolChoice(kind="tool", name=text_in(value.get("name")))
        case _:
            raise road.lost("'tool_choice'")


def _write_choice(request: CompletionRequest) -> Json:
    if not request.tools or (request.choice is None and request.parallel is not False):
        return None
    choice = request.choice or ToolChoice(kind="auto")
    name: dict[str, Json] = {"name": choice.name} if choice.kind == "tool" else {}
    alone: dict[str, Json] = {}
    if request.parallel is not None and choice.kind != "none":
        alone["disable_parallel_tool_use"] = not request.parallel
    return {"type": choice.kind, **name, **alone}


def _read_shape(value: Json, road: Road) -> Shape | None:
    match value:
        case None:
            return None
        case {"type": "json_schema", "schema": schema}:
            return Shape(schema=schema, strict=True)
        case _:
            raise road.lost("'output_config.format'")
