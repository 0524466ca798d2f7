"""Stands in front of everything: who asks, whether they may, and how much they may ask for.

Nothing behind it sees a request that is not addressed to this gateway, has no key where one is needed, or brings more
than it may. It reads the whole body before a handler runs, so that a slow client holds a connection and nothing else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Mount, Route, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recto.config.settings import GatewaySettings
from recto.errors import RequestRefused, StoreError
from recto.formats import FORMATS
from recto.formats.errors import FORBIDDEN, MALFORMED, NOT_FOUND, OVERLOADED, UNAUTHORISED
from recto.gateway.api_keys import PREFIX, Key, Keys, Lookup, Right
from recto.gateway.errors import denied
from recto.gateway.middleware.body import Bodies
from recto.gateway.middleware.origin import METHODS, Addresses, headers_of, refuse_odd_form
from recto.gateway.middleware.rate_limit import RateLimits

Need: TypeAlias = Literal["open"] | Right
"""What a request must bring: nothing, or a key with a right."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one route needs."""

    method: str
    path: str
    """As the router writes it: `/v1/conversations/{id}`."""
    need: Need


TABLE: tuple[Rule, ...] = (
    # The page is the same for everybody; what it shows it asks for with a key.
    Rule("GET", "/", "open"),
    Rule("GET", "/web/app.js", "open"),
    Rule("GET", "/web/style.css", "open"),
    Rule("GET", "/web/icon.svg", "open"),
    Rule("GET", "/healthz", "open"),
    # Says ready or not, which anybody sees who can connect; those who watch over services bring no key.
    Rule("GET", "/readyz", "open"),
    Rule("GET", "/metrics", "read"),
    Rule("GET", "/v1/models", "ask"),
    Rule("POST", "/v1/embeddings", "ask"),
    *(Rule(method, path, "ask") for format in FORMATS.values() for method, path in format.api.routes),
)
"""The routes of the protocols and of operations. Those of the inspection API stand beside their handlers."""


class AccessPolicy:
    """Answers what a request needs."""

    def __init__(self, *tables: Iterable[Rule]) -> None:
        self.rules = tuple(rule for table in tables or (TABLE,) for rule in table)
        self._compiled: list[tuple[re.Pattern[str], Rule]] = [(compile_path(rule.path)[0], rule) for rule in self.rules]

    def needs(self, method: str, path: str) -> frozenset[Need]:
        """All that a request must bring; empty where no such route is known."""
        asked = "GET" if method == "HEAD" else method
        return frozenset(rule.need for rule in self._matching(path) if rule.method == asked)

    def methods(self, path: str) -> frozenset[str]:
        """What may be done at a path."""
        return frozenset(rule.method for rule in self._matching(path))

    def missing(self, routes: Sequence[BaseRoute], at: str = "") -> list[str]:
        """The routes of an application that no line of the table is about: nobody can use them."""
        known = {(rule.method, rule.path) for rule in self.rules}
        found: list[str] = []
        for route in routes:
            match route:
                case Route():
                    asked = (route.methods or {"any method"}) - {"HEAD"}
                    found += [f"{method} {at}{route.path}" for method in sorted(asked)]
                case Mount() if route.routes:
                    found += self.missing(route.routes, at + route.path)
                case _:
                    found.append(f"{at}{getattr(route, 'path', route)}")
        return [name for name in found if tuple(name.split(" ", 1)) not in known]

    def _matching(self, path: str) -> list[Rule]:
        return [rule for pattern, rule in self._compiled if pattern.fullmatch(path)]


KEY = "recto.key"
"""Where a handler finds the key that asks, in the scope. Not there where the route is open."""

