"""Passes on requests that carry no conversation: files, batches, images, audio, moderations and the like.

They go to the key's upstream as they came and are streamed in both directions; nothing of them is stored. A key may use
the endpoints under which a provider keeps nothing. What a provider keeps under its account (files, batches, stored
responses) is shared by all keys that use the same upstream, so a key needs a path of its own for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from recto.config.settings import GatewaySettings
from recto.errors import InputError, RequestRefused, UpstreamsWrong
from recto.formats import Format, format_of_client, passed_at
from recto.formats.address import PassedAddress
from recto.formats.errors import FORBIDDEN, NOT_FOUND, TIMED_OUT, TOO_LARGE, UPSTREAM_FAILED
from recto.formats.message import text_in
from recto.gateway.api_keys import OPEN_PATHS, SHARED_PATHS, Key
from recto.gateway.errors import coded_response, denied, error_code, error_response
from recto.gateway.middleware.auth import BODY, KEY, PREFIX_PATH, UPLOAD
from recto.gateway.middleware.origin import TrustedProxies
from recto.gateway.request import read_object
from recto.gateway.responses import CONNECTION, DISCONNECTED_CODE, ClientConnection, unless_disconnected
from recto.gateway.telemetry import record_of
from recto.gateway.upstreams.http import HttpUpstream, Upstream, UpstreamResponse, Upstreams, UpstreamUnreachable

_T = TypeVar("_T")
UPSTREAM_HEADER: Final = "x-recto-upstream"
"""Chooses the upstream where neither the key nor a model in the body does."""
_PROTECTION: Final = ((b"content-security-policy", b"default-src 'none'; sandbox"),)
"""A file of a provider is never a page of this gateway."""


class Passthrough:
    """Handles requests that carry no conversation."""

    def __init__(self, upstreams: Upstreams, gateway: GatewaySettings) -> None:
        self._upstreams = upstreams
        self._max_bytes = gateway.upload_bytes
        self._piece_seconds = gateway.body_seconds
        self._proxies = TrustedProxies(gateway.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        request, key, record = Request(scope, receive), scope[KEY], record_of(scope)
        headers = dict(request.headers)
        format, address = passed_at(scope["path"]) or (format_of_client(headers), None)
        record.wire, record.gateway_seconds = "other", 0.0
        began = False
        try:
            _refuse_path(address.resource if address else scope["path"], key)
            upstream = self._upstream(headers, key, format, _model(address, scope[BODY]))
            record.upstream = upstream.name
            if not isinstance(upstream, HttpUpstream):
                raise UpstreamsWrong(
                    f"the upstream '{upstream.name}' is a model in this process and has no {scope['path']}"
                )
            if address and format not in upstream.speaks:
                raise UpstreamsWrong(
                    f"the upstream '{upstream.name}' does not serve {scope['path']}: its format is not {format.title}"
                )
            format = format if format in upstream.speaks else upstream.speaks[0]
            answer = await _unless_gone(record.timed(self._ask(request, upstream, format, headers)), scope, receive)
            began, record.is_streamed = True, answer.streams
            answer.headers = [
                (
                    name,
                    self._own_address(value, format, upstream, scope) if name in format.api.address_headers else value,
                )
                for name, value in answer.headers
            ]
            await _unless_gone(_send_on(answer, send), scope, receive)
            is_ok = answer.status < 400
            record.settle("ok" if is_ok else "upstream_error", "" if is_ok else f"status_{answer.status}")
        except RequestRefused as refused:
            record.settle("refused", refused.code)
            if began:
                raise
            await denied(scope["path"], refused)(scope, receive, send)
        except UpstreamsWrong as error:
            record.settle("refused", error_code(error))
            await error_response(error, format, "")(scope, receive, send)
        except UpstreamUnreachable as error:
            code = TIMED_OUT if error.late else UPSTREAM_FAILED
            record.settle("upstream_error", code)
            if began:  # the response breaks off, as the upstream's did
                await _break_off(scope)
                return
            await coded_response(format, code, str(error), "")(scope, receive, send)
        except ClientDisconnect:
            return
        finally:
            record.settle("cut", DISCONNECTED_CODE)

    def _own_address(self, address: str, format: Format, upstream: HttpUpstream, scope: Scope) -> str:
        """Return an address of the upstream as one of this gateway.

        The client would send its next request past the gateway, and its key for the gateway with it.
        """
        base = urlsplit(upstream.url)
        origin = f"{base.scheme}://{base.netloc}"
        path = address.removeprefix(origin)
        start = next((at for root in reversed(format.api.roots) if (at := path.find(f"{root}/")) >= 0), -1)
        if not address.startswith(f"{origin}/") or start < 0:
            return address
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        return f"{self._proxies.scheme(scope)}://{host}{scope.get(PREFIX_PATH, '')}{path[start:]}"

    def _upstream(self, headers: Mapping[str, str], key: Key, format: Format, model: str) -> Upstream:
        """Choose the upstream: by the key, the header, the model, or the first that speaks the format."""
        if key.upstream:
            return self._upstreams.for_model("", key)
        if name := headers.get(UPSTREAM_HEADER):
            return self._upstreams.configured(name)
        if model:
            return self._upstreams.for_model(model, key)
        candidates = list(self._upstreams.by_name.values())
        if not candidates:
            raise UpstreamsWrong("; ".join(self._upstreams.disabled.values()))
        return next((one for one in candidates if format in one.speaks), candidates[0])

    async def _ask(
        self, request: Request, upstream: HttpUpstream, format: Format, headers: Mapping[str, str]
    ) -> UpstreamResponse:
        from recto.gateway.upstreams._connections import Upload  # noqa: PLC0415  # not needed without endpoints

        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.decode("ascii")
        if not format.api.has_version:
            path = path.removeprefix("/v1")
        body: bytes | Upload = request.scope[BODY]
        media_type = headers.get("content-type", "application/json")
        if UPLOAD in request.scope:
            media_type = headers.get("content-type", "application/octet-stream")
            body = Upload(self._pieces(request.receive), request.scope[UPLOAD])
        return await upstream.send(
            request.method,
            path,
            body,
            {name: value for name, value in headers.items() if name != "content-type"},
            query=request.scope["query_string"].decode("ascii"),
            format=format,
            media_type=media_type,
        )

    async def _pieces(self, receive: Receive) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises `RequestRefused` where it is too large, or the client too slow."""
        size, more = 0, True
        while more:
            try:
                async with asyncio.timeout(self._piece_seconds):
                    message = await receive()
            except TimeoutError:
                text = f"nothing more of the body came within {self._piece_seconds:g} s; send it again"
                raise RequestRefused(408, TIMED_OUT, text) from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size > self._max_bytes:
                text = f"the request is larger than {self._max_bytes:,} bytes; 'gateway.upload_bytes' allows no more"
                raise RequestRefused(413, TOO_LARGE, text)
            yield piece


