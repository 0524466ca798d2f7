"""Contents of Gemini's API: how they are parsed and edited, and what the provider refuses.

A content has a role, `user` or `model`, and a list of parts. The API also takes the names of members in snake case, as
many examples write them. Adjacent contents of one role are one turn: clients that stream send every chunk back as a
content of its own.

Calls may come without an id. Such a call is known by its name and its place among the calls of that name in its
content, and so is its result: a turn of results follows its turn of calls directly.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from recto.errors import MalformedMessage
from recto.formats.json_spans import (
    TextEdit,
    apply_edits,
    elements_of,
    member_at,
    quoted,
    removals,
    set_member,
    text_of,
)
from recto.formats.message import (
    ROLES,
    Message,
    Part,
    as_json,
    content_blocks,
    fields_of,
    image_part,
    json_of,
    object_in,
    result_parts,
    stated_role,
    text_in,
    unknown_members,
    unknown_part,
    weight_in,
)
from recto.formats.tool_calls import NO_CALLS, ToolCallIds, call_defect, repeated_ids, unanswered_calls
from recto.text.lazy_re import lazy_re

if TYPE_CHECKING:
    from recto.formats.json_spans import Json, JsonSpan
    from recto.formats.tool_calls import NewToolCall, NewToolResult
    from recto.transcript.entries import Role

UNSIGNED: Final = "skip_thought_signature_validator"
"""The signature of a call that Gemini did not make: it requires one and accepts this."""
_KNOWN: Final = frozenset({"role", "parts", "content"})
_RESULT_ROLES: Final = ("function", "tool")
_ROLES: Final = ("user", "model", *_RESULT_ROLES)
_SNAKE: Final[Mapping[str, str]] = {
    "inline_data": "inlineData",
    "file_data": "fileData",
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "thought_signature": "thoughtSignature",
    "video_metadata": "videoMetadata",
    "media_resolution": "mediaResolution",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "display_name": "displayName",
}
_MADE_ID = lazy_re(r"[-_][0-9]{10,}(?:[-_][0-9A-Za-z]+)*")
"""How ids go on after the name of the function where a client makes them, as Gemini CLI does: the call came without
one, and only its result has it."""


def named(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Returns an object with the names of its members in camel case."""
    return {_SNAKE.get(key, key): value for key, value in fields.items()}


