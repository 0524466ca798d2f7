"""OpenAI's Chat Completions, and the many APIs that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from recto.formats.format import BodyKeys, Format, HttpApi
from recto.formats.openai_chat import message, request
from recto.formats.openai_chat.request import read_response
from recto.formats.openai_chat.stream import ChatCapture

if TYPE_CHECKING:
    from recto.formats.format import Converter
    from recto.formats.tools import OwnToolFormat

CHAT: Final = "openai.chat"


def _converter() -> Converter:
    from recto.formats.openai_chat import convert  # noqa: PLC0415  # start-up: only a gateway between two formats needs it

    return convert


def _own_tool() -> OwnToolFormat:
    from recto.formats.openai_chat import own_tool  # noqa: PLC0415  # start-up: only a gateway needs it

    return own_tool


OPENAI_CHAT: Final = Format(
    name=CHAT,
    short_name="chat",
    title="OpenAI Chat",
    providers=frozenset({"openai"}),
    system_alone=True,
    adjacency="strict",
    interleaves_calls=True,
    body=BodyKeys(output_limits=("max_completion_tokens", "max_tokens")),
    api=HttpApi(
        path="/v1/chat/completions",
        upstream_path="/chat/completions",
        response_id_prefix="chatcmpl",
    ),
    messages=message,
    edits=message,
    validation=message,
    errors=request,
    request=request,
    converter=_converter,
    own_tool=_own_tool,
    response_member="choices",
    read_response=read_response,
    capture=ChatCapture,
)
