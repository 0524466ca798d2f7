"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from recto.formats.anthropic import message, request
from recto.formats.anthropic.request import read_response
from recto.formats.anthropic.stream import AnthropicCapture
from recto.formats.format import BodyKeys, Format, HttpApi
from recto.formats.json_spans import Json

if TYPE_CHECKING:
    from recto.formats.format import ContextManagementFormat, Converter
    from recto.formats.tools import OwnToolFormat

ANTHROPIC: Final = "anthropic.messages"


def _model_list(models: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    data: list[Json] = [
        {"type": "model", "display_name": model["id"], "created_at": "1970-01-01T00:00:00Z", **model}
        for model in models
    ]
    first, last = (models[0]["id"], models[-1]["id"]) if models else (None, None)
    return {"data": data, "has_more": False, "first_id": first, "last_id": last}


def _converter() -> Converter:
    from recto.formats.anthropic import convert  # noqa: PLC0415  # start-up: only a gateway between two formats needs it

    return convert


def _own_tool() -> OwnToolFormat:
    from recto.formats.anthropic import own_tool  # noqa: PLC0415  # start-up: only a gateway needs it

    return own_tool


def _context_management() -> ContextManagementFormat:
    from recto.formats.anthropic import context_management  # noqa: PLC0415  # start-up: only a gateway needs it

    return context_management


ANTHROPIC_MESSAGES: Final = Format(
    name=ANTHROPIC,
    short_name="messages",
    title="Anthropic Messages",
    providers=frozenset({"anthropic"}),
    system_apart=True,
    user_first=True,
    signs_thinking=True,
    adjacency="merging",
    cache_mark="cache_control",
    body=BodyKeys(system="system"),
    api=HttpApi(
        path="/v1/messages",
        upstream_path="/v1/messages",
        upstream_models_path="/v1/models",
        count_tokens_path="/v1/messages/count_tokens",
        response_id_prefix="msg",
        key_header="x-api-key",
        key_scheme="",
        default_headers={"anthropic-version": "2023-06-01"},
        list_headers=frozenset({"anthropic-beta"}),
        client_header="anthropic-version",
        model_list=_model_list,
    ),
    messages=message,
    edits=message,
    validation=message,
    errors=request,
    request=request,
    converter=_converter,
    own_tool=_own_tool,
    context_management=_context_management,
    response_member="stop_reason",
    read_response=read_response,
    capture=AnthropicCapture,
)
