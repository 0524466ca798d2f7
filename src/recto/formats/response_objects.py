"""What a model call returned, as programs have it: a client's object, a dict, a message, a text.

Every provider's client returns other classes. They are pydantic models, so their JSON is what the provider sent; no
client is imported here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from recto.errors import MalformedMessage
from recto.formats.format import Format
from recto.formats.json_spans import Json, text_of
from recto.formats.message import fields_of, text_in
from recto.formats.registry import detect, format_named, format_of_response
from recto.formats.response import Usage
from recto.transcript.entries import to_json

_MAX_ERROR = 300


class ClientObject(Protocol):
    """A message or response as the client of a provider has it: a pydantic model."""

    def model_dump(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # as pydantic declares it
        """The object as a dict."""


MessageLike: TypeAlias = Mapping[str, Any] | bytes | ClientObject
"""A message as a dict, as the exact JSON bytes it arrived in, or as an object of a provider's client."""


def plain(value: Any) -> Any:  # noqa: ANN401  # whatever a client or an application calls a message
    """Convert a client's message or response object to JSON values."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True, by_alias=True)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def message_bytes(message: Any) -> bytes:  # noqa: ANN401  # whatever a program appends to its list of messages
    """The JSON of a message: bytes as they are, a dict, or a client's object, also as a part of a dict.

    Raises:
        MalformedMessage: It is not one message.
    """
    if isinstance(message, bytes):
        return message
    if isinstance(message, dict):
        try:
            return to_json(message)
        except MalformedMessage:
            return _client_json(message)
    if message is None or isinstance(message, str | list | tuple | set | int | float):
        raise MalformedMessage(f"it is {_KINDS.get(type(message), type(message).__name__)}; {HOW_TO_WRITE}")
    if _is_open(message):
        raise MalformedMessage(_describe(message))
    if type(message).__name__.endswith(_STREAM_PARTS):
        raise MalformedMessage(f"{type(message).__name__!r} is a part of a stream; {_COLLECT}")
    raw = _client_json(message)
    found = _read_body(raw).messages if not isinstance(message, Mapping) else (raw,)
    if len(found) != 1:
        kind = type(message).__name__
        raise MalformedMessage(
            f"'{kind}' has {len(found)} messages: pass its items to 'append_all', as in append_all(response.output), "
            "or the response to 'on_turn_end' of recto.manager"
        )
    return found[0]


_COLLECT = "collect it and pass what it adds up to"
_STREAM_PARTS = ("Chunk", "Delta", "Event")
"""How clients of OpenAI and Anthropic name what streams are made of. The first part has a role, as messages have."""
_KINDS = {str: "a text", list: "a list", tuple: "a list", type(None): "None"}
HOW_TO_WRITE = 'a message is a dict such as {"role": "user", "content": "Hello"}'


def _client_json(message: Any) -> bytes:  # noqa: ANN401  # an object of any client
    try:
        return to_json(json.loads(json.dumps(message, default=_plain_part)))
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"it cannot be written as JSON ({error}); {HOW_TO_WRITE}") from None


def _plain_part(part: Any) -> Any:  # noqa: ANN401  # a part of a client's object
    value = plain(part)
    if value is part:
        raise TypeError(f"'{type(part).__name__}' is no JSON value")
    return value


class RequestedCall(Struct, frozen=True, kw_only=True):
    """A tool call that the model asks for."""

    name: str
    id: str
    arguments: dict[str, Any]
    """The arguments; empty if they are not a JSON object."""
    text: str = ""
    """The arguments as the model wrote them."""
    kind: str = "function_call"
    """The type of the call's item, where calls have types."""


class ModelResponse(Struct, frozen=True, kw_only=True):
    """What a model call returned."""

    messages: tuple[bytes, ...]
    """What the transcript stores."""
    wire: str | None = None
    """Their format; None if each message shows its own."""
    stop_reason: str = ""
    usage: Usage | None = None


def read_any_response(response: Any, format: Format) -> ModelResponse:  # noqa: ANN401  # an object of any client
    """Reads a response: a complete body, a message, a list of messages or items, or a text in `format`.

    Raises:
        MalformedMessage: It is nothing of that: a stream, a coroutine, an error.
    """
    value = plain(response)
    if isinstance(value, str):
        return ModelResponse(messages=(format.text_message("assistant", value),), wire=format.name)
    if isinstance(value, bytes | Mapping):
        return _read_body(_encoded(value))
    if isinstance(value, Sequence) and value:
        parts = [_read_body(_encoded(plain(item))) for item in value]
        return ModelResponse(messages=tuple(raw for part in parts for raw in part.messages))
    raise MalformedMessage(f"{_describe(response)}. Nothing was stored")


def calls_of(raw: bytes, wire: str) -> list[RequestedCall]:
    """Returns the calls of a message that the program has to answer; none that the provider runs itself."""
    format = format_named(wire)
    fields = fields_of(raw)
    wanted = format.validation.tool_call_ids(fields).calls
    return [
        RequestedCall(
            name=part.name,
            id=id,
            arguments=_arguments(part.text),
            text=part.text,
            kind=text_in(fields.get("type")) or "function_call",
        )
        for id in wanted
        for part in format.messages.read(raw).calls
        if part.call_id == id
    ]


def _read_body(raw: bytes) -> ModelResponse:
    fields = fields_of(raw)
    format = format_of_response(fields)
    if format is None:
        if "error" in fields and "role" not in fields:
            reason = json.dumps(fields["error"], ensure_ascii=False)[:_MAX_ERROR]
            raise MalformedMessage(f"the provider answered with an error, {reason}. Nothing was stored")
        detect(raw)  # raises for what is no message
        return ModelResponse(messages=(raw,))
    reply = format.read_response(text_of(raw), fields)
    return ModelResponse(messages=reply.messages, wire=format.name, stop_reason=reply.stop_reason, usage=reply.usage)


def _encoded(value: Any) -> bytes:  # noqa: ANN401  # a JSON object, or an error
    if isinstance(value, bytes):
        return value
    if not isinstance(value, Mapping):
        raise MalformedMessage(f"{_describe(value)}. Nothing was stored")
    return json.dumps(dict(value), ensure_ascii=False, default=plain).encode()


def _arguments(text: str) -> dict[str, Json]:
    try:
        parsed = json.loads(text or "{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _is_open(response: object) -> bool:
    """Whether it is a stream, or a call that is not awaited yet."""
    return inspect.isawaitable(response) or any(
        hasattr(response, name) for name in ("__next__", "__anext__", "__aiter__")
    )


def _describe(response: object) -> str:
    kind = type(response).__name__
    if inspect.isawaitable(response):
        return f"it is not awaited yet ({kind})"
    if _is_open(response):
        return f"a stream ({kind}) is no response yet; {_COLLECT}"
    return f"'{kind}' is neither a response nor a message"
