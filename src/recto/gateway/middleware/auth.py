"""The guard in front of all routes: origin, authentication, rights, limits and request bodies.

No handler sees a request that is not addressed to this gateway, lacks a required key, or exceeds its limits. The guard
reads the complete body before a handler runs, so that a slow client occupies a connection and nothing else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias
from urllib.parse import unquote_plus, unquote_to_bytes

from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recto.config.settings import GatewaySettings
from recto.engine.threads import CALLS, ThreadCall
from recto.errors import RequestRefused, StoreError
from recto.formats import FORMATS, Format, address_at, format_at
from recto.formats.address import RequestAddress
from recto.formats.errors import FORBIDDEN, INTERNAL, MALFORMED, NOT_FOUND, OVERLOADED, UNAUTHORISED
from recto.gateway.api_keys import OPEN_PATHS, PASSED_ROOTS, PREFIX, SHARED_PATHS, Key, KeyLookup, Keys, Right
from recto.gateway.budgets import Budgets
from recto.gateway.errors import denied
from recto.gateway.middleware._body import BodyReader
from recto.gateway.middleware.origin import METHODS, OriginPolicy, TrustedProxies, parse_headers, refuse_ambiguous
from recto.gateway.middleware.rate_limit import RateLimits
from recto.gateway.request import KnownPrefix, KnownRequests
from recto.gateway.responses import DISCONNECTED_CODE, STOPPED_CODE, ArraySender
from recto.gateway.telemetry import CLIENT_CLOSED, RequestRecord, keep_record
from recto.gateway.upstreams.targets import PREFIX as TARGET_PREFIX
from recto.gateway.upstreams.targets import Targets

Need: TypeAlias = Literal["open"] | Right
"""What a route requires: nothing, or a key with a right."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one route requires."""

    method: str
    path: str
    """In the router's notation: `/v1/conversations/{id}`."""
    need: Need


PASSED_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PASSED_PATHS = tuple(f"{root}/{{path:path}}" for root in PASSED_ROOTS)
"""Everything else of a provider's API: see `recto.gateway.endpoints.passthrough`."""


def thread_path(call: ThreadCall) -> str:
    """The path at which Codex makes a call about a thread."""
    return f"/v1/alpha/{call.namespace}/v2/{call.name}"


TABLE: tuple[Rule, ...] = (
    # The page contains no data; what it shows it requests with a key.
    Rule("GET", "/", "open"),
    Rule("GET", "/web/app.js", "open"),
    Rule("GET", "/web/style.css", "open"),
    Rule("GET", "/web/icon.svg", "open"),
    Rule("GET", "/healthz", "open"),
    # Reveals no more than a connection attempt would; health checks of orchestrators send no key.
    Rule("GET", "/readyz", "open"),
    Rule("GET", "/metrics", "read"),
    Rule("GET", "/v1/models", "ask"),
    Rule("POST", "/v1/embeddings", "ask"),
    *(Rule(method, path, "ask") for format in FORMATS.values() for method, path in format.api.routes),
    # A key that may write to a thread by asking may read it and keep its notes, as with conversations.
    *(Rule("POST", thread_path(call), "ask") for call in CALLS),
    *(Rule(method, path, "ask") for path in PASSED_PATHS for method in PASSED_METHODS),
)
"""The routes of the wire formats and of operations. Those of the inspection API are declared with their handlers."""


class AccessPolicy:
    """Knows what each route requires."""

    def __init__(self, *tables: Iterable[Rule]) -> None:
        self.rules = tuple(rule for table in tables or (TABLE,) for rule in table)
        self._compiled: list[tuple[re.Pattern[str], Rule]] = [(compile_path(rule.path)[0], rule) for rule in self.rules]
        self._by_path = {rule.path: self._compared(rule.path) for rule in self.rules}
        """The rules of each path that is written out; a path with parameters matches no request literally."""

    def needs(self, method: str, path: str) -> frozenset[Need]:
        """Return what a request requires; empty for an unknown route."""
        wanted = "GET" if method == "HEAD" else method
        return frozenset(rule.need for rule in self._matching(path) if rule.method == wanted)

    def methods(self, path: str) -> frozenset[str]:
        """Return the methods of a path."""
        return frozenset(rule.method for rule in self._matching(path))

    def missing(self, routes: Sequence[BaseRoute], at: str = "") -> list[str]:
        """Return the routes of an application that no rule covers: they cannot be used."""
        known = {(rule.method, rule.path) for rule in self.rules}
        found: list[str] = []
        for route in routes:
            match route:
                case Route():
                    methods = (route.methods or {"any method"}) - {"HEAD"}
                    found += [f"{method} {at}{route.path}" for method in sorted(methods)]
                case Mount() if route.routes:
                    found += self.missing(route.routes, at + route.path)
                case _:
                    found.append(f"{at}{getattr(route, 'path', route)}")
        return [name for name in found if tuple(name.split(" ", 1)) not in known]

    def _matching(self, path: str) -> list[Rule]:
        found = self._by_path.get(path)
        return self._compared(path) if found is None else found

    def _compared(self, path: str) -> list[Rule]:
        found = [rule for pattern, rule in self._compiled if pattern.fullmatch(path)]
        return [rule for rule in found if rule.path not in PASSED_PATHS] or found

    def is_passed(self, path: str) -> bool:
        """Whether a path is passed on to an upstream without being read."""
        return all(rule.path in PASSED_PATHS for rule in self._matching(path))


