"""Upstreams: the configured HTTP endpoints, or the model in this process where there are none.

Only configured addresses are called; a URL in a message or a request is never fetched. Each upstream gets its own key:
the caller's gateway key is not forwarded, and redirects are not followed.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self
from urllib.parse import urlsplit

from recto.config import Settings
from recto.errors import RequestRefused, SettingsError, UpstreamsWrong
from recto.formats import DEFAULT_FORMAT, FORMATS, Format
from recto.formats.errors import RATE_LIMITED
from recto.gateway.api_keys import PASSED_ROOTS, Key
from recto.gateway.context_management import MODES, ContextManagement, default_mode
from recto.text.lazy_re import lazy_re
from recto.text.unicode import has_half_characters

if TYPE_CHECKING:
    from recto.gateway.upstreams._connections import Upload, UpstreamConnections, UpstreamReply

_log = logging.getLogger("recto.gateway")
_FORMATS: Final[Mapping[str, Format]] = {format.short_name: format for format in FORMATS.values()}
"""What an upstream speaks, as settings name it."""
_LIST_HEADERS: Final = frozenset().union(*(format.api.list_headers for format in FORMATS.values()))
_MEMBERS: Final = ("url", "speaks", "key", "key_env", "models", "headers", "auth", "context_management")
_NOT_FORWARDED: Final = frozenset(
    {
        "host",
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "content-encoding",
        "accept-encoding",
        "cookie",
        "origin",
        "referer",
        "forwarded",
        "expect",
        "idempotency-key",  # of the client's request: one of the gateway's may differ, and there may be several
    }
)
_VERSION = lazy_re(r"/v1(?:alpha|beta)?$")
_WILDCARD = lazy_re(r"[*?\[]")
_VERSIONED: Final = tuple(f"{root}/" for root in PASSED_ROOTS)
_MAX_TARGETS: Final = 256
"""Different addresses that clients may name."""
_KEY_HEADERS: Final = frozenset({"authorization", "x-api-key", "x-goog-api-key", "api-key"})
_OWN_PREFIXES: Final = ("x-recto-", "sec-", "x-forwarded-", "access-control-")


@dataclass(slots=True, kw_only=True)
class UpstreamResponse:
    """The response of an upstream, whose body is read chunk by chunk."""

    status: int
    headers: Sequence[tuple[str, str]]
    pieces: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]

    @property
    def streams(self) -> bool:
        """Whether it is a stream of server-sent events."""
        return any(name == "content-type" and "text/event-stream" in value for name, value in self.headers)

    @property
    def is_web_page(self) -> bool:
        """Whether it is a page for people, as a wrong URL or a login in front of the upstream answers."""
        return any(name == "content-type" and "text/html" in value for name, value in self.headers)


class Upstream(Protocol):
    """A provider of models."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def speaks(self) -> tuple[Format, ...]:
        """The wire formats it takes, its own first."""
        ...

    @property
    def context_management(self) -> ContextManagement:
        """Whether it serves a client's `context_management`, or the gateway does."""
        ...

    def counting_model(self, model: str) -> str:
        """Return the model whose window and tokenizer apply when a client requests this one."""
        ...

    async def ask(self, format: Format, body: bytes, headers: Mapping[str, str], query: str = "") -> UpstreamResponse:
        """Send a model request. Raises `UpstreamUnreachable`."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class UpstreamUnreachable(Exception):  # named for what happened
    """The upstream did not respond, or its response broke off."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        self.late = late
        super().__init__(reason)