def parts_of(fields: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Returns the parts of a content, with the names of their members in camel case.

    A message of the other formats, which may be in a prompt of this one, counts as its text.
    """
    parts = fields.get("parts")
    if isinstance(parts, list):
        return [named(part) for part in parts if isinstance(part, dict)]
    if "parts" in fields:
        return []
    return [{"text": text} for block in content_blocks(fields) if (text := text_in(block.get("text")))]


def read(raw: bytes) -> Message:
    """Parses a content."""
    fields = fields_of(raw)
    parts: list[Part] = []
    for part, id in zip(found := parts_of(fields), _ids(found), strict=True):
        parts += _read_part(part, id)
    parts += map(unknown_part, _strange_parts(fields))
    return Message(role=role_of(fields), parts=(*parts, *unknown_members(fields, _KNOWN)))


def _strange_parts(fields: Mapping[str, Json]) -> Iterator[Json]:
    """Yields what `parts_of` leaves out."""
    parts = fields.get("parts")
    if "parts" in fields:
        yield from (part for part in (parts if isinstance(parts, list) else [parts]) if not isinstance(part, dict))
        return
    content = fields.get("content")
    for block in content if isinstance(content, list) else []:
        if not text_in(object_in(block).get("text")):
            yield block
    if not isinstance(content, str | list | None):
        yield content


def role_of(fields: dict[str, Json]) -> Role:
    """Returns the role of a content; `tool` if a function response is in it. Without a role it is the user's."""
    if fields.get("role") is None and "parts" not in fields:
        raise MalformedMessage("it has neither 'role' nor 'parts'")
    role = "user" if fields.get("role") is None else stated_role(fields)
    if role == "user":
        parts = fields.get("parts")
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and ("functionResponse" in part or "function_response" in part):
                return "tool"
    return role


def is_own_message(fields: dict[str, Json]) -> bool:
    """Whether a message has parts and no content."""
    return isinstance(fields.get("parts"), list) and "content" not in fields and "type" not in fields


def is_own_block(block: dict[str, Json]) -> bool:
    """Never: contents have no `content`."""
    return False


def is_own_wrapper(fields: dict[str, Json]) -> bool:
    """Never: contents have no type."""
    return False


def canonical_fields(fields: dict[str, Json]) -> dict[str, Json]:
    """Drops what clients leave out or join when they send a content again: thoughts, signatures, places of cuts.

    A content that is only text is in the form that the other formats share: it may be stored so.
    """
    kept: list[dict[str, Json]] = []
    for part in parts_of(fields):
        if part.get("thought") is True:
            continue
        plain: dict[str, Json] = {key: value for key, value in part.items() if value is not None and key not in _TRACES}
        if plain.keys() == {"text"} and kept and kept[-1].keys() == {"text"}:
            kept[-1] = {"text": text_in(kept[-1]["text"]) + text_in(plain["text"])}
        elif plain and plain != {"text": ""}:
            kept.append(plain)
    rest = {key: value for key, value in fields.items() if key not in ("role", "parts", "content")}
    parts: list[Json] = [*kept]
    if len(kept) == 1 and kept[0].keys() == {"text"} and not rest:
        role = role_of(fields)
        return {"role": role, "content": [{"type": "text", "text": kept[0]["text"]}]}
    return {**rest, "role": "model" if role_of(fields) == "assistant" else "user", "parts": parts}


_TRACES: Final = frozenset({"thought", "thoughtSignature"})


def _read_part(part: dict[str, Json], id: str) -> Iterator[Part]:
    signature = weight_in(part.get("thoughtSignature"))
    match part:
        case {"functionCall": dict(call)}:
            arguments = as_json(call.get("args")) if "args" in call else ""
            yield Part(kind="call", name=text_in(call.get("name")), text=arguments, call_id=id, weight=signature)
        case {"functionResponse": dict(result)}:
            yield from result_parts(id, text_in(result.get("name")), _output(result), failed=_reports_error(result))
        case {"text": str(text)}:
            kind: Literal["thinking", "text"] = "thinking" if part.get("thought") is True else "text"
            yield Part(kind=kind, text=text, weight=signature)
        case {"inlineData": dict(data)}:
            yield _media(named(data), part)
        case {"fileData": dict(data)}:
            yield _media(named(data), part)
        case {"executableCode": dict(code)}:
            yield Part(kind="text", text=text_in(code.get("code")), weight=signature)
        case {"codeExecutionResult": dict(outcome)}:
            yield Part(kind="text", text=text_in(outcome.get("output")), weight=signature)
        case _:
            yield unknown_part(part)


def _output(result: Mapping[str, Json]) -> Iterator[Part]:
    """Parses the output of a function: its text, and images beside it."""
    yield Part(kind="text", text=output_text(result.get("response")))
    parts = result.get("parts")
    for part in parts if isinstance(parts, list) else []:
        yield from _read_part(named(object_in(part)), "")


def _reports_error(result: Mapping[str, Json]) -> bool:
    """Whether a function's response is an error: its details are in `error`, in place of `output`."""
    response = object_in(result.get("response"))
    return bool(response.get("error")) and "output" not in response


def output_text(response: Json) -> str:
    """Returns the text of a function's output: that of its only member, or the output as JSON."""
    match response:
        case None:
            return ""
        case dict() if len(response) == 1 and isinstance(value := next(iter(response.values())), str):
            return value
        case _:
            return as_json(response)


def _media(data: Mapping[str, Json], part: Mapping[str, Json]) -> Part:
    kind, uri = text_in(data.get("mimeType")), text_in(data.get("fileUri"))
    if not kind.startswith("image/"):
        return Part(kind="media", text=uri or text_in(data.get("displayName")), weight=weight_in(data.get("data")))
    detail = text_in(object_in(part.get("mediaResolution")).get("level"))
    return Part(kind="image", text=uri, detail=detail) if uri else image_part(data.get("data"), detail)


def _ids(parts: Sequence[Mapping[str, Json]]) -> list[str]:
    """Returns the id of the call that each part makes or answers; empty for other parts, and for what has no name."""
    counts: dict[tuple[str, str], int] = {}
    ids: list[str] = []
    for part in parts:
        kind = next((kind for kind in ("functionCall", "functionResponse") if isinstance(part.get(kind), dict)), "")
        fields = object_in(part.get(kind))
        name, id = text_in(fields.get("name")), fields.get("id") or ""
        if not isinstance(id, str) or not name:
            ids.append("")
        elif id and not (id.startswith(name) and _MADE_ID.fullmatch(id, len(name))):
            ids.append(id)
        else:
            place = counts[kind, name] = counts.get((kind, name), -1) + 1
            ids.append(f"{name}#{place}")
    return ids


def settle(messages: Iterable[bytes]) -> list[bytes]:
    """Drops empty text, and puts function responses before other parts of the user's turn.

    Messages of the other formats become contents.
    """
    not_blank = [content for raw in messages if (content := _without(_scan(_as_content(raw)), "blank")) is not None]
    settled: list[_ScannedContent] = []
    for role, turn in groupby(not_blank, key=lambda content: content.role):
        contents = list(turn)
        settled += _results_first(contents) if role == "user" else contents
    return [content.raw for content in settled]


def text_message(role: Literal["user", "assistant", "system"], text: str) -> bytes:
    """Creates a content that is only text. System text is outside the contents, so a system message is the user's."""
    speaker = "model" if role == "assistant" else "user"
    return f'{{"role": "{speaker}", "parts": [{{"text": {quoted(text)}}}]}}'.encode()


def result_message(call_id: str, name: str, text: str, kind: str = "function_call") -> bytes:
    """Creates the response of a function."""
    return f'{{"role": "user", "parts": [{_response(call_id, name, text)}]}}'.encode()


def call_messages(text: str, calls: Sequence[NewToolCall]) -> list[bytes]:
    """Creates a content with these calls."""
    parts: list[Json] = [{"text": text}] if text else []
    for place, call in enumerate(calls):
        signature: dict[str, Json] = {} if place else {"thoughtSignature": UNSIGNED}
        written: dict[str, Json] = {"id": call.id, "name": call.name, "args": dict(call.arguments)}
        parts.append({"functionCall": written, **signature})
    return [json.dumps({"role": "model", "parts": parts}, ensure_ascii=False).encode()]


def result_messages(results: Sequence[NewToolResult]) -> list[bytes]:
    """Creates one content with all responses."""
    parts = ", ".join(_response(result.call_id, result.name, result.text) for result in results)
    return [f'{{"role": "user", "parts": [{parts}]}}'.encode()]


def _response(call_id: str, name: str, text: str) -> str:
    known, _, place = call_id.rpartition("#")
    is_placed = bool(known) and place.isdecimal() and known == (name or known)
    id = "" if is_placed else f'"id": {quoted(call_id)}, '
    name = name or known or call_id
    return f'{{"functionResponse": {{{id}"name": {quoted(name)}, "response": {{"output": {quoted(text)}}}}}}}'


def with_results(raw: bytes, texts: Mapping[str, str]) -> bytes:
    """Replaces the output of functions, by call id; a second one for a call, which is not sent, becomes empty."""
    text, left = text_of(raw), dict(texts)
    edits: list[TextEdit] = []
    spans = _part_spans(text)
    for span, id in zip(spans, _ids([named(object_in(span.value)) for span in spans]), strict=True):
        response = next(filter(None, (member_at(text, span.start, key) for key in _RESPONSES)), None)
        if response is None or id not in texts or not isinstance(response.value.value, dict):
            continue
        at = response.value.start
        output = quoted(left.pop(id, ""))
        edits.append(set_member(text, at, "response", f'{{"output": {output}}}'))
        if response.value.value.get("parts"):
            edits.append(set_member(text, at, "parts", "[]"))
    return apply_edits(text, edits).encode()


_RESPONSES: Final = ("functionResponse", "function_response")


def only_answers(raw: bytes, keep: Collection[str], *, rest: bool = True) -> bytes | None:
    """Keeps one response for each of these calls, and with `rest` all parts that are no responses."""
    missing = set(keep)
    spans = _part_spans(text_of(raw))
    parts = [named(object_in(span.value)) for span in spans]
    gone: list[bool] = []
    for part, id in zip(parts, _ids(parts), strict=True):
        is_kept = id in missing if "functionResponse" in part else rest
        missing.discard(id if "functionResponse" in part else "")
        gone.append(not is_kept)
    return _without_parts(raw, gone)


def without_thinking(raw: bytes) -> bytes | None:
    """Removes thoughts. Signatures stay: Gemini requires those of calls, and accepts all of them anywhere."""
    if b"thought" not in raw:
        return raw
    return _without_parts(raw, [object_in(span.value).get("thought") is True for span in _part_spans(text_of(raw))])


def without_old_thinking(raw: bytes) -> bytes | None:
    """Removes thoughts; the signatures of calls stay."""
    return without_thinking(raw)


def text_block_type(raw: bytes, key: str) -> str:
    """Returns the type of a text block."""
    return "text"


_PartKind = Literal["result", "blank", "other"]


class _ScannedContent(NamedTuple):
    """A content that is parsed once: a prompt holds hundreds, and nearly all of them stay as they are."""

    raw: bytes
    role: str
    kinds: tuple[_PartKind, ...]


def _scan(raw: bytes) -> _ScannedContent:
    fields = fields_of(raw)
    role = "model" if role_of(fields) == "assistant" else "user"
    parts = fields.get("parts")
    return _ScannedContent(raw, role, tuple(map(_kind, parts if isinstance(parts, list) else [])))


def _kind(part: Json) -> _PartKind:
    fields = named(object_in(part))
    if "functionResponse" in fields:
        return "result"
    return "blank" if _is_blank(fields) else "other"


def _is_blank(part: Mapping[str, Json]) -> bool:
    """Whether a part says nothing, which Gemini rejects. A signature may come with an empty text."""
    rest = part.keys() - {"text", "thought"}
    return not rest and not text_in(part.get("text"))


def _as_content(raw: bytes) -> bytes:
    """Returns a message of the other formats, which is text, as a content."""
    fields = fields_of(raw)
    if "parts" in fields or "content" not in fields:
        return raw
    role = "model" if ROLES.get(text_in(fields.get("role"))) == "assistant" else "user"
    parts: list[Json] = [*parts_of(fields)]
    return json_of({"role": role, "parts": parts}).encode()


def _without(content: _ScannedContent, *kinds: _PartKind) -> _ScannedContent | None:
    """Removes parts of these kinds; returns `None` if none remains."""
    if all(kind in kinds for kind in content.kinds):
        return None
    if not any(kind in kinds for kind in content.kinds):
        return content
    raw = _without_parts(content.raw, [kind in kinds for kind in content.kinds])
    return None if raw is None else _scan(raw)


def _results_first(turn: list[_ScannedContent]) -> list[_ScannedContent]:
    order = [kind == "result" for content in turn for kind in content.kinds]
    if order == sorted(order, reverse=True):
        return turn
    results = [_without(content, "blank", "other") for content in turn]
    others = [_without(content, "result") for content in turn]
    return [content for content in (*results, *others) if content is not None]


def _without_parts(raw: bytes, gone: Sequence[bool]) -> bytes | None:
    """Removes parts by their place; returns `None` if none remains. A message without parts is returned as it is."""
    if not gone or not any(gone):
        return raw
    if all(gone):
        return None
    text = text_of(raw)
    spans = [(span.start, span.end) for span in _part_spans(text)]
    return apply_edits(text, removals(spans, gone)).encode()


def _part_spans(text: str) -> list[JsonSpan]:
    parts = member_at(text, 0, "parts")
    return [] if parts is None else elements_of(text, parts.value)


class _ContentTurn(NamedTuple):
    """Adjacent contents of one role, which Gemini reads as one."""

    place: int
    role: str
    parts: list[dict[str, Json]]
    ids: ToolCallIds


def tool_call_ids(fields: Mapping[str, Json]) -> ToolCallIds:
    """Returns the ids of the calls that a content makes or answers."""
    return _ids_in(parts_of(fields)) if "parts" in fields else NO_CALLS


def _ids_in(parts: Sequence[Mapping[str, Json]]) -> ToolCallIds:
    calls: list[str] = []
    answers: list[str] = []
    for part, id in zip(parts, _ids(parts), strict=True):
        if isinstance(part.get("functionCall"), dict):
            calls.append(id)
        elif isinstance(part.get("functionResponse"), dict):
            answers.append(id)
    return ToolCallIds(tuple(calls), tuple(answers)) if calls or answers else NO_CALLS


def problems(messages: Sequence[dict[str, Json]]) -> Iterator[str]:
    """Yields every reason for which the provider would reject these contents."""
    for place, fields in enumerate(messages):
        if fields.get("role", "user") not in _ROLES:
            yield f"content {place}: its role is neither user nor model"
        parts = fields.get("parts")
        if not isinstance(parts, list) or not parts or any(_is_blank(named(object_in(part))) for part in parts):
            yield f"content {place}: it has no parts, or one that says nothing"
    turns = list(_turns(messages))
    if turns[0].role != "user":
        yield "content 0: the first message must be from the user"
    nothing = _ContentTurn(len(messages), "user", [], NO_CALLS)
    for before, turn, after in zip([nothing, *turns], turns, [*turns[1:], nothing], strict=False):
        if turn.role == "model":
            yield from _model_problems(turn, after)
        else:
            yield from _user_problems(turn, before)


def defect(fields: Mapping[str, Json]) -> str:
    """Returns why the provider rejects a content in any context; empty if it might accept it."""
    role, parts = fields.get("role"), fields.get("parts")
    if role is not None and role not in _ROLES:
        return f"Gemini knows no role {role!r:.40}; roles are user and model"
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        return "its 'parts' are no list of parts"
    for part in map(named, map(object_in, parts)):
        for kind in ("functionCall", "functionResponse"):
            if kind in part and not isinstance(part[kind], dict):
                return f"its '{kind}' is no object"
        if len(part.keys() & _CALLS) > 1:
            return "a part is a call and a response"
    return call_defect(tool_call_ids(fields), "user" if role in (None, *_RESULT_ROLES) else str(role), ("user",))


_CALLS: Final = frozenset({"functionCall", "functionResponse"})


def leads_on(fields: Mapping[str, Json]) -> bool:
    """Never: a thought is a part of the content that it led to."""
    return False


def _model_problems(turn: _ContentTurn, after: _ContentTurn) -> Iterator[str]:
    yield from repeated_ids(turn.ids.calls, turn.place)
    answers = after.ids.answers if after.role == "user" else ()
    yield from unanswered_calls({call: turn.place for call in turn.ids.calls if call not in answers})
    if turn.ids.answers:
        yield f"content {turn.place}: the model cannot give results"


def _user_problems(turn: _ContentTurn, before: _ContentTurn) -> Iterator[str]:
    for place, call in enumerate(turn.ids.answers):
        if call in turn.ids.answers[:place]:
            yield f"content {turn.place}: call {call!r} has a result already"
        elif call not in before.ids.calls:
            yield f"content {turn.place}: the result for {call!r} does not follow its call"
    if turn.ids.calls:
        yield f"content {turn.place}: only the model can call functions"
    kinds = ["functionResponse" in part for part in turn.parts]
    if kinds != sorted(kinds, reverse=True):
        yield f"content {turn.place}: results have to come before everything else the user says"


def _turns(messages: Sequence[dict[str, Json]]) -> Iterator[_ContentTurn]:
    """Yields the turns. Calls and results without ids are counted over the whole turn, as the provider matches them."""
    place = 0
    waiting: list[tuple[str, str]] = []
    for role, group in groupby(messages, key=lambda fields: "model" if role_of(fields) == "assistant" else "user"):
        together = list(group)
        parts = [part for fields in together for part in parts_of(fields)]
        ids = _ids_in(parts)
        if ids.answers and waiting:
            linked = _take_answers(parts, waiting)
            stated = [object_in(part.get("functionResponse")).get("id") for part in parts]
            pairs = zip(_ids(parts), linked, stated, parts, strict=True)
            answers = [id if id == own else call for id, call, own, part in pairs if "functionResponse" in part]
            ids = ToolCallIds(ids.calls, tuple(answers))
        waiting = _calls_in(parts) if role == "model" else []
        yield _ContentTurn(place, role, parts, ids)
        place += len(together)


def joined_history(messages: Sequence[bytes]) -> Sequence[bytes]:
    """Returns a client's history as the model and its tools wrote it; the same list if it is written so.

    Clients of streams send every chunk back as a content of its own: adjacent contents of the model become one. Some
    send a result without the id of its call, or with an id that the call never had: the result gets that of its call.
    """
    joined: list[bytes] = []
    waiting: list[tuple[str, str]] = []
    after_model = changed = False
    for raw in messages:
        fields = fields_of(raw)
        role = role_of(fields)
        if role == "assistant":
            if after_model:
                joined[-1], changed = _joined(joined[-1], raw), True
            else:
                joined.append(raw)
            waiting = _calls_in(parts_of(fields_of(joined[-1])))
        else:
            linked = _linked(raw, parts_of(fields), waiting) if waiting and role == "tool" else raw
            changed = changed or linked is not raw
            joined.append(linked)
        after_model = role == "assistant"
    return joined if changed else messages


def _called(part: Mapping[str, Json]) -> str:
    """Returns the function that a part calls; empty if it calls none."""
    return text_in(object_in(part.get("functionCall")).get("name"))


def _joined(first: bytes, second: bytes) -> bytes:
    """Joins two contents of the model. Pieces of one text become one text, as they were streamed."""
    parts: list[str] = []
    text: tuple[Json, str] | None = None
    for raw in (first, second):
        source = text_of(raw)
        for span in _part_spans(source):
            fields = named(object_in(span.value))
            if fields.keys() <= {"text", "thought"} and isinstance(piece := fields.get("text"), str):
                thought = fields.get("thought") is True
                if text is not None and text[0] == thought:
                    piece = text[1] + piece
                    parts.pop()
                text = (thought, piece)
                mark = ', "thought": true' if thought else ""
                parts.append(f'{{"text": {quoted(piece)}{mark}}}')
            else:
                text = None
                parts.append(source[span.start : span.end])
    return f'{{"role": "model", "parts": [{", ".join(parts)}]}}'.encode()


def link_results(before: Sequence[bytes], raw: bytes) -> bytes:
    """Returns a content whose results have the ids of their calls, which are in the contents before it.

    The content as it is, if each result is known by its id, or by its name and place, without the others.
    """
    between: list[list[dict[str, Json]]] = []
    for content in reversed(before):
        fields = fields_of(content)
        parts = parts_of(fields)
        if role_of(fields) == "assistant":
            waiting = _calls_in(parts)
            for answers in reversed(between):
                _take_answers(answers, waiting)
            return _linked(raw, parts_of(fields_of(raw)), waiting)
        between.append(parts)
    return raw


def _calls_in(parts: Sequence[Mapping[str, Json]]) -> list[tuple[str, str]]:
    """Returns the names and ids of the calls in a content."""
    return [(name, id) for part, id in zip(parts, _ids(parts), strict=True) if (name := _called(part))]


def _take_answers(parts: Sequence[Mapping[str, Json]], waiting: list[tuple[str, str]]) -> list[str]:
    """Returns the id of the call that each part answers, and takes these calls out of those that wait.

    A result with the id of a call answers that one; the others, in order, the first that waits for their function.
    """
    ids = _ids(parts)
    calls = {id for _, id in waiting}
    stated = [text_in(object_in(part.get("functionResponse")).get("id")) for part in parts]
    waiting[:] = [call for call in waiting if call[1] not in stated]
    for place, part in enumerate(parts):
        if not isinstance(result := part.get("functionResponse"), dict) or stated[place] in calls:
            continue
        name = text_in(result.get("name"))
        if (call := next((call for call in waiting if call[0] == name), None)) is not None:
            waiting.remove(call)
            ids[place] = call[1]
    return ids


def _linked(raw: bytes, parts: Sequence[Mapping[str, Json]], waiting: list[tuple[str, str]]) -> bytes:
    """Returns a content whose results have the ids of their calls; takes these calls out of those that wait."""
    known, ids = _ids(parts), _take_answers(parts, waiting)
    if known == ids:
        return raw
    text = text_of(raw)
    edits: list[TextEdit] = []
    spans = [span for span in _part_spans(text) if isinstance(span.value, dict)]
    for id, span in zip(ids, spans, strict=True):
        response = next(filter(None, (member_at(text, span.start, key) for key in _RESPONSES)), None)
        if response is not None and id and object_in(response.value.value).get("id") != id:
            edits.append(set_member(text, response.value.start, "id", quoted(id)))
    return apply_edits(text, edits).encode()