BODY = "recto.body"
"""The body of a request in its scope; empty where it has none."""
KNOWN = "recto.known"
"""Where handlers find the earlier request that the body begins with, or None."""
API_ROOTS = frozenset(
    path.split("/")[2]
    for path in (*(rule.path for rule in TABLE), *OPEN_PATHS, *SHARED_PATHS)
    if path.startswith("/v1/")
) - {"{path:path}"}
"""The first names below `/v1`."""
_WIRES = {format.api.path: format.name for format in FORMATS.values()}
"""The formats of model requests, by path."""
ADDRESS = "recto.address"
"""What the address of a request holds besides a path, and its format; absent where the body holds everything."""
PREFIX_PATH = "recto.prefix"
"""What comes before the path of a provider's API; absent where nothing does."""
UPLOAD = "recto.upload"
"""Present in the scope of a request whose body was not read: the bytes that it announces, or None."""
KEY = "recto.key"
"""The API key of the caller in the scope of a request; absent on open routes."""

_OPEN_BYTES = 16 * 1024
"""Size limit of requests without a key."""
_DRAIN_PAUSE = 0.01
"""Seconds between two reads of a discarded body, which leave the event loop to others."""
_DRAIN_SECONDS = 1.0
"""How long the rest of a refused body is read and discarded, so that its sender gets to read the error."""
_KEY_PARAMETERS = frozenset(format.api.key_parameter for format in FORMATS.values()) - {""}
_CREDENTIALS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"x-recto-key")
_HOW_TO_SEND_A_KEY = (
    "'recto keys add NAME' makes one; send it as 'Authorization: Bearer rk-…' or as 'x-api-key'. The keys of providers "
    "stay in the gateway's settings"
)
_NO_KEY = f"no key was sent, and this gateway needs one of its own: {_HOW_TO_SEND_A_KEY}"
_WRONG_KEY = f"this is not a key of this gateway, or it was revoked or has expired: {_HOW_TO_SEND_A_KEY}"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Sent with every response that does not set them itself."""
_BANNERS = frozenset((b"server", b"x-powered-by"))


class Guard:
    """ASGI middleware that authenticates and limits requests. Handlers find the caller's key in the scope."""

    def __init__(  # noqa: PLR0913  # what comes before the routes
        self,
        app: ASGIApp,
        gateway: GatewaySettings,
        keys: Keys,
        authority: AccessPolicy | None = None,
        known: KnownRequests | None = None,
        targets: Targets | None = None,
        *,
        budgets: Budgets | None = None,
        report: Callable[[RequestRecord], None] = lambda record: None,
        finished: Callable[[RequestRecord], None] = lambda record: None,
    ) -> None:
        """`report` gets a model request as soon as its outcome is known, `finished` every request when it is over."""
        self.app = app
        self.authority = authority or AccessPolicy()
        self.limits = RateLimits(gateway)
        self._lookup = KeyLookup(keys)
        self._origins = OriginPolicy(gateway)
        self._proxies = TrustedProxies(gateway.trusted_proxies)
        self._body_reader = BodyReader(gateway)
        self._max_bytes = gateway.body_bytes
        self._known = known or KnownRequests()
        self._targets = targets
        """Addresses that clients may name, and requests need no key: where the gateway serves this machine alone."""
        self._budgets = budgets
        self._report = report
        self._finished = finished
        self.draining = False
        """Whether the gateway is being stopped: then only requests that need no key are still answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            record = RequestRecord(
                report=self._report,
                method=scope["method"],
                path=scope["path"],
                client=self._proxies.client(scope),
            )
            keep_record(scope, record)
            try:
                await self._respond(scope, receive, _ResponseSender(send, record), record)
            finally:
                _conclude(record)
                self._finished(record)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _respond(self, scope: Scope, receive: Receive, answer: _ResponseSender, record: RequestRecord) -> None:
        refused: RequestRefused
        try:
            await self._admit(scope, receive, answer, record)
            return
        except ClientDisconnect:
            record.settle("cut", DISCONNECTED_CODE)
            return
        except RequestRefused as error:
            refused = error
        except StoreError:  # its message may name local files
            refused = RequestRefused(503, OVERLOADED, "the store cannot be used now; ask again later", 5)
        except asyncio.CancelledError:
            record.settle("cut", STOPPED_CODE)
            if answer.started:
                raise
            refused = _stopping()
        except Exception:
            record.settle("failed", INTERNAL)
            if not answer.started:
                await PlainTextResponse("Internal Server Error", 500)(scope, receive, answer)
            raise  # the server logs it
        if record.key is not None:
            record.wire = record.wire or _WIRES.get(record.path, "")
        record.settle("refused", refused.code)
        if answer.started:
            raise refused
        await _refuse(scope, receive, answer, refused)

    async def _admit(self, scope: Scope, receive: Receive, answer: _ResponseSender, record: RequestRecord) -> None:
        headers = parse_headers(scope["headers"])
        method, path = scope["method"], scope["path"]
        raw = scope.get("raw_path") or path.encode()
        upstream = ""
        if self._targets and raw.startswith(TARGET_PREFIX):
            self._origins.allowed_origin(headers, (scope.get("server") or ("", None))[1])
            upstream, raw = self._targets.resolve(raw)
            path = unquote_to_bytes(raw).decode("utf-8", "replace")
            scope = {**scope, "path": path, "raw_path": raw, PREFIX_PATH: scope["path"].removesuffix(path)}
        refuse_ambiguous(method, raw, scope["query_string"], scope["http_version"], headers)
        if versioned := _versioned(path):
            path, raw = versioned, _versioned(raw.decode("ascii")).encode()
            scope = {**scope, "path": path, "raw_path": raw}
        if scope["query_string"]:
            scope, headers = _without_query_key(scope, headers)
        if method == "POST" and (found := address_at(path, scope["query_string"].decode("latin-1"))) is not None:
            scope = _addressed(scope, *found)
            path = scope["path"]
        record.path = path
        answer.origin = self._origins.allowed_origin(headers, (scope.get("server") or ("", None))[1])
        if method == "OPTIONS" and b"access-control-request-method" in headers:
            await _preflight(answer, headers)
            return
        needs = self.authority.needs(method, path)
        if needs == {"open"}:
            await self._handle(scope, receive, answer, headers, None, record)
            return
        if self.draining:
            raise _stopping()
        key = await self._key(headers)
        if upstream:
            key = replace(key, upstream=upstream)
        record.key = key
        if not needs:
            raise self._unknown(path)
        if not needs - {"open"} <= key.rights:
            text = f"this key may not do that: it has no right to {', '.join(sorted(needs - key.rights - {'open'}))}"
            raise RequestRefused(403, FORBIDDEN, text)
        if self._budgets is not None and key.has_budget and "ask" in needs and method != "GET":
            await self._budgets.admit(key)
        with self.limits.request(key):
            await self._handle(scope, receive, answer, headers, key, record)

    async def _key(self, headers: Mapping[bytes, bytes]) -> Key:
        secret = _secret(headers)
        found = await self._lookup.find(secret) if secret else None
        if found is None and not secret and self._targets:
            return self._targets.key
        if found is None:
            sent = any(headers.get(name) for name in _CREDENTIALS)
            raise RequestRefused(401, UNAUTHORISED, _WRONG_KEY if sent else _NO_KEY)
        return found

    def _unknown(self, path: str) -> RequestRefused:
        methods = sorted(self.authority.methods(path))
        if methods:
            return RequestRefused(405, "method_not_allowed", f"what can be done here: {', '.join(methods)}")
        return RequestRefused(404, NOT_FOUND, "there is nothing here; docs/reference/http.md lists what there is")

    async def _handle(
        self,
        scope: Scope,
        receive: Receive,
        answer: _ResponseSender,
        headers: Mapping[bytes, bytes],
        key: Key | None,
        record: RequestRecord,
    ) -> None:
        with self.limits.memory() as memory:
            limit = _OPEN_BYTES if key is None else min(key.body_bytes or self._max_bytes, self._max_bytes)
            body, known = b"", None
            uploads = has_body(headers) and not _is_json(headers, scope["path"])
            if uploads and not (key and self.authority.is_passed(scope["path"])):
                text = "the body is JSON: send 'content-type: application/json'"
                raise RequestRefused(415, "unsupported_media_type", text)
            if uploads and b"content-encoding" in headers:
                raise RequestRefused(415, "unsupported_encoding", "send a body that is not JSON as it is, not packed")
            if has_body(headers) and not uploads:
                match = partial(self._match, scope["path"], key)
                id = key.id if key else ""
                began = record.seconds
                if ADDRESS not in scope:
                    body, known = await self._body_reader.read(headers, receive, memory, limit, id, match)
                else:
                    format, address = scope[ADDRESS]
                    body, _ = await self._body_reader.read(headers, receive, memory, limit, id)
                    body = format.api.addressing.enclose(address, body)
                    known = match(body)
                record.client_seconds += record.seconds - began
                receive = _replay(body, receive)
                answer.body_read = True
            inner = {
                **scope,
                "headers": _forwarded_headers(scope, len(body) if answer.body_read else None),
                BODY: body,
                KNOWN: known,
            }
            if uploads:
                length = headers.get(b"content-length")
                inner[UPLOAD] = int(length) if length else None
            if key is None:
                await self.app(inner, receive, answer)
                return
            inner[KEY] = key
            send: Send = answer
            if ADDRESS in scope and scope[ADDRESS][1].as_array:
                send = ArraySender(answer)
            with self.limits.work(key):
                await self.app(inner, receive, send)

    def _match(self, path: str, key: Key | None, body: bytes) -> KnownPrefix | None:
        wire = _WIRES.get(path)
        return self._known.match(key.id, wire, body) if wire and key else None


class _ResponseSender:
    """Sends a response with the common headers, and yields to other tasks between two chunks."""

    def __init__(self, send: Send, record: RequestRecord) -> None:
        self._send = send
        self._record = record
        self.started = False
        self.body_read = False
        """Whether the complete request was read."""
        self.origin = ""
        """The origin that may read the response, other than the gateway's own."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._record.status = message["status"]
            message = {**message, "headers": self._headers(message.get("headers", ()))}
        began = self._record.seconds
        try:
            await self._passed_on(message)
        finally:
            self._record.client_seconds += self._record.seconds - began

    async def _passed_on(self, message: Message) -> None:
        await self._send(message)
        if message.get("more_body", False):
            # Returns when the client has read it: only then is more produced.
            await self._send({"type": "http.response.body", "body": b"", "more_body": True})
            # A response that is available at once never awaits anything. Without this, no other task would run once its
            # client has gone, not even the one that cancels it.
            await asyncio.sleep(0)

    def _headers(self, raw: object) -> list[tuple[bytes, bytes]]:
        headers = [(bytes(name), bytes(value)) for name, value in raw]  # type: ignore[attr-defined]  # ASGI: pairs
        headers = [pair for pair in headers if pair[0].lower() not in _BANNERS]
        present = {name.lower() for name, _ in headers}
        headers += [pair for pair in _HEADERS if pair[0] not in present]
        if self._record.wire:
            headers.append((b"x-recto-request-id", self._record.id.encode()))
        if self.origin:
            headers += [(b"access-control-allow-origin", self.origin.encode("latin-1")), (b"vary", b"Origin")]
            headers.append((b"access-control-expose-headers", b"*"))
        return headers


