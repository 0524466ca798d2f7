"""A model request as a client sent it: the conversation, the session that it names, and whether it may come again.

Instructions and tools are passed on verbatim; they may change from request to request within one conversation. Messages
are what the transcript stores.

Recent requests (`KnownRequests`): an agent sends its whole history with every request. Where a body begins with the
bytes of an earlier body of the same API key, the messages that both share have been checked, parsed and hashed already.
So has what follows the messages, where that is the same to the last byte: agents send the same tools there. A match
decides nothing: what is reused is a function of the bytes that are the same, and requests of other keys and formats are
never compared. Everything here belongs to one event loop, so nothing is locked.

Session (`named_session`): the one that a client names in the header of Recto, in a header of its own, or in the body.
Members that identify a person (`user`, `safety_identifier`) are not sessions and are ignored.

Retries (`RetryKey`): a client marks requests that it may send again by an `Idempotency-Key`, or by the retry count that
the SDKs of OpenAI and Anthropic send.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, Final

from recto.errors import InputError, MalformedMessage
from recto.formats import Body, Format, open_body, reopen_body
from recto.formats.cache_control import newest_marks
from recto.formats.context_management import ContextPlan
from recto.formats.json_spans import Json, TextEdit, apply_edits, members, removals, set_member
from recto.formats.message import MAX_CACHE_MARKS, fields_of, object_in, text_in
from recto.text.unicode import has_half_characters

_MAX_BYTES: Final = 64 * 1024 * 1024
"""Memory for all requests, about."""
_MAX_REQUESTS: Final = 1_024
_MAX_KEY_REQUESTS: Final = 256
_MAX_BODY: Final = 4 * 1024 * 1024
"""A longer body is not kept: comparing it would hold up the event loop."""
_MAX_MESSAGES: Final = 10_000
_MESSAGE_BYTES: Final = 300
"""Memory of a message beside its bytes: objects, positions, hashes."""
_PROBES: Final = 4
"""Ends of messages at which a body is compared before all of it is: a client may have changed the last ones."""
_PROBE_BYTES: Final = 32
OWN_HEADER: Final = "x-recto-session-id"
_HEADERS: Final = (
    "x-claude-code-session-id",
    "x-session-id",
    "x-session-affinity",
    "session-id",
    "session_id",
    "thread-id",
    "conversation_id",
    "x-litellm-session-id",
    "helicone-session-id",
    "x-thread-id",
)
"""Headers of known agents, most specific first."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,119}", re.ASCII)
_KEY: Final = "idempotency-key"
_COUNT: Final = "x-stainless-retry-count"
_MAX_KEY: Final = 255
ANSWERED_KEY: Final = "answers"
"""In the metadata of a response: the `Idempotency-Key` and body of its request, as `RetryKey.answer_mark`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRequest:
    """A request whose turn has begun."""

    body: Body
    seed: bytes
    chain: Sequence[bytes]
    """The hash of the history up to each message that is not system text, from the seed on; empty if not computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPrefix:
    """The part of a body that is the same as in an earlier request: its beginning, and perhaps its end."""

    request: KnownRequest
    count: int
    """Messages that are the same, with all bytes before them."""
    number: int
    """The earlier request."""
    end_bytes: int = 0
    """Bytes from the end of the messages on that are the same, too: agents send the same tools behind them."""

    @property
    def end(self) -> int:
        """Where the beginning ends, in bytes."""
        return self.request.body.ends[self.count - 1]

    def new_bytes(self, raw: bytes) -> int:
        """Return how many bytes of the body are not the same."""
        return len(raw) - self.end - self.end_bytes


@dataclass(slots=True, kw_only=True)
class _Kept:
    request: KnownRequest
    owner: tuple[str, str]
    size: int
    probes: tuple[tuple[int, bytes], ...]