def _refuse_path(path: str, key: Key) -> None:
    """Raise `RequestRefused` for a path that the key may not use."""
    if key.may_use(path):
        return
    known = next((prefix for prefix in (*SHARED_PATHS, *OPEN_PATHS) if f"{path}/".startswith(f"{prefix}/")), None)
    if known is None:
        raise RequestRefused(404, NOT_FOUND, "there is nothing here; docs/reference/http.md lists what there is")
    text = f"this key may not use {known}; 'recto keys add NAME --path {known}' makes one that may"
    raise RequestRefused(403, FORBIDDEN, text)


def _model(address: PassedAddress | None, body: bytes) -> str:
    """The model that an address or a JSON body names, if any."""
    if address is not None and address.model:
        return address.model
    try:
        model = text_in(read_object(body).get("model")) if body else ""
    except InputError:  # for the upstream to refuse
        return ""
    return model.removeprefix("models/") if address else model


async def _unless_gone(work: Coroutine[Any, Any, _T], scope: Scope, receive: Receive) -> _T:
    """Await work unless the client disconnects, where the connection says so: a body may still be received."""
    connection: ClientConnection | None = scope.get(CONNECTION)
    return await (work if connection is None else unless_disconnected(work, receive, connection))


async def _break_off(scope: Scope) -> None:
    """End a response so that its client sees that it is not complete."""
    connection: ClientConnection | None = scope.get(CONNECTION)
    if connection is None:
        raise ConnectionResetError
    await connection.abort()


async def _send_on(answer: UpstreamResponse, send: Send) -> None:
    """Send an upstream's response as it arrives."""
    try:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": [*headers, *_PROTECTION]})
        async for piece in answer.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        await answer.close()