def _stopping() -> RequestRefused:
    return RequestRefused(503, OVERLOADED, "the gateway is being stopped; ask again", 1)


def _conclude(record: RequestRecord) -> None:
    """Set the outcome of a request of which no handler reported one."""
    if not record.status:
        record.status = CLIENT_CLOSED
    if record.outcome:
        return
    if record.status == CLIENT_CLOSED:
        record.settle("cut", DISCONNECTED_CODE)
    elif record.status >= 500:
        record.settle("failed", f"status_{record.status}")
    else:
        record.settle(
            "ok" if record.status < 400 else "refused", "" if record.status < 400 else f"status_{record.status}"
        )


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body follows the headers."""
    return b"transfer-encoding" in headers or int(headers.get(b"content-length", b"0")) > 0


def _secret(headers: Mapping[bytes, bytes]) -> str:
    """Return the secret of a Recto key, from any header that clients use. Other credentials are ignored."""
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    secrets = {token.strip() if scheme.lower() == "bearer" else ""}
    secrets |= {headers.get(name, b"").decode("latin-1").strip() for name in _CREDENTIALS[1:]}
    own = {secret for secret in secrets if secret.startswith(PREFIX)}
    if len(own) > 1:
        raise RequestRefused(400, MALFORMED, "two different keys came with one request; bring one")
    return next(iter(own), "")


def _is_json(headers: Mapping[bytes, bytes], path: str) -> bool:
    """Whether a body is JSON. In the providers' own APIs, one of no type is."""
    kind = headers.get(b"content-type", b"application/json" if path.startswith("/v1") else b"")
    return kind.partition(b";")[0].strip().lower() == b"application/json"


