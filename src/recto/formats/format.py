"""`Format`: one object per wire format, with everything in which providers differ, and the protocols of its parts.

A format is a package of this folder. Its modules implement the protocols of this module, and its
`__init__` puts them together into one `Format`; `recto.formats.registry` lists it. Code outside `recto.formats` never
compares format names: it gets the object with `format_named` and uses its attributes and functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from recto.formats.json_spans import Json, quoted

if TYPE_CHECKING:
    from recto.formats.address import PassedAddress, RequestAddress
    from recto.formats.arrangement import Adjacency
    from recto.formats.context_management import ContextPlan, ContextReport
    from recto.formats.convert.types import (
        Completion,
        CompletionRequest,
        Conversion,
        Cost,
        ResponseIds,
        StreamReader,
        StreamWriter,
    )
    from recto.formats.message import Message
    from recto.formats.response import ProviderReply
    from recto.formats.streaming import Capture, SseEvent
    from recto.formats.tool_calls import NewToolCall, NewToolResult, ToolCallIds
    from recto.formats.tools import OwnToolFormat
    from recto.transcript.entries import Role


class MessageParser(Protocol):
    """Reads messages, and recognises those that only this format has."""

    def read(self, raw: bytes) -> Message:
        """Parses a message. Raises `MalformedJson` or `MalformedMessage`."""
        ...

    def role_of(self, fields: dict[str, Json]) -> Role:
        """Returns the role of a parsed message. Raises `MalformedMessage` if it has none."""
        ...

    def is_own_message(self, fields: dict[str, Json]) -> bool:
        """Whether members outside `content` show that a message can only be in this format."""
        ...

    def is_own_block(self, block: dict[str, Json]) -> bool:
        """Whether a content block shows that its message can only be in this format."""
        ...

    def is_own_wrapper(self, fields: dict[str, Json]) -> bool:
        """Whether `"type": "message"` and the members beside it are this format's; checked last, as weak evidence."""
        ...

    def canonical_fields(self, fields: dict[str, Json]) -> dict[str, Json]:
        """Drops members that may differ between two copies of one message, such as ids and statuses."""
        ...


class MessageEdits(Protocol):
    """Creates and changes messages. An edit leaves every byte around the edited value as it is."""

    def settle(self, messages: Iterable[bytes]) -> list[bytes]:
        """Drops or reorders parts that the provider would reject, such as empty messages and dangling reasoning."""
        ...

    def result_message(self, call_id: str, name: str, text: str, kind: str = "function_call") -> bytes:
        """Creates the result of a call. `kind` is the type of the call's item, where calls have types."""
        ...

    def call_messages(self, text: str, calls: Sequence[NewToolCall]) -> list[bytes]:
        """Creates the assistant's text and these calls, in one or more messages."""
        ...

    def result_messages(self, results: Sequence[NewToolResult]) -> list[bytes]:
        """Creates the results of calls that were made together."""
        ...

    def with_results(self, raw: bytes, texts: Mapping[str, str]) -> bytes:
        """Replaces the output of tool results, by call id."""
        ...

    def only_answers(self, raw: bytes, keep: Collection[str], *, rest: bool = True) -> bytes | None:
        """Keeps one result for each of these calls, and with `rest` all content that is no result.

        Returns `None` if nothing remains.
        """
        ...

    def without_thinking(self, raw: bytes) -> bytes | None:
        """Removes thinking that is bound to the messages before it; `None` if nothing remains."""
        ...

    def without_old_thinking(self, raw: bytes) -> bytes | None:
        """Removes the thinking of a message of an earlier turn, as far as the provider accepts the message without it.

        `None` if nothing remains.
        """
        ...

    def text_block_type(self, raw: bytes, key: str) -> str:
        """Returns the `type` of a text block in the member `key` of this message."""
        ...


class MessageValidation(Protocol):
    """Knows which lists of messages the provider rejects."""

    def tool_call_ids(self, fields: Mapping[str, Json]) -> ToolCallIds:
        """Returns the ids of calls and results. Calls that the provider itself runs and answers are not included."""
        ...

    def problems(self, messages: Sequence[dict[str, Json]]) -> Iterator[str]:
        """Yields every reason for which the provider would reject these messages."""
        ...

    def defect(self, fields: Mapping[str, Json]) -> str:
        """Returns why the provider rejects this message in any context; empty if it might accept it."""
        ...

    def leads_on(self, fields: Mapping[str, Json]) -> bool:
        """Whether the message is valid only directly before the output that it led to (reasoning items)."""
        ...


class ErrorShapes(Protocol):
    """Builds errors as the clients of this format expect them."""

    def status_for(self, code: str) -> int:
        """Returns the HTTP status of an error code."""
        ...

    def error_body(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        details: Mapping[str, Json] | None = None,
        request_id: str = "",
    ) -> bytes:
        """Builds the body of an error response. `param` is the request member at fault, for formats that name it."""
        ...

    def overflow(self, tokens: int, limit: int, *, detail: str = "", request_id: str = "") -> tuple[int, bytes]:
        """Returns the status and body for a prompt that is too long, in the words that clients look for."""
        ...

    def stream_error(
        self, code: str, message: str, sequence: int = 0, *, response: Mapping[str, Json] | None = None
    ) -> bytes:
        """Builds the last events of a stream that fails after it began.

        `sequence` is the number of the next event, and `response` the response object that the stream began with.
        """
        ...

    def unsupported_request(self, fields: Mapping[str, Json], request_id: str) -> tuple[int, bytes] | None:
        """Returns the status and body that refuse a feature which a gateway with its own history cannot offer."""
        ...


