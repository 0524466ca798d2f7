"""Conversion between Gemini's API and the neutral model: requests, responses and streams.

Gemini signs a call, or a text, with a signature on its part. For other formats the signature becomes reasoning without
text before that part, and comes back to it. Reasoning of another provider is carried by the signature of the next part.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from recto.errors import MalformedJson, MalformedMessage
from recto.formats.arrangement import OPENING
from recto.formats.convert.types import (
    SIGNATURE,
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
    count,
    merge_texts,
    number,
    object_list,
    objects_in,
    seal,
    stop_for,
    tokens,
    unseal,
)
from recto.formats.gemini.message import UNSIGNED, named, output_text
from recto.formats.gemini.request import stream_error
from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in, value_in
from recto.formats.response import usage_in
from recto.formats.streaming import SseEvent, error_in, event_object, sse
from recto.text.lazy_re import lazy_re

_SEALED: Final = "blocks"
"""The member that holds the blocks of other providers which a signature carries."""
_STOP_REASONS: Final[Mapping[Stop, str]] = {
    "ended": "STOP",
    "length": "MAX_TOKENS",
    "calls": "STOP",
    "sequence": "STOP",
    "filtered": "SAFETY",
}
_STOPS: Final[Mapping[str, Stop]] = {
    "": "ended",
    "STOP": "ended",
    "FINISH_REASON_UNSPECIFIED": "ended",
    "MAX_TOKENS": "length",
    "SAFETY": "filtered",
    "RECITATION": "filtered",
    "LANGUAGE": "filtered",
    "BLOCKLIST": "filtered",
    "PROHIBITED_CONTENT": "filtered",
    "SPII": "filtered",
    "IMAGE_SAFETY": "filtered",
    "OTHER": "filtered",
}
_MEMBERS: Final = frozenset(
    {"model", "stream", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
) | {"safetySettings", "labels"}
_CONFIG: Final = frozenset(
    {"temperature", "topP", "maxOutputTokens", "stopSequences", "responseMimeType", "responseSchema"}
) | frozenset({"responseJsonSchema", "_responseJsonSchema", "thinkingConfig", "mediaResolution"})
_CONFIG_DEFAULTS: Final[Mapping[str, Sequence[Json]]] = {
    "topK": (1, 40, 64, 95),
    "candidateCount": (1,),
    "presencePenalty": (0,),
    "frequencyPenalty": (0,),
    "responseLogprobs": (False,),
    "responseModalities": (["TEXT"], ["MODALITY_UNSPECIFIED"]),
}
_TYPES: Final = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_BUDGETS: Final = ((0, "none"), (2_048, "low"), (8_192, "medium"))
"""Tokens of thinking up to which an effort is meant; more is `high`."""
_OF_EFFORT: Final = {"none": 0, "minimal": 512, "low": 2_048, "medium": 8_192, "high": 24_576}
_OLD = lazy_re(r"(?:models/)?gemini-(?:1|2)[.-]")
"""Models that think by a budget and verify no signatures."""


def read_request(body: Mapping[str, Json], conversion: Conversion) -> CompletionRequest:
    """Reads a request body."""
    conversion.allow_only(body, _MEMBERS)
    config = object_in(body.get("generationConfig"))
    conversion.allow_only(config, _CONFIG | _CONFIG_DEFAULTS.keys(), "generationConfig")
    conversion.require_defaults(config, _CONFIG_DEFAULTS)
    stops = config.get("stopSequences")
    contents = object_list(body.get("contents"), "contents")
    turns = tuple(_Contents(conversion).read(contents))
    if turns and turns[-1].role == "assistant":
        raise conversion.unsupported("the model's content at the end, which it would go on with,")
    return CompletionRequest(
        model=text_in(body.get("model")).removeprefix("models/"),
        turns=(*_system(body.get("systemInstruction"), conversion), *turns),
        tools=tuple(
            tool
            for n, holder in enumerate(objects_in(body, "tools"))
            for tool in _read_tools(named(holder), conversion, n)
        ),
        choice=_read_choice(object_in(body.get("toolConfig")), conversion),
        max_tokens=count(config, "maxOutputTokens"),
        temperature=number(config, "temperature"),
        top_p=number(config, "topP"),
        stop=tuple(text_in(sequence) for sequence in stops) if isinstance(stops, list) else (),
        stream=bool(body.get("stream")),
        effort=_read_effort(object_in(config.get("thinkingConfig"))),
        output_schema=_read_schema(config, conversion),
    )


def write_request(request: CompletionRequest, conversion: Conversion, max_tokens: int) -> dict[str, Json]:
    """Writes a request body."""
    if request.verbosity not in ("", "medium"):
        raise conversion.unsupported("'verbosity'")
    if request.parallel is False:
        raise conversion.unsupported("a request for one call at a time")
    body: dict[str, Json] = {"model": request.model, "stream": request.stream}
    start = 0
    while start < len(request.turns) and request.turns[start].role in ("system", "developer"):
        start += 1
    system = [part for turn in request.turns[:start] for part in turn.parts]
    writer = _PartWriter(conversion, signs=not _OLD.match(request.model))
    if parts := list(writer.write(system)):
        body["systemInstruction"] = {"parts": parts}
    contents = list(_write_turns(request.turns[start:], writer))
    if not contents or contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
    body["contents"] = [*contents]
    if request.tools:
        declared: list[Json] = [_write_tool(tool) for tool in request.tools]
        body["tools"] = [{"functionDeclarations": declared}]
        if (choice := _write_choice(request)) is not None:
            body["toolConfig"] = {"functionCallingConfig": choice}
    config: dict[str, Json] = {
        "maxOutputTokens": request.max_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "stopSequences": list(request.stop) or None,
        "thinkingConfig": _write_effort(request, conversion),
    }
    if request.output_schema is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = request.output_schema.schema
    written: dict[str, Json] = {key: value for key, value in config.items() if value is not None}
    if written:
        body["generationConfig"] = written
    return body


def read_completion(body: Mapping[str, Json], conversion: Conversion) -> Completion:
    """Reads a response body."""
    model = text_in(body.get("modelVersion"))
    candidates = body.get("candidates")
    if not isinstance(candidates, list) or not candidates:
        if not object_in(body.get("promptFeedback")).get("blockReason"):
            raise MalformedMessage("the reply has no candidates")
        return Completion(model=model, parts=(), ending=Ending(stop="filtered", cost=read_cost(body)))
    candidate = object_in(candidates[0])
    content = object_in(candidate.get("content"))
    ids = _Contents(conversion)
    parts = merge_texts(ids.model_parts(objects_in(content, "parts"), "content"))
    stop = stop_for(parts, read_stop(text_in(candidate.get("finishReason"))))
    return Completion(model=model, parts=parts, ending=Ending(stop=stop, cost=read_cost(body)))


def read_stop(reason: str) -> Stop:
    """Reads why a response ended. A reason that no other format has is an ordinary end: the answer is paid for."""
    return _STOPS.get(reason, "ended")


def write_completion(completion: Completion, ids: ResponseIds, conversion: Conversion) -> dict[str, Json]:
    """Writes a response body."""
    parts = list(_PartWriter(conversion).write(completion.parts)) or [{"text": ""}]
    return _response(ids, completion.model, parts, _STOP_REASONS[completion.ending.stop], completion.ending.cost)


def stored_completion(
    messages: Sequence[dict[str, Json]], ids: ResponseIds, model: str, stop: str, cost: Cost | None
) -> dict[str, Json]:
    """Writes the response body that holds stored messages. `stop` is the stop reason; empty if unknown."""
    parts = messages[-1].get("parts")
    return _response(ids, model, parts if isinstance(parts, list) else [], stop or "STOP", cost)


def _response(ids: ResponseIds, model: str, parts: list[Json], stop: str, cost: Cost | None) -> dict[str, Json]:
    candidate: dict[str, Json] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if stop:
        candidate["finishReason"] = stop
    body: dict[str, Json] = {"candidates": [candidate]}
    if cost is not None:
        body["usageMetadata"] = write_cost(cost)
    return {**body, "modelVersion": model, "responseId": ids.reply}


def read_cost(body: Mapping[str, Json]) -> Cost | None:
    """Reads the `usageMetadata` of a response."""
    value = body.get("usageMetadata")
    usage = usage_in(value)
    return None if usage is None else Cost(usage=usage, reasoning=tokens(object_in(value).get("thoughtsTokenCount")))


def write_cost(cost: Cost) -> dict[str, Json]:
    """Writes a `usageMetadata` object. It counts thoughts separately."""
    usage = cost.usage
    counts: dict[str, Json] = {
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": max(usage.output - cost.reasoning, 0),
        "totalTokenCount": usage.prompt + usage.output,
    }
    if cost.reasoning:
        counts["thoughtsTokenCount"] = cost.reasoning
    if usage.cache_read:
        counts["cachedContentTokenCount"] = usage.cache_read
    return counts


class _Contents:
    """Reads contents. Calls without ids get one by what they call, so that it stays the same from prompt to prompt."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._counts: dict[str, int] = {}
        self._open: dict[str, deque[str]] = {}
        """By function: the ids of calls that have no result yet, oldest first."""

    def read(self, contents: Sequence[dict[str, Json]]) -> Iterator[ChatTurn]:
        """Yields the turns of a conversation."""
        for n, content in enumerate(contents):
            where = f"contents[{n}]"
            self._conversion.allow_only(content, {"role", "parts"}, where)
            parts = [named(part) for part in object_list(content.get("parts"), "parts")]
            if content.get("role") == "model":
                yield ChatTurn(role="assistant", parts=tuple(self.model_parts(parts, where)))
                continue
            results = [place for place, part in enumerate(parts) if "functionResponse" in part]
            if results:
                read = (self._result(object_in(parts[place]["functionResponse"]), where) for place in results)
                yield ChatTurn(role="tool", parts=tuple(read))
            rest = [part for place, part in enumerate(parts) if place not in results]
            if said := tuple(_read_content(rest, self._conversion, where)):
                yield ChatTurn(role="user", parts=said)

    def model_parts(self, parts: Sequence[dict[str, Json]], where: str) -> Iterator[ContentPart]:
        """Yields the parts of the model, each behind the reasoning that its signature carries."""
        for n, part in enumerate(map(named, parts)):
            here = f"{where}.parts[{n}]"
            yield from signed_blocks(part)
            match part:
                case {"functionCall": dict(call)}:
                    self._conversion.allow_only(part, {"functionCall", "thoughtSignature"}, here)
                    yield self._call(call)
                case {"text": str(text)}:
                    self._conversion.allow_only(part, {"text", "thought", "thoughtSignature"}, here)
                    if text:
                        yield Thought(text=text) if part.get("thought") is True else TextPart(text)
                case _ if part.keys() <= {"thoughtSignature", "thought"}:
                    pass
                case _:
                    raise self._conversion.unsupported(here)

    def _call(self, call: Mapping[str, Json]) -> CallPart:
        name, arguments = text_in(call.get("name")), json_of(object_in(call.get("args")))
        id = text_in(call.get("id"))
        if not id:
            digest = hashlib.sha256(f"{name} {arguments}".encode(errors="replace")).hexdigest()[:16]
            self._counts[digest] = repeat = self._counts.get(digest, -1) + 1
            id = f"call_{digest}_{repeat}" if repeat else f"call_{digest}"
        self._open.setdefault(name, deque()).append(id)
        return CallPart(id=id, name=name, arguments=arguments)

    def _result(self, result: Mapping[str, Json], where: str) -> ResultPart:
        name, id = text_in(result.get("name")), text_in(result.get("id"))
        waiting = self._open.get(name, deque())
        if id in waiting:
            waiting.remove(id)
        elif waiting:
            id = waiting.popleft()
        response = result.get("response")
        failed = isinstance(response, dict) and response.keys() == {"error"}
        parts: list[ContentPart] = [TextPart(output_text(response))]
        parts += _read_content([named(part) for part in objects_in(result, "parts")], self._conversion, where)
        return ResultPart(call_id=id or name, parts=tuple(parts), failed=failed)