def _versioned(path: str) -> str:
    """Return a path of a provider's API below `/v1` where a client's base URL lacks it or has it twice; else empty."""
    if path.startswith("/v1/v1/"):
        return path[3:]
    return f"/v1{path}" if path.split("/", 2)[1] in API_ROOTS else ""


def _without_query_key(scope: Scope, headers: dict[bytes, bytes]) -> tuple[Scope, dict[bytes, bytes]]:
    """Return a scope and headers with the key of a query in a header: it is never passed on."""
    path, pairs = scope["path"], scope["query_string"].decode("ascii").split("&")
    if not path.startswith(PASSED_ROOTS):
        return scope, headers
    api = format_at(path).api
    keys: set[str] = set()
    kept: list[str] = []
    for pair in pairs:
        name, value = map(unquote_plus, pair.partition("=")[::2])
        is_key = name in _KEY_PARAMETERS and (name == api.key_parameter or value.startswith(PREFIX))
        if is_key:
            keys.add(value)
        else:
            kept.append(pair)
    if not keys:
        return scope, headers
    if len(keys) > 1 or not all(key.isascii() and key.isprintable() for key in keys):
        raise RequestRefused(400, MALFORMED, "the query may have one key, in printable characters")
    key = keys.pop()
    header = b"x-recto-key" if key.startswith(PREFIX) else api.key_header.encode()
    if key and headers.get(header, key.encode()) != key.encode():
        raise RequestRefused(400, MALFORMED, "two different keys came with one request; bring one")
    added = [(header, key.encode())] if key and header not in headers else []
    scope = {**scope, "query_string": "&".join(kept).encode(), "headers": [*scope["headers"], *added]}
    return scope, headers | dict(added)