class RequestReader(Protocol):
    """Reads the members of a request body that identify its conversation."""

    def session_id(self, fields: Mapping[str, Json]) -> str:
        """Returns the id that a client gives its session in the body; empty if it gives none."""
        ...

    def conversation_id(self, fields: Mapping[str, Json]) -> str:
        """Returns the id of a conversation that the server stores; empty if the request names none."""
        ...

    def names_history(self, fields: Mapping[str, Json]) -> bool:
        """Whether the request refers to input that the server stores, so that it may bring no messages itself."""
        ...


class ReportConverter(Protocol):
    """Converts the events of one stream."""

    def feed(self, event: SseEvent) -> list[bytes]:
        """Converts an event."""
        ...

    def finish(self) -> list[bytes]:
        """Returns what remains to be sent at the end."""
        ...


class ContextManagementFormat(Protocol):
    """How a format asks for context management, and how a response reports it."""

    @property
    def BETAS(self) -> frozenset[str]:
        """Values of the header that announces betas, for what is served here."""
        ...

    def read_plan(self, value: Json) -> ContextPlan:
        """Reads the member of a request. Raises `InputError`, which names what is not known."""
        ...

    def local_tools(self, tools: bytes) -> bytes:
        """Returns the tools of a request as any server of this format knows them."""
        ...

    def compaction_item(self, id: str, summary: str) -> dict[str, Json]:
        """Writes the item or block that represents a history."""
        ...

    def after_compaction(self, messages: Sequence[bytes]) -> tuple[str, tuple[bytes, ...]]:
        """Returns the id of the last compaction made here, and the messages after it; no id without one."""
        ...

    def with_report(self, raw: bytes, report: ContextReport) -> bytes:
        """Returns a response body that says what was done. Raises `MalformedJson`."""
        ...

    def report_stream(self, report: ContextReport) -> ReportConverter:
        """Creates the converter that adds the same to one stream."""
        ...

    def compaction_response(self, item: dict[str, Json], usage: Json, ids: ResponseIds, model: str) -> bytes:
        """Writes a response that is only a compaction."""
        ...

    def compaction_stream(self, item: dict[str, Json], usage: Json, ids: ResponseIds, model: str) -> bytes:
        """Writes the same response as a stream."""
        ...


class Addressing(Protocol):
    """How the address of a request holds what other formats write in the body: the model, and whether to stream."""

    def read_address(self, path: str, query: str) -> RequestAddress | None:
        """Reads an address of the gateway; `None` if it is no address of a model request."""
        ...

    def read_passed_address(self, path: str) -> PassedAddress | None:
        """Reads an address of the rest of the API; `None` if other formats may have it, too."""
        ...

    def enclose(self, address: RequestAddress, body: bytes) -> bytes:
        """Returns the body of a request with `model` and `stream` in it. What is no JSON stays as it is."""
        ...

    def upstream_address(self, body: bytes, query: str) -> tuple[str, str, bytes]:
        """Returns the path, the query and the body of a request to an upstream, from a body with both."""
        ...


class Converter(Protocol):
    """Converts requests, responses and streams to the neutral types of `recto.formats.convert`, and back."""

    def read_request(self, body: Mapping[str, Json], conversion: Conversion) -> CompletionRequest:
        """Reads a request body. Raises `CannotCross` for what the neutral types cannot hold."""
        ...

    def write_request(self, request: CompletionRequest, conversion: Conversion, max_tokens: int) -> dict[str, Json]:
        """Writes a request body. `max_tokens` limits the output if the request does not and the format requires it."""
        ...

    def read_completion(self, body: Mapping[str, Json], conversion: Conversion) -> Completion:
        """Reads a response body. Raises `CannotCross` for what the neutral types cannot hold."""
        ...

    def write_completion(self, completion: Completion, ids: ResponseIds, conversion: Conversion) -> dict[str, Json]:
        """Writes a response body."""
        ...

    def stored_completion(
        self, messages: Sequence[dict[str, Json]], ids: ResponseIds, model: str, stop: str, cost: Cost | None
    ) -> dict[str, Json]:
        """Writes the response body that holds stored messages. `stop` is the stop reason; empty if unknown."""
        ...

    def reader(self, conversion: Conversion) -> StreamReader:
        """Creates a reader from this format's events to neutral stream events."""
        ...

    def writer(self, conversion: Conversion, ids: ResponseIds, include_usage: bool) -> StreamWriter:
        """Creates a writer from neutral stream events to this format's events."""
        ...


class BodyKeys(Struct, frozen=True, kw_only=True):
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


class HttpApi(Struct, frozen=True, kw_only=True):
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


class Format(Struct, frozen=True, kw_only=True, eq=False):
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
