"""OpenAI's Responses API, and Open Responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from recto.formats.format import BodyKeys, Format, HttpApi
from recto.formats.json_spans import Json
from recto.formats.openai_responses import message, request
from recto.formats.openai_responses.request import read_response
from recto.formats.openai_responses.stream import ResponsesCapture

if TYPE_CHECKING:
    from recto.formats.format import ContextManagementFormat, Converter
    from recto.formats.tools import OwnToolFormat

RESPONSES: Final = "openai.responses"


def _token_count(tokens: int) -> dict[str, Json]:
    return {"object": "response.input_tokens", "input_tokens": tokens}


def _converter() -> Converter:
    from recto.formats.openai_responses import convert  # noqa: PLC0415  # start-up: only a gateway between two formats needs it

    return convert


def _own_tool() -> OwnToolFormat:
    from recto.formats.openai_responses import own_tool  # noqa: PLC0415  # start-up: only a gateway needs it

    return own_tool


def _context_management() -> ContextManagementFormat:
    from recto.formats.openai_responses import context_management  # noqa: PLC0415  # start-up: only a gateway needs it

    return context_management


OPENAI_RESPONSES: Final = Format(
    name=RESPONSES,
    short_name="responses",
    title="OpenAI Responses",
    adjacency="anywhere",
    block_keys=("content", "output"),
    body=BodyKeys(
        messages="input",
        system="instructions",
        output_limits=("max_output_tokens",),
        optional=True,
        accepts_text=True,
        stored_history=request.STORED_HISTORY,
    ),
    api=HttpApi(
        path="/v1/responses",
        upstream_path="/responses",
        count_tokens_path="/v1/responses/input_tokens",
        compact_path="/v1/responses/compact",
        compaction_trigger="compaction_trigger",
        conversations_path="/v1/conversations",
        response_id_prefix="resp",
        token_count=_token_count,
    ),
    messages=message,
    edits=message,
    validation=message,
    errors=request,
    request=request,
    converter=_converter,
    own_tool=_own_tool,
    context_management=_context_management,
    response_member="output",
    read_response=read_response,
    capture=ResponsesCapture,
)