@dataclass(slots=True, kw_only=True, eq=False)
class HttpUpstream:
    """An HTTP endpoint."""

    name: str
    url: str
    speaks: tuple[Format, ...]
    key: str = field(default="", repr=False)
    auth: Literal["own", "client"] = "own"
    context_management: ContextManagement = "serve"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_seconds: float = 10.0
    read_seconds: float = 600.0
    public_only: bool = False
    """Whether its name must not lead to a private address."""
    _connections: UpstreamConnections | None = field(default=None, init=False, repr=False)

    def counting_model(self, model: str) -> str:
        """Return the requested model."""
        return model

    @property
    def key_note(self) -> str:
        """Whose key it was that the upstream refused, and where to change it."""
        setting = f"'gateway.upstreams.{self.name}'"
        if self.auth == "client":
            return f"This is the key that your client sent, which Recto passed on to upstream '{self.name}'."
        whose = f"the key that Recto has for upstream '{self.name}'" if self.key else "a request without a key"
        return (
            f"Upstream '{self.name}' refused {whose}; your key for Recto is right. Set 'key_env' or 'key' of {setting}."
        )

    async def ask(self, format: Format, body: bytes, headers: Mapping[str, str], query: str = "") -> UpstreamResponse:
        """Send a model request. Raises `UpstreamUnreachable`."""
        path = format.api.upstream_path
        if format.api.addressing is not None:
            path, query, body = format.api.addressing.upstream_address(body, query)
        return await self.send("POST", path, body, headers, query=query, format=format)

    async def send(  # the parts of a request
        self,
        method: str,
        path: str,
        body: bytes | Upload,
        headers: Mapping[str, str],
        *,
        query: str = "",
        format: Format = DEFAULT_FORMAT,
        media_type: str = "application/json",
    ) -> UpstreamResponse:
        """Send any request. Raises `UpstreamUnreachable`."""
        # not needed without endpoints
        from recto.gateway.upstreams._connections import NETWORK_ERRORS, UpstreamTimedOut  # noqa: PLC0415

        url = f"{self._base(path)}{path}{f'?{query}' if query else ''}"
        # As bytes: a client's header may hold any bytes, and text would have to be ASCII.
        encoded = [
            (name.encode(), value.encode("latin-1", "replace"))
            for name, value in self._headers(headers, format, media_type).items()
        ]
        try:
            answer, release = await self._pool().send(method, url, encoded, body)
        except UpstreamTimedOut:
            raise UpstreamUnreachable(f"upstream '{self.name}' did not respond in time", late=True) from None
        except NETWORK_ERRORS as error:
            raise UpstreamUnreachable(f"upstream '{self.name}' {_failure(error)}") from None
        # Latin-1, so that any bytes pass through.
        decoded = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in answer.headers]
        if answer.status < 400 and any(name == "content-encoding" and value != "identity" for name, value in decoded):
            await release()
            raise UpstreamUnreachable(f"upstream '{self.name}' sent a compressed answer, though none was asked for")
        kept = [(name, value) for name, value in decoded if name not in _NOT_FORWARDED]
        return UpstreamResponse(
            status=answer.status,
            headers=[
                (name, value) for name, value in kept if name != "set-cookie" and not name.startswith(_OWN_PREFIXES)
            ],
            pieces=_ResponseBody(answer, self.name),
            close=release,
        )

    async def close(self) -> None:
        """Close its connections."""
        lines, self._connections = self._connections, None
        if lines is not None:
            await lines.close()

    def _base(self, path: str) -> str:
        """Return the base URL: where the path has a version, addresses are configured with or without it."""
        base = self.url.rstrip("/")
        return _VERSION.sub("", base) if path.startswith(_VERSIONED) else base

    def _headers(self, client: Mapping[str, str], format: Format, media_type: str) -> dict[str, str]:
        own = self.auth == "own"
        headers = {"accept": "*/*", "user-agent": "recto"} | {
            name: value
            for name, value in client.items()
            if name not in _NOT_FORWARDED and not name.startswith(_OWN_PREFIXES) and not (own and name in _KEY_HEADERS)
        }
        # Uncompressed: the bytes on the wire are the bytes in memory, and what is read is what is stored.
        headers |= {"accept-encoding": "identity", "content-type": media_type}
        configured = {name.lower(): value for name, value in self.headers.items()}
        for name in (
            _LIST_HEADERS & headers.keys() & configured.keys()
        ):  # betas that a client relies on are never dropped
            values = f"{headers[name]},{configured[name]}".split(",")
            configured[name] = ",".join(dict.fromkeys(value.strip() for value in values))
        headers |= configured
        if own and self.key:
            headers[format.api.key_header] = f"{format.api.key_scheme}{self.key}"
            for name, value in format.api.default_headers.items():
                headers.setdefault(name, value)
        return headers

    def _pool(self) -> UpstreamConnections:
        from recto.gateway.upstreams._connections import UpstreamConnections  # noqa: PLC0415

        if self._connections is None:
            self._connections = UpstreamConnections(
                connect_seconds=self.connect_seconds, read_seconds=self.read_seconds, public_only=self.public_only
            )
        return self._connections