def _addressed(scope: Scope, format: Format, address: RequestAddress) -> Scope:
    """Return the scope of a request with a path that all requests to this endpoint have."""
    return {**scope, "path": address.path, "query_string": address.query.encode(), ADDRESS: (format, address)}


def _forwarded_headers(scope: Scope, size: int | None) -> list[tuple[bytes, bytes]]:
    """Return the headers for the handler: matching the body as read, and without Recto keys, which must not leak."""
    about_body = (b"content-encoding", b"transfer-encoding", b"content-length")
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name.lower() not in about_body and not (name.lower() in _CREDENTIALS and PREFIX.encode() in value)
    ]
    return kept if size is None else [*kept, (b"content-length", str(size).encode())]


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return the body that was read already, then further messages, such as a disconnect."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


async def _preflight(answer: _ResponseSender, headers: Mapping[bytes, bytes]) -> None:
    """Answer a CORS preflight; only a page that the settings allow has an origin here."""
    if not answer.origin:
        raise RequestRefused(
            403,
            FORBIDDEN,
            "requests from this web page are not allowed; 'gateway.origins' lists the pages that may send them",
        )
    requested = headers.get(b"access-control-request-headers", b"")
    allowed = [
        (b"access-control-allow-methods", ", ".join(METHODS).encode()),
        (b"access-control-allow-headers", requested if requested else b"authorization, content-type"),
        (b"access-control-max-age", b"600"),
    ]
    if b"access-control-request-private-network" in headers:
        allowed.append((b"access-control-allow-private-network", b"true"))
    await answer({"type": "http.response.start", "status": 204, "headers": allowed})
    await answer({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, receive: Receive, answer: _ResponseSender, refused: RequestRefused) -> None:
    """Send the error. If more of the request follows, discard it for a moment, then close the connection."""
    response = denied(scope["path"], refused)
    names = {name.lower() for name, _ in scope["headers"]}
    follows = not answer.body_read and bool(names & {b"content-length", b"transfer-encoding"})
    if follows:
        response.raw_headers.append((b"connection", b"close"))
    await answer({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    body = b"" if scope["method"] == "HEAD" else bytes(response.body)
    await answer({"type": "http.response.body", "body": body, "more_body": True})
    if follows and b"expect" not in names:
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while (await receive()).get("more_body", False):
                    await asyncio.sleep(_DRAIN_PAUSE)
    await answer({"type": "http.response.body", "body": b""})