def signed_blocks(part: Mapping[str, Json]) -> Iterator[Thought]:
    """Yields the reasoning that the signature of a part carries: blocks of other providers, or the signature itself."""
    signature = text_in(part.get("thoughtSignature"))
    if not signature or signature == UNSIGNED:
        return
    sealed = unseal(signature)
    if sealed is None:
        yield Thought(text="", block={"type": SIGNATURE, "signature": signature})
        return
    blocks = sealed.get(_SEALED)
    for block in blocks if isinstance(blocks, list) else []:
        yield Thought(text="", block=object_in(block))


def _system(value: Json, conversion: Conversion) -> Iterator[ChatTurn]:
    parts: Json = [{"text": value}] if isinstance(value, str) else object_in(value).get("parts")
    read = tuple(_read_content([named(part) for part in object_list(parts or [], "parts")], conversion, "system"))
    if read:
        yield ChatTurn(role="system", parts=read)


def _read_content(parts: Sequence[dict[str, Json]], conversion: Conversion, where: str) -> Iterator[ContentPart]:
    for n, part in enumerate(parts):
        here = f"{where}.parts[{n}]"
        match part:
            case {"text": str(text)}:
                conversion.allow_only(part, {"text", "thought", "thoughtSignature"}, here)
                yield TextPart(text)
            case {"inlineData": dict(data)}:
                fields = named(data)
                kind, raw = text_in(fields.get("mimeType")), text_in(fields.get("data"))
                name = text_in(fields.get("displayName"))
                if kind.startswith("image/"):
                    yield Picture(media_type=kind, data=raw)
                elif kind == "application/pdf" or kind.startswith("text/"):
                    yield FilePart(media_type=kind, data=raw, name=name)
                else:
                    raise conversion.unsupported(f"{here} ({kind})")
            case _:
                raise conversion.unsupported(here)