class _ResponseBody:
    """The body of a response, piece by piece; what goes wrong on its connection becomes `UpstreamUnreachable`."""

    def __init__(self, reply: UpstreamReply, upstream: str) -> None:
        self._reply = reply
        self._upstream = upstream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._reply.__anext__()
        except StopAsyncIteration:
            raise
        except Exception as error:  # noqa: BLE001  # raised again
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> Exception:
        from recto.gateway.upstreams._connections import NETWORK_ERRORS, UpstreamTimedOut  # noqa: PLC0415

        if isinstance(error, UpstreamTimedOut):
            return UpstreamUnreachable(f"upstream '{self._upstream}' stopped in the middle of its response", late=True)
        if isinstance(error, NETWORK_ERRORS):
            reason = f"upstream '{self._upstream}' closed the connection in the middle of its response"
            return UpstreamUnreachable(reason)
        return error


def _failure(error: Exception) -> str:
    """Return what went wrong before a response began, in words that name no address: clients may not know it."""
    from recto.gateway.upstreams._connections import ConnectFailed, ReadFailed  # noqa: PLC0415

    if isinstance(error, ReadFailed):
        return "closed the connection before it responded"
    if not isinstance(error, ConnectFailed):
        return f"sent no valid response: {error}"
    cause = error.__cause__
    if isinstance(cause, socket.gaierror):
        return "could not be reached: the name of its host cannot be resolved"
    if isinstance(cause, ssl.SSLError):
        return "could not be reached: the TLS handshake failed"
    return "could not be reached: there is no connection to its address"


