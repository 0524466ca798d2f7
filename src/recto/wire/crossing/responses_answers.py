"""Answers of the Responses API, read into meaning and written from it. They repeat what was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from recto.core.json_text import Json
from recto.errors import InputError, MalformedMessage
from recto.wire.crossing.chat import objects_in
from recto.wire.crossing.meaning import Answer, Ending, Ids, Part, Road, Stop, Turn, joined, stopped_for
from recto.wire.crossing.responses import read_cost, read_turns, write_cost, write_turns
from recto.wire.parts import fields_of, object_in, text_in

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


def read_answer(body: Mapping[str, Json], road: Road) -> Answer:
    """What a reply says."""
    if not isinstance(body.get("output"), list):
        raise MalformedMessage("the reply has no output")
    parts = joined(part for turn in read_turns(objects_in(body, "output"), road, "output") for part in turn.parts)
    return Answer(model=text_in(body.get("model")), parts=parts, ending=read_ending(body, parts, road))


def read_ending(body: Mapping[str, Json], parts: Sequence[Part], road: Road) -> Ending:
    """How a response ended."""
    reason = text_in(object_in(body.get("incomplete_details")).get("reason"))
    found = _STOPS.get(reason)
    if found is None:
        raise road.lost(f"a response that is incomplete for '{reason}'")
    return Ending(stop=stopped_for(parts, found), cost=read_cost(body.get("usage")))


def write_answer(answer: Answer, ids: Ids, road: Road) -> dict[str, Json]:
    """A reply."""
    turn = Turn(role="assistant", parts=answer.parts)
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