class KnownRequests:
    """The most recent requests of one gateway."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        """By number; the least recently used comes first."""
        self._by_owner: defaultdict[tuple[str, str], OrderedDict[int, _Kept]] = defaultdict(OrderedDict)
        self._numbers = count()
        self._size = 0

    def match(self, key: str, wire: str, raw: bytes) -> KnownPrefix | None:
        """Return the earlier request of an API key with which a body shares most, if any."""
        own: dict[int, _Kept] = self._by_owner.get((key, wire), {})
        for number, kept in reversed(own.items()):  # nearly every body has all messages of an earlier one
            at, probe = kept.probes[-1]
            if raw.startswith(probe, at) and kept.request.body.begins(raw):
                return _known_prefix(number, kept.request, len(kept.request.body.messages), raw)
        best: tuple[int, KnownRequest, int] | None = None
        for number, kept in reversed(own.items()):
            if not any(raw.startswith(probe, at) for at, probe in kept.probes):
                continue
            shared = kept.request.body.common_messages(raw)
            if shared > (best[2] if best else 0):
                best = number, kept.request, shared
        return _known_prefix(*best, raw) if best else None

    def remember(self, key: str, request: KnownRequest, known: KnownPrefix | None) -> None:
        """Keep a request. It replaces the earlier one that it continues."""
        body = request.body
        if len(body.raw) > _MAX_BODY or not 0 < len(body.ends) <= _MAX_MESSAGES:
            return
        if known is not None and known.count == len(known.request.body.messages):
            self._forget(known.number)
        owner = key, body.format.name
        starts = [max(end - _PROBE_BYTES, 0) for end in body.ends[-_PROBES:]]
        probes = tuple((start, body.raw[start : start + _PROBE_BYTES]) for start in starts)
        size = 2 * len(body.raw) + _MESSAGE_BYTES * len(body.messages)
        kept = _Kept(request=request, owner=owner, size=size, probes=probes)
        number = next(self._numbers)
        self._kept[number] = self._by_owner[owner][number] = kept
        self._size += size
        while len(self._by_owner[owner]) > _MAX_KEY_REQUESTS:
            self._forget(next(iter(self._by_owner[owner])))
        while self._kept and (self._size > self._max_bytes or len(self._kept) > _MAX_REQUESTS):
            self._forget(next(iter(self._kept)))

    def _forget(self, number: int) -> None:
        kept = self._kept.pop(number, None)
        if kept is not None:
            self._size -= kept.size
            own = self._by_owner[kept.owner]
            del own[number]
            if not own:
                del self._by_owner[kept.owner]


def _known_prefix(number: int, request: KnownRequest, count: int, raw: bytes) -> KnownPrefix:
    end_bytes = request.body.common_end(raw, count)
    return KnownPrefix(request=request, count=count, number=number, end_bytes=end_bytes)


def surface_of(format: Format) -> str:
    """Return the surface of messages that arrive at the gateway in this format."""
    return f"gateway {format.short_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One parsed request."""

    body: Body
    fields: Mapping[str, Json]
    """Its members, without the messages."""
    front: tuple[bytes, ...]
    """System messages before the conversation, in formats that have them among the messages."""
    back: tuple[bytes, ...]
    """System messages after it, sent with this request alone: agents append a reminder to each request."""
    middle: tuple[bytes, ...]
    """System messages inside it. They do not identify the conversation."""
    places: tuple[int, ...]
    """For each of them, how many of the messages come before it."""
    messages: tuple[bytes, ...]
    """The conversation, without system messages."""
    replies: tuple[int, ...]
    """Positions of the assistant's messages among them."""
    known: KnownPrefix | None = None
    """The earlier request with which this one begins."""
    shared: int = 0
    """How many of the messages are its messages, too."""
    format: Format
    """The wire format of the request."""
    wire: str
    """The name of its wire format, as entries carry it."""
    model: str
    """The requested model."""
    tools: bytes
    """The tool schemas, as sent to the upstream."""
    instructions: bytes
    """The system text around the conversation, as sent."""
    plan: ContextPlan | None = None
    """The context management that is served here; None: the client asks for none, or its upstream serves it."""
    dropped: frozenset[str] = frozenset()
    """Members that are not forwarded."""

    @property
    def stream(self) -> bool:
        """Whether the client wants a streamed response."""
        return self.fields.get("stream") is True

    @property
    def max_output_tokens(self) -> int:
        """The client's limit on the response; 0 without one."""
        for name in self.format.body.output_limits:
            value: Json = dict(self.fields)
            for key in name.split("."):
                value = object_in(value).get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return 0

    @property
    def closing(self) -> tuple[bytes, ...]:
        """The system messages inside the conversation that come after all of its messages."""
        count = len(self.messages)
        return tuple([raw for raw, place in zip(self.middle, self.places, strict=True) if place >= count])

    @property
    def is_bare(self) -> bool:
        """Whether it is a single message, without tools or history."""
        return not self.body.tools and not self.replies and len(self.messages) == 1

    def with_prompt(self, messages: tuple[bytes, ...], system: str = "") -> bytes:
        """Return the body for the upstream: as it came, with the messages of a prompt and additional system text."""
        body = self.body.with_messages((*self.front, *self._marked(messages), *self.back))
        removed = (self.format.body.stored_history | self.dropped) & self.fields.keys()
        has_own_tools = self.tools != (self.body.tools or b"")
        if not removed and not system and not has_own_tools:
            return body
        text = body.decode()
        parsed = list(members(text))
        spans = [(member.start, member.value.end) for member in parsed]
        edits: list[TextEdit] = removals(spans, [member.key in removed for member in parsed])
        text = apply_edits(text, edits)
        if has_own_tools:
            text = apply_edits(text, [set_member(text, 0, "tools", self.tools.decode())])
        if system:
            value = self.format.with_system((self.body.system or b"").decode(), system)
            text = apply_edits(text, [set_member(text, 0, self.format.body.system or "system", value)])
        return text.encode()

    def _marked(self, messages: tuple[bytes, ...]) -> Sequence[bytes]:
        """Return the messages with no more cache marks than a provider accepts, counting those outside of them."""
        name = f'"{self.format.cache_mark}"'.encode()
        outside = self.instructions.count(name) + self.tools.count(name) + ("cache_control" in self.fields)
        if not outside or not any(name in raw for raw in messages):
            return messages
        return newest_marks(messages, self.wire, max(MAX_CACHE_MARKS - outside, 0))


