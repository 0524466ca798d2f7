"""Puts the gateway together: the routes, what answers them, and what stands in front."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from recto.config import Settings
from recto.config.factory import SystemClock, make_embedded_model, make_indexer, make_metrics, make_sinks, open_replica
from recto.engine.async_session import on_a_thread
from recto.errors import InputError, RectoError
from recto.formats import DEFAULT_FORMAT, FORMATS, Format
from recto.formats.errors import TIMED_OUT, UPSTREAM_FAILED
from recto.gateway.api_keys import SESSION as KEYS_SESSION
from recto.gateway.api_keys import Key, Keys
from recto.gateway.errors import refused, said_no
from recto.gateway.inspection.operations import RULES
from recto.gateway.inspection.queries import Inspection
from recto.gateway.inspection.routes import routes as inspection_routes
from recto.gateway.inspection.sources import Sources
from recto.gateway.mcp import RULES as MCP_RULES
from recto.gateway.mcp import McpDoor
from recto.gateway.metrics import RequestMetrics
from recto.gateway.middleware.auth import TABLE, AccessPolicy, Guard
from recto.gateway.models_api import Listing
from recto.gateway.proxy import Asking, Lanes, Proxy
from recto.gateway.request import open_request
from recto.gateway.responses_state import Holding
from recto.gateway.session_id import OWN_HEADER, named_session
from recto.gateway.session_pool import SessionPool
from recto.gateway.session_resolver import Named
from recto.gateway.static import StaticFiles
from recto.gateway.turn import TurnRunner
from recto.gateway.upstreams.embedded import EmbeddedUpstream
from recto.gateway.upstreams.http import Upstream, UpstreamUnreachable, upstreams_for
from recto.health.protocols import HealthSink
from recto.tokens.model_registry import Registry
from recto.transcript.protocols import TranscriptStore

_Handler = Callable[[Request], Awaitable[Response]]


class Gateway:
    """One gateway over one store: an ASGI application, and what it is made of."""

    def __init__(self, settings: Settings, store: TranscriptStore) -> None:
        clock = SystemClock()
        self.store = store
        self.keys = Keys(store, clock)
        self.draining = False
        self.upstreams = upstreams_for(settings, partial(_embedded, settings))
        self.settings = settings = self._with_embedded(settings)
        known = Registry(overrides=settings.models)
        told = make_sinks(settings)
        self.metrics = make_metrics(settings, told)
        self._sinks: list[HealthSink] = [self.metrics, *told]
        self._indexer = make_indexer(settings, store)
        self.sessions = SessionPool(settings, store, self._indexer, sinks=self._sinks)
        self.replica = open_replica(settings, store)
        self._sources = Sources(Inspection(self.sessions, settings), self.replica)
        self.turns = TurnRunner(self.sessions, clock)
        self.holding = Holding(self.sessions, self.turns, clock)
        self.listing = Listing(self.upstreams, self.sessions, self._indexer)
        self.authority = AccessPolicy(TABLE, RULES, MCP_RULES)
        self._mcp = McpDoor(Inspection(self.sessions, settings))
        self.guard = Guard(Starlette(routes=[], lifespan=self._lifespan), settings.gateway, self.keys, self.authority)
        self.requests = RequestMetrics(
            self.metrics,
            lambda: self.guard.limits.under_way,
            known_model=lambda model: known.card(model, warn=False).known,
        )
        if self.replica is not None:
            self.requests.watch(self.replica)
            self.replica.watch()
        routed = Starlette(routes=self._routes(), lifespan=self._lifespan)
        self.routes = routed.routes
        self.guard.app = routed

    @property
    def asgi(self) -> ASGIApp:
        """The application, with its guard around it."""
        return self.guard

    def index(self, session: str) -> None:
        """Has a session brought into the index of recall in the background, before anybody asks for it."""
        self._indexer.schedule(session)

    def drain(self) -> None:
        """The end has begun: it is no longer ready for requests."""
        self.draining = True

    def close(self) -> None:
        """Lets go of sessions, of the index and of the replica; the store stays open."""
        self.sessions.close()
        self._sources.close()
        if self.replica is not None:
            self.replica.close()
        self._indexer.close()
        for sink in self._sinks:
            if callable(close := getattr(sink, "close", None)):
                with suppress(Exception):
                    close()

    def _with_embedded(self, settings: Settings) -> Settings:
        """Whatever a client calls the model in this process, its window is that of the model."""
        models = dict(settings.models)
        for upstream in self.upstreams.by_name.values():
            if isinstance(upstream, EmbeddedUpstream):
                model = upstream.model
                models[model.name] = {**models.get(model.name, {}), "window": model.window}
        return replace(settings, models=models)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self._mcp.close()
            await self.upstreams.close()
            await on_a_thread(self.close)

    def _routes(self) -> list[Route]:
        lanes = Lanes()
        return [
            *StaticFiles().routes(),
            Route("/healthz", self._healthy),
            Route("/readyz", self._ready),
            Route("/metrics", self._metrics),
            *(route for format in FORMATS.values() for route in self._routes_of(format, lanes)),
            Route("/v1/models", self._answer(DEFAULT_FORMAT, self._models)),
            Route("/v1/embeddings", self._answer(DEFAULT_FORMAT, self._embeddings), methods=["POST"]),
            *inspection_routes(self._sources),
            *self._mcp.routes(),
        ]

    def _routes_of(self, format: Format, lanes: Lanes) -> Iterator[Route]:
        """The routes of one wire format."""
        api = format.api
        yield Route(api.path, Proxy(format, self.turns, self.upstreams, lanes, self._over), methods=["POST"])
        if api.count_tokens_path:
            yield Route(api.count_tokens_path, self._answer(format, partial(self._count, format)), methods=["POST"])
        if api.compact_path:
            yield Route(api.compact_path, self._answer(format, partial(self._compact, format)), methods=["POST"])
        if path := api.conversations_path:
            yield Route(path, self._answer(format, partial(self._open_conversation, format)), methods=["POST"])
            yield Route(f"{path}/{{id}}", self._answer(format, self._conversation))
            yield Route(f"{path}/{{id}}/items", self._answer(format, self._items))

    def _over(self, asking: Asking) -> None:
        """A request to a model is over."""
        self.requests.asked(asking)
        for sink in self._sinks:
            if callable(took := getattr(sink, "took", None)):
                took(asking.model, asking.seconds, "" if asking.outcome == "ok" else asking.outcome)

    def _answer(self, format: Format, handler: _Handler) -> _Handler:
        """A handler whose typed errors are answered in its protocol's shape."""

        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except RectoError as error:
                return refused(error, format, "")
            except UpstreamUnreachable as error:
                return said_no(format, TIMED_OUT if error.late else UPSTREAM_FAILED, str(error), "")

        return answered

    async def _healthy(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        if self.draining:
            return JSONResponse({"status": "stopping"}, 503)
        try:
            await on_a_thread(self.store.head, KEYS_SESSION)
        except RectoError:
            return JSONResponse({"status": "the store does not answer"}, 503)
        return JSONResponse({"status": "ready"})

    async def _metrics(self, request: Request) -> Response:
        body, kind = await on_a_thread(self.metrics.exposition)
        return Response(body, media_type=kind)

    async def _count(self, format: Format, request: Request) -> Response:
        asked = await on_a_thread(open_request, await request.body(), format.name)
        tokens = await on_a_thread(self.holding.tokens, _key(request), asked)
        return JSONResponse(format.api.token_count(tokens))

    async def _compact(self, format: Format, request: Request) -> Response:
        asked = await on_a_thread(open_request, await request.body(), format.name)
        headers = dict(request.headers)
        named = Named(name=named_session(headers, asked), own=OWN_HEADER in headers)
        return JSONResponse(await on_a_thread(self.holding.compact, _key(request), asked, named))

    async def _open_conversation(self, format: Format, request: Request) -> Response:
        given = _object(await request.body() or b"{}")
        return JSONResponse(await on_a_thread(self.holding.open_conversation, _key(request), given, format))

    async def _conversation(self, request: Request) -> Response:
        id = request.path_params["id"]
        return JSONResponse(await on_a_thread(self.holding.conversation, _key(request), id))

    async def _items(self, request: Request) -> Response:
        query = request.query_params
        limit = query.get("limit", "20")
        if not limit.isdecimal() or len(limit) > 4:
            raise InputError("'limit' is a number from 1 to 100")
        page = await on_a_thread(
            self.holding.items,
            _key(request),
            request.path_params["id"],
            after=query.get("after", ""),
            limit=int(limit),
            order=query.get("order", "desc"),
        )
        return JSONResponse(page)

    async def _models(self, request: Request) -> Response:
        return JSONResponse(await self.listing.models(dict(request.headers), _key(request)))

    async def _embeddings(self, request: Request) -> Response:
        return await self.listing.embeddings(dict(request.headers), _key(request), await request.body())


def _embedded(settings: Settings) -> Upstream:
    return EmbeddedUpstream(make_embedded_model(settings))


def _key(request: Request) -> Key:
    key: Key = request.scope["recto.key"]
    return key


def _object(raw: bytes) -> dict[str, object]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("the body is not an object")
    return found