_OPEN_BYTES = 16 * 1024
"""Largest request of those who bring no key."""
_BETWEEN = 0.01
"""Seconds between two pieces of what is thrown away: others want the loop too."""
_LINGER = 1.0
"""Seconds for which the rest of a refused body is thrown away, so that its sender gets to read why."""
_CREDENTIALS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"x-recto-key")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Sent with every answer that does not say otherwise itself."""
_BANNERS = frozenset((b"server", b"x-powered-by"))


class Guard:
    """An ASGI application around another. The key that asks is in the scope of what it lets through."""

    def __init__(
        self, app: ASGIApp, gateway: GatewaySettings, keys: Keys, authority: AccessPolicy | None = None
    ) -> None:
        self.app = app
        self.authority = authority or AccessPolicy()
        self.limits = RateLimits(gateway)
        self._lookup = Lookup(keys)
        self._addresses = Addresses(gateway)
        self._bodies = Bodies(gateway)
        self._most = gateway.body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or lets the application answer."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answered(scope, receive, _Answer(send))
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answered(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        refused: RequestRefused
        try:
            await self._let_in(scope, receive, answer)
            return
        except ClientDisconnect:
            return
        except RequestRefused as error:
            refused = error
        except StoreError:  # its message names files of this machine
            refused = RequestRefused(503, OVERLOADED, "the store cannot be used now; ask again later", 5)
        except asyncio.CancelledError:
            if answer.started:
                raise
            refused = RequestRefused(503, OVERLOADED, "the gateway is being stopped; ask again", 1)
        if answer.started:
            raise refused
        await _refuse(scope, receive, answer, refused)

    async def _let_in(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        headers = headers_of(scope["headers"])
        method, path = scope["method"], scope["path"]
        raw = scope.get("raw_path") or path.encode()
        refuse_odd_form(method, raw, scope["query_string"], scope["http_version"], headers)
        answer.origin = self._addresses.allowed_origin(headers, (scope.get("server") or ("", None))[1])
        if method == "OPTIONS" and b"access-control-request-method" in headers:
            await _preflight(answer, headers)
            return
        needs = self.authority.needs(method, path)
        if needs == {"open"}:
            await self._handled(scope, receive, answer, headers, None)
            return
        key = await self._key(headers)
        if not needs:
            raise self._unknown(path)
        if not needs - {"open"} <= key.rights:
            text = f"this key may not do that: it has no right to {', '.join(sorted(needs - key.rights - {'open'}))}"
            raise RequestRefused(403, FORBIDDEN, text)
        with self.limits.of(key):
            await self._handled(scope, receive, answer, headers, key)

    async def _key(self, headers: Mapping[bytes, bytes]) -> Key:
        secret = _secret(headers)
        found = await self._lookup.find(secret) if secret else None
        if found is None:
            text = "no key, or one that opens nothing: bring one as 'Authorization: Bearer rk-…' or as 'x-api-key'"
            raise RequestRefused(401, UNAUTHORISED, text)
        return found

    def _unknown(self, path: str) -> RequestRefused:
        methods = sorted(self.authority.methods(path))
        if methods:
            return RequestRefused(405, "method_not_allowed", f"what can be done here: {', '.join(methods)}")
        return RequestRefused(404, NOT_FOUND, "there is nothing here; docs/reference/http.md lists what there is")

    async def _handled(
        self, scope: Scope, receive: Receive, answer: _Answer, headers: Mapping[bytes, bytes], key: Key | None
    ) -> None:
        with self.limits.room() as room:
            most = _OPEN_BYTES if key is None else min(key.body_bytes or self._most, self._most)
            size = None
            if has_body(headers):
                _refuse_other_types(headers)
                body = await self._bodies.read(headers, receive, room, most, key.id if key else "")
                size, receive = len(body), _replayed(body, receive)
                answer.body_read = True
            inner = {**scope, "headers": _passed_on(scope, size)}
            if key is None:
                await self.app(inner, receive, answer)
                return
            inner[KEY] = key
            with self.limits.work(key):
                await self.app(inner, receive, answer)


class _Answer:
    """Sends an answer with the headers that all of them have, and lets others run between two pieces of it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.body_read = False
        """Whether all of the request has come."""
        self.origin = ""
        """The web page that may read the answer, where it is not the gateway's own."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            message = {**message, "headers": self._headers(message.get("headers", ()))}
        await self._send(message)
        if message.get("more_body", False):  # comes back when the client has taken it: only then is more made
            await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        # An answer that is at hand never waits for anything; without this, once its reader has gone, nobody else
        # would ever get a turn, not even who would tell it to stop.
        await asyncio.sleep(0)

    def _headers(self, given: object) -> list[tuple[bytes, bytes]]:
        headers = [(bytes(name), bytes(value)) for name, value in given]  # type: ignore[attr-defined]  # ASGI: pairs
        headers = [pair for pair in headers if pair[0].lower() not in _BANNERS]
        said = {name.lower() for name, _ in headers}
        headers += [pair for pair in _HEADERS if pair[0] not in said]
        if self.origin:
            headers += [(b"access-control-allow-origin", self.origin.encode("latin-1")), (b"vary", b"Origin")]
            headers.append((b"access-control-expose-headers", b"*"))
        return headers


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body follows the headers."""
    return b"transfer-encoding" in headers or int(headers.get(b"content-length", b"0")) > 0


def _secret(headers: Mapping[bytes, bytes]) -> str:
    """What could be a secret of ours, from wherever clients put theirs. Anything else is somebody else's."""
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    given = {token.strip() if scheme.lower() == "bearer" else ""}
    given |= {headers.get(name, b"").decode("latin-1").strip() for name in _CREDENTIALS[1:]}
    ours = {secret for secret in given if secret.startswith(PREFIX)}
    if len(ours) > 1:
        raise RequestRefused(400, MALFORMED, "two different keys came with one request; bring one")
    return next(iter(ours), "")


def _refuse_other_types(headers: Mapping[bytes, bytes]) -> None:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise RequestRefused(415, "unsupported_media_type", "the body is JSON: send 'content-type: application/json'")


def _passed_on(scope: Scope, size: int | None) -> list[tuple[bytes, bytes]]:
    """The headers for who is behind: those of the body as it is now, and none of our keys, to be logged or sent on."""
    about_body = (b"content-encoding", b"transfer-encoding", b"content-length")
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name.lower() not in about_body and not (name.lower() in _CREDENTIALS and PREFIX.encode() in value)
    ]
    return kept if size is None else [*kept, (b"content-length", str(size).encode())]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read already, then whatever comes: that the client has gone."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


async def _preflight(answer: _Answer, headers: Mapping[bytes, bytes]) -> None:
    """Tells a browser what a page may send; only one that the settings allow gets here with an origin."""
    if not answer.origin:
        raise RequestRefused(403, FORBIDDEN, "this web page may not ask here; 'gateway.origins' lists those that may")
    asked = headers.get(b"access-control-request-headers", b"")
    allowed = [
        (b"access-control-allow-methods", ", ".join(METHODS).encode()),
        (b"access-control-allow-headers", asked if asked else b"authorization, content-type"),
        (b"access-control-max-age", b"600"),
    ]
    if b"access-control-request-private-network" in headers:
        allowed.append((b"access-control-allow-private-network", b"true"))
    await answer({"type": "http.response.start", "status": 204, "headers": allowed})
    await answer({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, receive: Receive, answer: _Answer, refused: RequestRefused) -> None:
    """Says why, and closes where more of the request would follow. Its rest is thrown away for a moment first."""
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
            async with asyncio.timeout(_LINGER):
                while (await receive()).get("more_body", False):
                    await asyncio.sleep(_BETWEEN)
    await answer({"type": "http.response.body", "body": b""})