def open_request(raw: bytes, wire: str, known: KnownPrefix | None = None) -> ClientRequest:
    """Parse a request. Its nesting depth was checked when it arrived. What is known of it is not parsed again.

    Raises:
        MalformedJson, MalformedMessage: It is not a request of this format.
    """
    if known:
        body = reopen_body(raw, known.request.body, known.count, known.end_bytes)
    else:
        body = open_body(raw, wire, shallow=True)
    if has_half_characters(body.model):
        raise MalformedMessage("the model's name contains an unpaired surrogate, half of a character")
    roles = body.roles
    count = len(roles)
    front = next((place for place, role in enumerate(roles) if role != "system"), count)
    back = next((place for place in range(count, front, -1) if roles[place - 1] != "system"), count)
    if back < count and _keeps_closing(roles[front:back]):
        back = count
    inner = roles[front:back]
    middle: tuple[bytes, ...] = ()
    places: tuple[int, ...] = ()
    messages = body.messages[front:back]
    shared = min(max(known.count - front, 0), len(messages)) if known else 0
    if "system" in inner:
        middle = tuple([raw for raw, role in zip(messages, inner, strict=True) if role == "system"])
        among = [place for place, role in enumerate(inner) if role == "system"]
        places = tuple([place - earlier for earlier, place in enumerate(among)])
        messages = tuple([raw for raw, role in zip(messages, inner, strict=True) if role != "system"])
        shared -= inner[:shared].count("system")
        inner = tuple([role for role in inner if role != "system"])
    if body.format.joined_history is not None:
        # of what is shared, the last message may have gone on
        shared = max(len(body.format.joined_history(messages[:shared])) - 1, 0)
        joined = tuple(body.format.joined_history(messages))
        if joined != messages:
            messages = joined
            inner = tuple(body.format.messages.role_of(fields_of(raw)) for raw in messages)
    before, after = body.messages[:front], body.messages[back:]
    return ClientRequest(
        body=body,
        format=body.format,
        wire=body.format.name,
        model=body.model,
        tools=body.tools or b"",
        instructions=b"\n".join((*((body.system,) if body.system else ()), *before, *after)),
        fields=body.fields,
        front=before,
        back=after,
        middle=middle,
        places=places,
        messages=messages,
        replies=tuple([place for place, role in enumerate(inner) if role == "assistant"]),
        known=known,
        shared=shared,
    )


