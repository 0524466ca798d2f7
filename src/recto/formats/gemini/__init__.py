"""Gemini's API: `generateContent` and `streamGenerateContent`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from recto.formats.format import BodyKeys, Format, HttpApi
from recto.formats.gemini import message, request
from recto.formats.gemini.request import read_response
from recto.formats.gemini.stream import GeminiCapture
from recto.formats.json_spans import Json

if TYPE_CHECKING:
    from recto.formats.format import Converter
    from recto.formats.tools import OwnToolFormat


def _model_list(models: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    listed: list[Json] = [
        {
            "name": f"models/{model['id']}",
            "displayName": model["id"],
            "supportedGenerationMethods": ["generateContent", "countTokens"],
            **{key: value for key, value in model.items() if key.endswith("TokenLimit")},
        }
        for model in models
    ]
    return {"models": listed}


def _token_count(tokens: int) -> dict[str, Json]:
    return {"totalTokens": tokens}


def _converter() -> Converter:
    from recto.formats.gemini import convert  # noqa: PLC0415  # start-up: only a gateway between two formats needs it

    return convert


def _own_tool() -> OwnToolFormat:
    from recto.formats.gemini import own_tool  # noqa: PLC0415  # start-up: only a gateway needs it

    return own_tool


GEMINI: Final = Format(
    name="google.gemini",
    short_name="gemini",
    title="Gemini generateContent",
    system_apart=True,
    user_first=True,
    adjacency="merging",
    block_keys=("parts",),
    body=BodyKeys(messages="contents", system="systemInstruction", output_limits=("generationConfig.maxOutputTokens",)),
    api=HttpApi(
        path=request.GENERATE,
        upstream_path=request.GENERATE,
        upstream_models_path=f"{request.ROOT}/models",
        count_tokens_path=request.COUNT,
        models_path=f"{request.ROOT}/models",
        addressing=request,
        roots=request.ROOTS,
        open_paths=request.OPEN_PATHS,
        shared_paths=request.SHARED_PATHS,
        address_headers=frozenset({"x-goog-upload-url"}),
        response_id_prefix="gen",
        key_header="x-goog-api-key",
        key_scheme="",
        key_parameter="key",
        client_header="x-goog-api-client",
        model_list=_model_list,
        token_count=_token_count,
    ),
    messages=message,
    edits=message,
    validation=message,
    errors=request,
    request=request,
    converter=_converter,
    own_tool=_own_tool,
    response_member="candidates",
    read_response=read_response,
    write_text=message.text_message,
    with_system=request.with_system,
    link_results=message.link_results,
    joined_history=message.joined_history,
    capture=GeminiCapture,
)