@dataclass(slots=True, kw_only=True)
class Upstreams:
    """All upstreams, and which of them serves a model."""

    by_name: Mapping[str, Upstream]
    patterns: Sequence[tuple[str, str]]
    """Patterns of model names with their upstream; the first match wins."""
    disabled: Mapping[str, str] = field(default_factory=dict)
    """Configured upstreams that cannot be asked, and why."""

    _targets: dict[str, Upstream] = field(default_factory=dict, init=False)
    """Those at addresses that clients named."""

    def named(self, name: str) -> Upstream | None:
        """Return an upstream by its name, also one at an address that a client named."""
        return self.by_name.get(name) or self._targets.get(name)

    def configured(self, name: str) -> Upstream:
        """Return an upstream by its name. Raises `UpstreamsWrong` for one that is unknown or disabled."""
        found = self.named(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            reason = self.disabled.get(name, f"there is no upstream '{name:.80}'; configured are: {known}")
            raise UpstreamsWrong(reason)
        return found

    def for_model(self, model: str, key: Key) -> Upstream:
        """Return the upstream of a model. Raises `UpstreamsWrong`, also for a name that cannot be encoded."""
        if has_half_characters(model):
            raise UpstreamsWrong("the model's name contains an unpaired surrogate, half of a character")
        if key.upstream:
            return self.configured(key.upstream)
        missing = ""
        for pattern, name in self.patterns:
            # What was meant for a disabled upstream never goes to one that takes everything.
            if fnmatch.fnmatchcase(model, pattern) and not (missing and pattern == "*"):
                if name in self.by_name:
                    return self.by_name[name]
                missing = missing or self.disabled[name]
        if missing:
            raise UpstreamsWrong(f"the model '{model:.80}' cannot be used: {missing}")
        known = ", ".join(sorted({pattern for pattern, _ in self.patterns})[:20])
        problem = f"no upstream has the model '{model:.80}'" if model else "the request names no 'model'"
        raise UpstreamsWrong(f"{problem}; configured are: {known}")

    def example_model(self, preferred: str) -> str:
        """Return the name of a model that is served: the preferred one if it is, else one that is configured by its
        name, else the embedded one; empty if only patterns are configured.
        """
        served = [pattern for pattern, name in self.patterns if name in self.by_name]
        if preferred and any(fnmatch.fnmatchcase(preferred, pattern) for pattern in served):
            return preferred
        by_name = [pattern for pattern in served if not _WILDCARD.search(pattern)]
        own = [upstream.counting_model("") for upstream in self.by_name.values()]
        return next(filter(None, by_name + own), "")

    def open_target(self, url: str, public_only: bool) -> str:
        """Return the name of the upstream at an address that a client named. Raises `RequestRefused`."""
        name = url.partition("://")[2]
        if name not in self._targets:
            if len(self._targets) >= _MAX_TARGETS:
                raise RequestRefused(429, RATE_LIMITED, "too many different addresses were asked here already", 60)
            self._targets[name] = HttpUpstream(
                name=name,
                url=url,
                speaks=tuple(FORMATS.values()),
                auth="client",
                context_management=default_mode(url),
                public_only=public_only,
            )
        return name

    async def close(self) -> None:
        """Close all connections."""
        for upstream in (*self.by_name.values(), *self._targets.values()):
            await upstream.close()


def make_upstreams(settings: Settings, embedded: Callable[[], Upstream]) -> Upstreams:
    """Build the upstreams of the settings; without any, the model in this process.

    A gateway without any model starts too: stored sessions can be read, and clients of a local gateway name addresses.

    Raises:
        SettingsError: An upstream is misconfigured, or the settings name an embedded model that cannot be used.
    """
    configured = settings.gateway.upstreams
    if not configured:
        try:
            only = embedded()
        except SettingsError as error:
            if settings.compress.model.use == "embedded" and not settings.gateway.local:
                raise
            if not settings.gateway.local:
                _log.warning("%s Until then, requests for a model are refused.", error)
            return Upstreams(by_name={}, patterns=[("*", "embedded")], disabled={"embedded": str(error)})
        return Upstreams(by_name={only.name: only}, patterns=[("*", only.name)])
    by_name: dict[str, Upstream] = {}
    disabled: dict[str, str] = {}
    patterns: list[tuple[str, str]] = []
    for name, options in configured.items():
        upstream = _http_upstream(settings, name, options)
        if variable := _missing_variable(options):
            disabled[name] = f"upstream '{name}' is disabled, because the environment has no '{variable}'"
            _log.warning("%s. Set it and start again; its models are refused until then.", disabled[name])
        else:
            by_name[name] = upstream
        models = options.get("models", ["*"])
        if not isinstance(models, list | tuple) or not all(isinstance(one, str) for one in models):
            raise SettingsError(f"gateway.upstreams.{name}.models", "expects a list of model names or patterns")
        patterns += [(pattern, name) for pattern in models]
    # names before patterns, and the pattern that matches everything last
    patterns.sort(key=lambda one: (one[0] == "*", "*" in one[0]))
    return Upstreams(by_name=by_name, patterns=patterns, disabled=disabled)


def _http_upstream(settings: Settings, name: str, options: Mapping[str, Any]) -> HttpUpstream:
    where = f"gateway.upstreams.{name}"
    for member in options:
        if member not in _MEMBERS:
            nearest = get_close_matches(member, _MEMBERS, n=1, cutoff=0.5)
            raise SettingsError(f"{where}.{member}", "there is no such setting", nearest[0] if nearest else None)
    url, auth = options.get("url", ""), options.get("auth", "own")
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise SettingsError(f"{where}.url", "expects an address such as https://api.example.com/v1, without a password")
    if auth not in ("own", "client"):
        raise SettingsError(f"{where}.auth", "is own (the upstream's key) or client (the key that the client sends)")
    management = options.get("context_management", default_mode(url))
    if management not in MODES:
        raise SettingsError(f"{where}.context_management", f"is one of {', '.join(MODES)}")
    headers = options.get("headers", {})
    if not isinstance(headers, Mapping) or not all(isinstance(one, str) for one in headers.values()):
        raise SettingsError(f"{where}.headers", "expects names and texts")
    return HttpUpstream(
        name=name,
        url=url,
        speaks=_spoken(where, options.get("speaks", ["chat", "responses"])),
        key=_key(where, options),
        auth=auth,
        context_management=management,
        headers=headers,
        connect_seconds=settings.gateway.connect_seconds,
        read_seconds=settings.gateway.upstream_seconds,
    )


def _spoken(where: str, names: object) -> tuple[Format, ...]:
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list | tuple) or not listed or not all(one in _FORMATS for one in listed):
        raise SettingsError(f"{where}.speaks", f"is a list of {', '.join(_FORMATS)}")
    return tuple(_FORMATS[one] for one in listed)


def _missing_variable(options: Mapping[str, Any]) -> str:
    """Return the environment variable that should hold the key of an upstream, if it is not set."""
    variable = str(options.get("key_env", ""))
    return variable if variable and not os.environ.get(variable) else ""


def _key(where: str, options: Mapping[str, Any]) -> str:
    variable, key = options.get("key_env", ""), options.get("key", "")
    if not isinstance(variable, str):
        raise SettingsError(f"{where}.key_env", "expects the name of an environment variable")
    key = os.environ.get(variable, "") if variable else key
    if not isinstance(key, str) or not key.isascii() or not key.isprintable():
        raise SettingsError(f"{where}.key", "holds a character that no key has")
    return key