def _keeps_closing(roles: Sequence[str]) -> bool:
    """Whether a client keeps the system messages after its conversation: they follow a response, or it has kept some.

    Others are reminders, which the client sends with one request only.
    """
    return roles[-1:] == ("assistant",) or ("system", "assistant") in pairwise(roles)


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a body that is a JSON object. Raises `InputError`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("the body is not an object")
    return found


def named_session(headers: Mapping[str, str], request: ClientRequest) -> str:
    """Return the name of the session that a client means; empty where it names none.

    An id that is not valid as a name is hashed, so that two ids never become one name.
    """
    if own := own_name(headers):
        return own
    named = [headers[name] for name in _HEADERS if name in headers]
    for candidate in (*named, _id_in_body(request)):
        if len(candidate) >= 8:  # shorter ids are not meant to be unique
            return valid_name(candidate)
    return ""


def valid_name(id: str) -> str:
    """Return an id as a name; one that is not valid as a name is hashed."""
    return id if _NAME.fullmatch(id) else _hashed(id)


def own_name(headers: Mapping[str, str]) -> str:
    """Return the name in Recto's own header; empty without one."""
    own = headers.get(OWN_HEADER, "")
    return valid_name(own) if own else ""


def _id_in_body(request: ClientRequest) -> str:
    return text_in(request.fields.get("prompt_cache_key")) or request.format.request.session_id(request.fields)


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryKey:
    """Identifies a request that may come again."""

    owner: str
    """The API key and the address that was called."""
    name: str
    """The client's own `Idempotency-Key`; empty without one."""
    body: bytes
    """Digest of the body."""
    count: int
    """How often an SDK has sent it before."""
    is_new: bool = False
    """Whether its earlier attempt is known to have failed: in a session that several clients share, the turn of another
    client may have answered it nevertheless."""

    @property
    def asks_again(self) -> bool:
        """Whether an earlier attempt may have been answered, so that the transcript is searched for the question."""
        return self.count > 0 and not self.name and not self.is_new

    @property
    def lineage_name(self) -> str:
        """The name under which the answer to an `Idempotency-Key` is recorded; empty without one."""
        return f"idempotency/{json.dumps([self.owner, self.name])}" if self.name else ""

    @property
    def answer_mark(self) -> str:
        """The mark of the answer to an `Idempotency-Key` with this body; empty without one."""
        return hashlib.blake2b(self.lineage_name.encode() + self.body, digest_size=16).hexdigest() if self.name else ""


def may_come_again(headers: Mapping[str, str]) -> bool:
    """Whether the client of a request says that it may send it again."""
    return _COUNT in headers or _KEY in headers


def retry_key(headers: Mapping[str, str], owner: str, body: bytes) -> RetryKey:
    """Return what identifies a request.

    Raises:
        InputError: The key is longer than 255 characters.
    """
    name, count = headers.get(_KEY, ""), headers.get(_COUNT, "")
    if len(name) > _MAX_KEY:
        raise InputError(f"an Idempotency-Key has at most {_MAX_KEY} characters")
    number = int(count) if count.isascii() and count.isdecimal() and len(count) < 4 else 0
    return RetryKey(owner=owner, name=name, body=hashlib.blake2b(body, digest_size=16).digest(), count=number)
