"""`Format`: one object per wire format, with everything in which providers differ.

A format is a package of this folder. Its modules implement the protocols of `recto.formats.protocols`, and its
`__init__` puts them together into one `Format`; `recto.formats.registry` lists it. Code outside `recto.formats` never
compares format names: it gets the object with `format_named` and uses its attributes and functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from recto.formats.json_spans import Json, quoted

if TYPE_CHECKING:
    from recto.formats.arrangement import Adjacency
    from recto.formats.protocols import (
        Addressing,
        ContextManagementFormat,
        Converter,
        ErrorShapes,
        MessageEdits,
        MessageParser,
        MessageValidation,
        RequestReader,
    )
    from recto.formats.response import ProviderReply
    from recto.formats.streaming import Capture
    from recto.formats.tools import OwnToolFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyKeys:
    """The members of a request body."""

    messages: str = "messages"
    system: str | None = None
    """The member that holds system text; `None` if system text is only ever a message."""
    output_limits: tuple[str, ...] = ("max_tokens",)
    """Members that limit the output tokens, the strongest first; with a dot, a member of a member."""
    optional: bool = False
    """Whether a body may have no messages."""
    accepts_text: bool = False
    """Whether the messages may be one string, which counts as one user message."""
    stored_history: frozenset[str] = frozenset()
    """Members that name history which the gateway stores. An upstream would not find it, so they are not forwarded."""


def _openai_model_list(models: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    data: list[Json] = [{"object": "model", "created": 0, "owned_by": "upstream", **model} for model in models]
    return {"object": "list", "data": data}


def _token_count(tokens: int) -> dict[str, Json]:
    return {"input_tokens": tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpApi:
    """Paths and headers of the provider's API. The defaults are OpenAI's."""

    path: str
    """Where clients of the gateway send requests."""
    addressing: Addressing | None = None
    """Reads and writes addresses that hold more than a path; `None` if the body holds everything."""
    upstream_path: str
    """The same below an upstream's base URL. With `/v1/` at its start, the base URL goes without it."""
    upstream_models_path: str = "/models"
    models_path: str = ""
    """Where clients of the gateway list models; empty if it is the path that all formats share."""
    count_tokens_path: str = ""
    """Where clients of the gateway count tokens; empty if the API cannot."""
    compact_path: str = ""
    """Where clients of the gateway compact their history; empty if the API cannot."""
    compaction_trigger: str = ""
    """Type of the last message of a request that asks for its history to be compacted; empty if the API has none."""
    roots: tuple[str, ...] = ()
    """Beginnings of paths that only this API has. What carries no conversation is passed on to an upstream."""
    open_paths: tuple[str, ...] = ()
    """Paths below its roots where the provider keeps nothing: every key may use them."""
    shared_paths: tuple[str, ...] = ()
    """Paths below its roots where the provider keeps data: a key needs them."""
    address_headers: frozenset[str] = frozenset()
    """Headers of responses that hold an address of the upstream, to which the client sends its next request."""
    conversations_path: str = ""
    """Where clients of the gateway manage conversations that the server stores; empty if the API cannot."""
    response_id_prefix: str
    key_header: str = "authorization"
    key_scheme: str = "Bearer "
    key_parameter: str = ""
    """A parameter of the query in which clients may send their key; empty if they may not."""
    default_headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with an upstream's own key unless the client sends its own."""
    list_headers: frozenset[str] = frozenset()
    """Headers whose values are lists: those of the client and of the settings are merged."""
    client_header: str = ""
    """A header that only clients of this format send, also to paths that all formats share."""
    model_list: Callable[[Sequence[Mapping[str, Json]]], dict[str, Json]] = _openai_model_list
    """Builds the response of `/v1/models` from its entries."""
    token_count: Callable[[int], dict[str, Json]] = _token_count
    """Builds the response of `count_tokens_path`."""

    @property
    def has_version(self) -> bool:
        """Whether paths below an upstream's base URL begin with a version."""
        return self.upstream_path.startswith("/v1")

    @property
    def routes(self) -> tuple[tuple[str, str], ...]:
        """Every method and path of this API that the gateway serves."""
        posts = (self.path, self.count_tokens_path, self.compact_path, self.conversations_path)
        routes = [("POST", path) for path in posts if path]
        if self.models_path:
            routes.append(("GET", self.models_path))
        if self.conversations_path:
            routes += [("GET", f"{self.conversations_path}/{{id}}"), ("GET", f"{self.conversations_path}/{{id}}/items")]
        return tuple(routes)


