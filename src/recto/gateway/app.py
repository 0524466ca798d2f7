"""Assembles the gateway: routes, handlers, and the guard in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from recto.config import Settings
from recto.config.factory import SystemClock, make_embedded_model, make_indexer, make_metrics, make_sinks, open_replica
from recto.config.loader import Layer
from recto.config.published_models import registry as model_registry
from recto.engine.async_session import on_a_thread
from recto.errors import InputError, RectoError, UpstreamsWrong
from recto.formats import DEFAULT_FORMAT, FORMATS, Format
from recto.formats.errors import TIMED_OUT, UPSTREAM_FAILED
from recto.gateway.api_keys import SESSION as KEYS_SESSION
from recto.gateway.api_keys import Key, Keys
from recto.gateway.budgets import Budgets
from recto.gateway.endpoints.mcp import RULES as MCP_RULES
from recto.gateway.endpoints.mcp import GatewayMcp
from recto.gateway.endpoints.models import ModelsApi
from recto.gateway.endpoints.passthrough import Passthrough
from recto.gateway.endpoints.static import StaticFiles
from recto.gateway.endpoints.threads import ThreadsApi
from recto.gateway.errors import JsonResponse, coded_response, error_response
from recto.gateway.inspection.operations import RULES
from recto.gateway.inspection.queries import Inspection
from recto.gateway.inspection.routes import Sources
from recto.gateway.inspection.routes import routes as inspection_routes
from recto.gateway.middleware.auth import API_ROOTS, PASSED_METHODS, PASSED_PATHS, TABLE, AccessPolicy, Guard
from recto.gateway.own_tools import RecallToolRules
from recto.gateway.proxy import Proxy, RequestLanes
from recto.gateway.request import OWN_HEADER, ClientRequest, KnownRequests, named_session, open_request, read_object
from recto.gateway.responses_state import ConversationState
from recto.gateway.session_pool import SessionPool
from recto.gateway.session_resolver import SessionHint
from recto.gateway.telemetry import AccessLog, RequestMetrics, RequestRecord
from recto.gateway.turn import TurnRunner
from recto.gateway.upstreams.embedded import EmbeddedUpstream
from recto.gateway.upstreams.http import Upstream, UpstreamUnreachable, make_upstreams
from recto.gateway.upstreams.targets import Targets
from recto.health.protocols import HealthSink
from recto.transcript.protocols import TranscriptStore
from recto.transcript.sources import SessionSource, source_of

_Handler = Callable[[Request], Awaitable[Response]]


class Gateway:
    """One gateway over one store: an ASGI application and its parts."""

    def __init__(self, settings: Settings, store: TranscriptStore, layers: Sequence[Layer] = ()) -> None:
        clock = SystemClock()
        self.store = store
        self.keys = Keys(store, clock)
        self.upstreams = make_upstreams(settings, partial(_embedded, settings))
        self.settings = settings = self._with_embedded(settings)
        known = model_registry(settings.models)
        sinks = make_sinks(settings)
        self.metrics = make_metrics(settings, sinks)
        self._sinks: list[HealthSink] = [self.metrics, *sinks]
        self._indexer = make_indexer(settings, store)
        self.sessions = SessionPool(
            settings, store, self._indexer, sinks=self._sinks, clock=clock, upstream_of=self._upstream_of
        )
        self.replica = open_replica(settings, store)
        self._sources = Sources(Inspection(self.sessions, settings, layers), self.replica)
        tool = RecallToolRules(
            mode=settings.gateway.recall_tool,
            enabled=settings.recall.enabled,
            scope=settings.recall.scope,
            lazy_tools=settings.window.lazy_tools,
            new_windows=settings.gateway.new_windows,
        )
        self.budgets = Budgets(self.sessions.view, clock, partial(known.card, warn=False))
        self.turns = TurnRunner(self.sessions, clock, tool, self.budgets, _source(settings))
        self.conversations = ConversationState(self.sessions, self.turns, clock)
        self.models_api = ModelsApi(self.upstreams, self.sessions, self._indexer)
        self.authority = AccessPolicy(TABLE, RULES, MCP_RULES)
        self._mcp = GatewayMcp(Inspection(self.sessions, settings))
        self._known = KnownRequests()
        empty = Starlette(routes=[], lifespan=self._lifespan)
        local = Key(id="local", name="this machine", rights=frozenset({"ask"}), tenant=settings.tenant)
        targets = (
            Targets(settings.gateway, local, self.upstreams.open_target, API_ROOTS) if settings.gateway.local else None
        )
        style = settings.gateway.access_log
        self._access_log = AccessLog(style, clock) if style != "off" else None
        self.guard = Guard(
            empty,
            settings.gateway,
            self.keys,
            self.authority,
            self._known,
            targets,
            budgets=self.budgets,
            report=self._report,
            finished=self._access_log.write if self._access_log else lambda record: None,
        )
        self.requests = RequestMetrics(
            self.metrics,
            lambda: self.guard.limits.in_flight,
            known_model=lambda model: known.card(model, warn=False).known,
        )
        if self.replica is not None:
            self.requests.watch(self.replica)
            self.replica.watch()
        routed = Starlette(routes=self._routes(), lifespan=self._lifespan)
        self.routes = routed.routes
        self.guard.app = _ModelRequests(routed)

    @property
    def asgi(self) -> ASGIApp:
        """The application, with its guard around it."""
        return self.guard

    def index(self, session: str) -> None:
        """Index a session for recall in the background, before the first query."""
        self._indexer.schedule(session)

    def drain(self) -> None:
        """Report from now on that the gateway is not ready, and refuse new requests; those under way go on."""
        self.guard.draining = True

    def close(self) -> None:
        """Close sessions, index and replica; the store stays open."""
        self.sessions.close()
        self._sources.close()
        if self.replica is not None:
            self.replica.close()
        self._indexer.close()
        if self._access_log is not None:
            self._access_log.close()
        for sink in self._sinks:
            if callable(close := getattr(sink, "close", None)):
                with suppress(Exception):
                    close()

    def _upstream_of(self, model: str, key: Key) -> str:
        try:
            return self.upstreams.for_model(model, key).name
        except UpstreamsWrong:
            return ""

    def _with_embedded(self, settings: Settings) -> Settings:
        """Return the settings with the window of the embedded model, under whatever name clients use it."""
        models = dict(settings.models)
        for upstream in self.upstreams.by_name.values():
            if isinstance(upstream, EmbeddedUpstream):
                model = upstream.model
                models[model.name] = {**models.get(model.name, {}), "window": model.window}
        return replace(settings, models=models)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.models_api.ask_at_start()
        try:
            yield
        finally:
            await self.models_api.close()
            await self._mcp.close()
            await self.upstreams.close()
            await on_a_thread(self.close)

    def _routes(self) -> list[Route]:
        lanes, passed = RequestLanes(), Passthrough(self.upstreams, self.settings.gateway)
        return [
            *StaticFiles().routes(),
            Route("/healthz", self._healthy),
            Route("/readyz", self._ready),
            Route("/metrics", self._metrics),
            *(route for format in FORMATS.values() for route in self._routes_of(format, lanes)),
            Route("/v1/models", self._handler(DEFAULT_FORMAT, self._models)),
            Route("/v1/embeddings", self._handler(DEFAULT_FORMAT, self._embeddings), methods=["POST"]),
            *inspection_routes(self._sources),
            *self._mcp.routes(),
            *ThreadsApi(self.sessions).routes(),
            *(Route(path, passed, methods=PASSED_METHODS) for path in PASSED_PATHS),
        ]

    def _routes_of(self, format: Format, lanes: RequestLanes) -> Iterator[Route]:
        """The routes of one wire format."""
        api = format.api
        yield Route(
            api.path,
            Proxy(
                format,
                self.turns,
                self.upstreams,
                lanes,
                self._known,
                self.conversations,
                self.models_api.look_up,
            ),
            methods=["POST"],
        )
        if api.count_tokens_path:
            yield Route(api.count_tokens_path, self._handler(format, partial(self._count, format)), methods=["POST"])
        if api.models_path:
            yield Route(api.models_path, self._handler(format, partial(self._models, format=format)))
        if api.compact_path:
            yield Route(api.compact_path, self._handler(format, partial(self._compact, format)), methods=["POST"])
        if path := api.conversations_path:
            yield Route(path, self._handler(format, partial(self._open_conversation, format)), methods=["POST"])
            yield Route(f"{path}/{{id}}", self._handler(format, self._conversation))
            yield Route(f"{path}/{{id}}/items", self._handler(format, self._items))

    def _report(self, record: RequestRecord) -> None:
        """Count a finished model request, and report it to the health sinks."""
        self.requests.count(record)
        for sink in self._sinks:
            if callable(took := getattr(sink, "took", None)):
                took(record.model, record.settled_seconds, "" if record.outcome == "ok" else record.outcome)

    def _handler(self, format: Format, handler: _Handler) -> _Handler:
        """Wrap a handler: its typed errors become responses in the client's format."""

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RectoError as error:
                return error_response(error, format, "")
            except UpstreamUnreachable as error:
                return coded_response(format, TIMED_OUT if error.late else UPSTREAM_FAILED, str(error), "")

        return handle

    async def _healthy(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        if self.guard.draining:
            return JSONResponse({"status": "stopping"}, 503)
        try:
            await on_a_thread(self.store.head, KEYS_SESSION)
        except RectoError:
            return JSONResponse({"status": "the store does not answer"}, 503)
        return JSONResponse({"status": "ready"})

    async def _metrics(self, request: Request) -> Response:
        body, kind = await on_a_thread(self.metrics.exposition, _key(request).tenant)
        return Response(body, media_type=kind)

    async def _count(self, format: Format, request: Request) -> Response:
        parsed = await on_a_thread(open_request, await request.body(), format.name)
        hint = _hint(request, parsed)
        tokens = await on_a_thread(self.conversations.tokens, _key(request), parsed, hint)
        return JSONResponse(format.api.token_count(tokens))

    async def _compact(self, format: Format, request: Request) -> Response:
        parsed = await on_a_thread(open_request, await request.body(), format.name)
        hint = _hint(request, parsed)
        return JsonResponse(await on_a_thread(self.conversations.compact, _key(request), parsed, hint))

    async def _open_conversation(self, format: Format, request: Request) -> Response:
        fields = read_object(await request.body() or b"{}")
        return JsonResponse(await on_a_thread(self.conversations.open_conversation, _key(request), fields, format))

    async def _conversation(self, request: Request) -> Response:
        id = request.path_params["id"]
        return JsonResponse(await on_a_thread(self.conversations.conversation, _key(request), id))

    async def _items(self, request: Request) -> Response:
        query = request.query_params
        limit = query.get("limit", "20")
        if not limit.isdecimal() or len(limit) > 4:
            raise InputError("'limit' is a number from 1 to 100")
        page = await on_a_thread(
            self.conversations.items,
            _key(request),
            request.path_params["id"],
            after=query.get("after", ""),
            limit=int(limit),
            order=query.get("order", "desc"),
        )
        return JsonResponse(page)

    async def _models(self, request: Request, format: Format | None = None) -> Response:
        return JsonResponse(await self.models_api.models(dict(request.headers), _key(request), format))

    async def _embeddings(self, request: Request) -> Response:
        return await self.models_api.embeddings(dict(request.headers), _key(request), await request.body())


class _ModelRequests:
    """Passes model requests to their handlers: the router and its middleware would take longer than some of them."""

    def __init__(self, app: Starlette) -> None:
        routes = [route for route in app.routes if isinstance(route, Route)]
        self._app = app
        self._handlers = {route.path: route.endpoint for route in routes if isinstance(route.endpoint, Proxy)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        handler = self._handlers.get(scope["path"]) if is_post else None
        await (handler or self._app)(scope, receive, send)


def _source(settings: Settings) -> SessionSource | None:
    """Where the sessions of this gateway come from, if the settings say."""
    return source_of(settings.gateway.program, settings.gateway.project)


def _embedded(settings: Settings) -> Upstream:
    return EmbeddedUpstream(make_embedded_model(settings))


def _hint(request: Request, parsed: ClientRequest) -> SessionHint:
    """Return the session that a request names in its headers or its body."""
    headers = dict(request.headers)
    return SessionHint(name=named_session(headers, parsed), is_explicit=OWN_HEADER in headers)


def _key(request: Request) -> Key:
    key: Key = request.scope["recto.key"]
    return key