class _PartWriter:
    """Writes parts. Reasoning without text of its own goes on with the signature of the next part."""

    def __init__(self, conversion: Conversion, *, signs: bool = False) -> None:
        self._conversion = conversion
        self._signs = signs
        """Whether the first call of a turn needs a signature."""
        self._names: dict[str, str] = {}
        """The functions of the calls, by id."""

    def write(self, parts: Iterable[ContentPart]) -> Iterator[Json]:
        """Writes the parts of one content."""
        blocks: list[Mapping[str, Json]] = []
        has_calls = False
        for part in parts:
            match part:
                case Thought(text=text, block=block):
                    if block is not None:
                        blocks.append(block)
                    if text and self._conversion.reply:
                        yield {"text": text, "thought": True}
                    elif text and block is None:
                        raise self._conversion.unsupported("reasoning without a signature")
                case TextPart(text) | RefusalPart(text):
                    if text:
                        yield {"text": text, **(_signature(blocks) if self._conversion.reply else _own(blocks))}
                        blocks = []
                case CallPart():
                    self._names[part.id] = part.name
                    signature = _signature(blocks) if self._conversion.reply else _own(blocks)
                    if not signature and self._signs and not has_calls:
                        signature = {"thoughtSignature": UNSIGNED}
                    call: dict[str, Json] = {"id": part.id, "name": part.name, "args": self._arguments(part)}
                    yield {"functionCall": call, **signature}
                    blocks, has_calls = [], True
                case _:
                    yield from self._write_content(part)
        if blocks and self._conversion.reply:
            yield {"text": "", **_signature(blocks)}

    def _write_content(self, part: ContentPart) -> Iterator[Json]:
        match part:
            case Picture() | FilePart():
                if part.url:
                    raise self._conversion.unsupported("a file at an address")
                name: dict[str, Json] = {"displayName": part.name} if isinstance(part, FilePart) and part.name else {}
                yield {"inlineData": {"mimeType": part.media_type, "data": part.data, **name}}
            case ResultPart():
                texts = [inner.text for inner in part.parts if isinstance(inner, TextPart)]
                output: dict[str, Json] = {"error" if part.failed else "output": "\n".join(texts)}
                function = self._names.get(part.call_id, part.call_id)
                yield {"functionResponse": {"id": part.call_id, "name": function, "response": output}}
                for inner in part.parts:
                    if not isinstance(inner, TextPart):
                        yield from self._write_content(inner)

    def _arguments(self, call: CallPart) -> dict[str, Json]:
        try:
            value = value_in(call.arguments) if call.arguments.strip() else {}
        except MalformedJson:
            value = None
        if not isinstance(value, dict):
            raise self._conversion.unsupported(f"a call of '{call.name}' whose arguments are no JSON object")
        return value