_Speaker: TypeAlias = Literal["user", "assistant", "system"]


def _plain_message(role: _Speaker, text: str) -> bytes:
    return f'{{"role": "{role}", "content": {quoted(text)}}}'.encode()


def _with_system(system: str, more: str) -> str:
    block = f'{{"type": "text", "text": {quoted(more)}}}'
    if system.startswith("["):
        return f"{system[:-1].rstrip()}{', ' if len(system) > 2 else ''}{block}]"
    if system.startswith('"') and len(system) > 2:
        return f'[{{"type": "text", "text": {system}}}, {block}]'
    return f"[{block}]"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Format:
    """A wire format: the JSON of messages, requests, responses, streams and errors of one provider API."""

    name: str
    """The name that entries carry in their `wire` column, such as `openai.chat`."""
    short_name: str
    """The name in settings and command-line options, such as `chat`."""
    title: str
    """The name in texts for people."""
    providers: frozenset[str] = frozenset()
    """Providers to whose models requests are sent in this format by default."""

    system_apart: bool = False
    """Whether system text must be outside the messages. A system message inside them is sent as the user's."""
    system_alone: bool = False
    """Whether a request may consist of system messages only."""
    user_first: bool = False
    """Whether the first message must be the user's."""
    signs_thinking: bool = False
    """Whether thinking is signed, and valid only behind the messages that it was created for."""
    adjacency: Adjacency
    """Where the provider looks for the results of calls."""
    block_keys: tuple[str, ...] = ("content",)
    """Members of a message that hold content blocks."""
    cache_mark: str = "prompt_cache_breakpoint"
    """The member that marks a cache breakpoint."""
    interleaves_calls: bool = False
    """Whether a stream may interleave the deltas of several calls."""

    body: BodyKeys
    api: HttpApi
    messages: MessageParser
    edits: MessageEdits
    validation: MessageValidation
    errors: ErrorShapes
    request: RequestReader
    converter: Callable[[], Converter]
    """Imports the format's converter: only a gateway between two formats needs it."""
    own_tool: Callable[[], OwnToolFormat]
    """Imports how the format writes a tool that the gateway answers itself: only a gateway needs it."""
    context_management: Callable[[], ContextManagementFormat] | None = None
    """Imports how the format asks for context management, if it can: only a gateway needs it."""
    response_member: str
    """A member that complete response bodies of this format have, and no other format's."""
    read_response: Callable[[str, dict[str, Json]], ProviderReply]
    """Reads a complete response body: its text, and the same parsed. Raises `MalformedMessage`."""
    capture: Callable[[], Capture]
    """Creates a capture for one stream."""

    write_text: Callable[[_Speaker, str], bytes] = _plain_message
    """Creates a message that is only text."""
    with_system: Callable[[str, str], str] = _with_system
    """Returns the value of the member that holds system text with text appended, both as JSON; it may be empty."""

    link_results: Callable[[Sequence[bytes], bytes], bytes] | None = None
    """Returns a message whose results have the ids of their calls, from the messages before it and itself; `None` if
    results always have them."""
    joined_history: Callable[[Sequence[bytes]], Sequence[bytes]] | None = None
    """Returns a client's history as the model and its tools wrote it; `None` if clients write it so."""

    def text_message(self, role: _Speaker, text: str) -> bytes:
        """Creates a message that is only text."""
        return self.write_text("user" if role == "system" and self.system_apart else role, text)