def _own(blocks: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Returns the signature of Gemini's among blocks; those of other providers mean nothing to it."""
    own = next((block for block in blocks if block.get("type") == SIGNATURE), None)
    return {} if own is None else {"thoughtSignature": own.get("signature")}


def _signature(blocks: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Returns a signature that carries blocks to a client and back."""
    if not blocks:
        return {}
    if own := _own(blocks):
        return own
    return {"thoughtSignature": seal({_SEALED: [dict(block) for block in blocks]})}


def _write_turns(turns: Iterable[ChatTurn], writer: _PartWriter) -> Iterator[dict[str, Json]]:
    """Merges adjacent turns of one role, as the API does. System text inside the conversation is the user's."""
    for role, group in groupby(turns, key=lambda turn: "model" if turn.role == "assistant" else "user"):
        parts = list(writer.write([part for turn in group for part in turn.parts]))
        if role == "user":
            parts.sort(key=lambda part: "functionResponse" not in object_in(part))
        if parts:
            yield {"role": role, "parts": parts}


def _read_tools(holder: Mapping[str, Json], conversion: Conversion, place: int) -> Iterator[ToolDefinition]:
    where = f"tools[{place}]"
    conversion.allow_only(holder, {"functionDeclarations", "function_declarations"}, where)
    declared = holder.get("functionDeclarations", holder.get("function_declarations"))
    for tool in object_list(declared or [], "functionDeclarations"):
        known = {"name", "description", "parameters", "parametersJsonSchema", "parameters_json_schema"}
        conversion.allow_only(tool, known | {"response", "responseJsonSchema", "behavior"}, where)
        schema = tool.get("parametersJsonSchema", tool.get("parameters_json_schema"))
        schema = _json_schema(tool.get("parameters")) if schema is None else schema
        description = text_in(tool.get("description"))
        yield ToolDefinition(name=text_in(tool.get("name")), description=description, schema=schema, strict=None)


def _json_schema(value: Json) -> Json:
    """Returns one of Gemini's schemas as a JSON schema: types in lower case, and null as a type."""
    if isinstance(value, list):
        return [_json_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema: dict[str, Json] = {}
    for key, item in value.items():
        if key == "type" and isinstance(item, str) and item.upper() in _TYPES:
            schema[key] = item.lower()
        elif key == "properties" and isinstance(item, dict):
            schema[key] = {name: _json_schema(property) for name, property in item.items()}
        elif key in ("items", "anyOf", "any_of", "additionalProperties"):
            schema["anyOf" if key == "any_of" else key] = _json_schema(item)
        elif key not in ("nullable", "propertyOrdering", "property_ordering", "example"):
            schema[key] = item
    if value.get("nullable") is True and "type" in schema:
        schema["type"] = [schema["type"], "null"]
    return schema


def _write_tool(tool: ToolDefinition) -> dict[str, Json]:
    description: dict[str, Json] = {"description": tool.description} if tool.description else {}
    schema: dict[str, Json] = {"parametersJsonSchema": tool.schema} if tool.schema else {}
    return {"name": tool.name, **description, **schema}


def _read_choice(config: Mapping[str, Json], conversion: Conversion) -> ToolChoice | None:
    conversion.allow_only(config, {"functionCallingConfig"}, "toolConfig")
    choice = object_in(config.get("functionCallingConfig"))
    names = choice.get("allowedFunctionNames")
    match text_in(choice.get("mode")).upper():
        case "" | "MODE_UNSPECIFIED":
            return None
        case "AUTO" | "VALIDATED" if not names:
            return ToolChoice(kind="auto")
        case "NONE":
            return ToolChoice(kind="none")
        case "ANY" if not names:
            return ToolChoice(kind="any")
        case "ANY" if isinstance(names, list) and len(names) == 1:
            return ToolChoice(kind="tool", name=text_in(names[0]))
        case _:
            raise conversion.unsupported("'toolConfig'")


def _write_choice(request: CompletionRequest) -> dict[str, Json] | None:
    strict = all(tool.strict for tool in request.tools)
    if request.choice is None and not strict:
        return None
    choice = request.choice or ToolChoice(kind="auto")
    mode = {"auto": "VALIDATED" if strict else "AUTO", "none": "NONE", "any": "ANY", "tool": "ANY"}[choice.kind]
    names: dict[str, Json] = {"allowedFunctionNames": [choice.name]} if choice.kind == "tool" else {}
    return {"mode": mode, **names}


def _read_schema(config: Mapping[str, Json], conversion: Conversion) -> OutputSchema | None:
    schema = config.get("responseJsonSchema", config.get("_responseJsonSchema"))
    schema = _json_schema(config.get("responseSchema")) if schema is None else schema
    match config.get("responseMimeType"):
        case None | "" | "text/plain":
            return None
        case "application/json":
            return OutputSchema(schema=schema, strict=True if schema is not None else None, name="response")
        case kind:
            raise conversion.unsupported(f"an answer of the type '{kind}'")


def _read_effort(config: Mapping[str, Json]) -> str:
    """Reads how much the model thinks. A budget of -1 leaves it to the model."""
    if level := text_in(config.get("thinkingLevel")):
        return level.lower()
    budget = config.get("thinkingBudget")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 0:
        return ""
    return next((effort for limit, effort in _BUDGETS if budget <= limit), "high")


def _write_effort(request: CompletionRequest, conversion: Conversion) -> dict[str, Json] | None:
    if not request.effort:
        return None
    effort = "high" if request.effort in ("xhigh", "max") else request.effort
    if effort not in _OF_EFFORT:
        raise conversion.unsupported(f"the reasoning effort '{request.effort}'")
    if _OLD.match(request.model):
        return {"thinkingBudget": _OF_EFFORT[effort]}
    return {"thinkingLevel": "minimal" if effort == "none" else effort}


class GeminiStreamReader:
    """Reads `streamGenerateContent`."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._contents = _Contents(conversion)
        self._calls = 0
        self._has_ended = False
        self._thinks = False

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what a chunk holds."""
        data = event_object(event)
        if data is None:
            return
        if "error" in data:
            yield StreamFailure(error_in(data["error"]))
            return
        yield StreamStart(text_in(data.get("modelVersion")))
        candidates = data.get("candidates")
        candidate = object_in(candidates[0]) if isinstance(candidates, list) and candidates else {}
        for part in self._contents.model_parts(objects_in(object_in(candidate.get("content")), "parts"), "content"):
            yield from self._part(part)
        blocked = bool(object_in(data.get("promptFeedback")).get("blockReason"))
        reason = text_in(candidate.get("finishReason"))
        if (reason or blocked) and not self._has_ended:
            self._has_ended = True
            stop: Stop = "filtered" if blocked else read_stop(reason)
            stop = "calls" if stop == "ended" and self._calls else stop
            yield StreamEnd(Ending(stop=stop, cost=read_cost(data)))

    def finish(self) -> Iterator[StreamEvent]:
        """Yields nothing: this format marks its end itself."""
        return iter(())

    def _part(self, part: ContentPart) -> Iterator[StreamEvent]:
        match part:
            case Thought(text=text, block=block):
                if text:
                    self._thinks = True
                    yield TextDelta("thought", text)
                if block is not None:
                    self._thinks = False
                    yield ReasoningSealed(dict(block))
            case CallPart():
                yield from self._end_thought()
                key, self._calls = self._calls, self._calls + 1
                yield CallStart(key, part.id, part.name)
                yield CallDelta(key, part.arguments)
                yield CallEnd(key)
            case TextPart(text):
                yield from self._end_thought()
                yield TextDelta("text", text)

    def _end_thought(self) -> Iterator[StreamEvent]:
        if self._thinks:
            self._thinks = False
            yield PartEnd()


class GeminiStreamWriter:
    """Writes `streamGenerateContent`: text as it comes, and a call when it is complete."""

    def __init__(self, conversion: Conversion, ids: ResponseIds, include_usage: bool) -> None:
        self._parts = _PartWriter(conversion)
        self._ids = ids
        self._model = ""
        self._call: CallStart | None = None
        self._arguments: list[str] = []
        self._blocks: list[ContentPart] = []
        """Reasoning that the signature of the next part carries."""
        self._calls = 0

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the chunks for a neutral event."""
        match event:
            case StreamStart(model=model):
                self._model = model
            case TextDelta(kind="thought", text=text):
                yield self._chunk([Thought(text=text)])
            case TextDelta(text=text):
                yield self._chunk([TextPart(text)])
            case ReasoningSealed(block=block):
                self._blocks.append(Thought(text="", block=block))
            case CallStart():
                self._call, self._arguments = event, []
            case CallDelta(text=text):
                self._arguments.append(text)
            case PartEnd() if self._call is not None:
                id = self._call.id or self._ids.item("call", self._calls)
                call = CallPart(id=id, name=self._call.name, arguments="".join(self._arguments))
                self._call, self._calls = None, self._calls + 1
                yield self._chunk([call])
            case StreamEnd(ending=ending):
                yield self._chunk([], _STOP_REASONS[ending.stop], ending.cost)

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last event of a stream that cannot go on."""
        return stream_error(code, message)

    def _chunk(self, parts: Sequence[ContentPart], stop: str = "", cost: Cost | None = None) -> bytes:
        thinks = bool(parts) and isinstance(parts[0], Thought)
        carried = [] if thinks else self._blocks
        self._blocks = self._blocks if thinks else []
        written = list(self._parts.write([*carried, *parts])) or [{"text": ""}]
        return sse(None, json_of(_response(self._ids, self._model, written, stop, cost)))


def reader(conversion: Conversion) -> GeminiStreamReader:
    """Creates a reader for one stream."""
    return GeminiStreamReader(conversion)


def writer(conversion: Conversion, ids: ResponseIds, include_usage: bool) -> GeminiStreamWriter:
    """Creates a writer for one stream."""
    return GeminiStreamWriter(conversion, ids, include_usage)
