"""Passes on requests that carry no conversation: files, batches, images, audio, moderations and the like.

They go to the key's upstream as they came and are streamed in both directions; nothing of them is stored. A key may use
the endpoints under which a provider keeps nothing. What a provider keeps under its account (files, batches, stored
responses) is shared by all keys that use the same upstream, so a key needs a path of its own for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from recto.errors import InputError, RequestRefused, UpstreamsWrong
from recto.formats import Format, format_of_client
from recto.formats.errors import FORBIDDEN, NOT_FOUND, TIMED_OUT, TOO_LARGE, UPSTREAM_FAILED
from recto.formats.message import text_in
from recto.gateway.api_keys import OPEN_PATHS, SHARED_PATHS, Key
from recto.gateway.errors import coded_response, denied, error_response
from recto.gateway.middleware.auth import BODY, KEY, UPLOAD
from recto.gateway.proxy import RequestOutcome
from recto.gateway.request import read_object
from recto.gateway.upstreams.http import HttpUpstream, Upstream, UpstreamResponse, Upstreams, UpstreamUnreachable

UPSTREAM_HEADER: Final = "x-recto-upstream"
"""Chooses the upstream where neither the key nor a model in the body does."""
_PROTECTION: Final = ((b"content-security-policy", b"default-src 'none'; sandbox"),)
"""A file of a provider is never a page of this gateway."""


class Passthrough:
    """Handles requests that carry no conversation."""

    def __init__(
        self, upstreams: Upstreams, max_bytes: int, piece_seconds: float, report: Callable[[RequestOutcome], None]
    ) -> None:
        self._upstreams = upstreams
        self._max_bytes = max_bytes
        self._piece_seconds = piece_seconds
        self._report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        request, key = Request(scope, receive), scope[KEY]
        headers = dict(request.headers)
        format, started, outcome = format_of_client(headers), time.monotonic(), "cut"
        upstream: Upstream | None = None
        began = False
        try:
            _refuse_path(scope["path"], key)
            upstream = self._upstream(headers, key, format, scope[BODY])
            if not isinstance(upstream, HttpUpstream):
                raise UpstreamsWrong(
                    f"the upstream '{upstream.name}' is a model in this process and has no {scope['path']}"
                )
            format = format if format in upstream.speaks else upstream.speaks[0]
            answer = await self._ask(request, upstream, format, headers)
            began = True
            await _send_on(answer, send)
            outcome = "ok" if answer.status < 400 else f"{answer.status // 100}xx"
        except RequestRefused as refused:
            outcome = "refused"
            if began:
                raise
            await denied(scope["path"], refused)(scope, receive, send)
        except UpstreamsWrong as error:
            outcome = "refused"
            await error_response(error, format, "")(scope, receive, send)
        except UpstreamUnreachable as error:
            outcome = "failed"
            if began:  # the response breaks off, as the upstream's did
                raise ConnectionResetError from None
            code = TIMED_OUT if error.late else UPSTREAM_FAILED
            await coded_response(format, code, str(error), "")(scope, receive, send)
        finally:
            seconds = time.monotonic() - started
            self._report(
                RequestOutcome(
                    wire="other",
                    model="",
                    upstream=upstream.name if upstream else "",
                    outcome=outcome,
                    seconds=seconds,
                    gateway_seconds=0.0,
                )
            )

    def _upstream(self, headers: Mapping[str, str], key: Key, format: Format, body: bytes) -> Upstream:
        """Choose the upstream: by the key, the header, the model in the body, or the first that speaks the format."""
        if key.upstream:
            return self._upstreams.for_model("", key)
        if name := headers.get(UPSTREAM_HEADER):
            if name not in self._upstreams.by_name:
                known = ", ".join(sorted(self._upstreams.by_name))
                raise UpstreamsWrong(f"there is no upstream '{name:.80}'; configured are: {known}")
            return self._upstreams.by_name[name]
        if model := _model_in(body):
            return self._upstreams.for_model(model, key)
        candidates = list(self._upstreams.by_name.values())
        return next((one for one in candidates if format in one.speaks), candidates[0])

    async def _ask(
        self, request: Request, upstream: HttpUpstream, format: Format, headers: Mapping[str, str]
    ) -> UpstreamResponse:
        from recto.gateway.upstreams._connections import Upload  # noqa: PLC0415  # not needed without endpoints

        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.decode("ascii")
        if not format.api.upstream_path.startswith("/v1/"):
            path = path.removeprefix("/v1")
        body: bytes | Upload = request.scope[BODY]
        if UPLOAD in request.scope:
            body = Upload(self._pieces(request.receive), request.scope[UPLOAD])
        return await upstream.send(
            request.method,
            path,
            body,
            {name: value for name, value in headers.items() if name != "content-type"},
            query=request.scope["query_string"].decode("ascii"),
            format=format,
            media_type=headers.get("content-type", "application/json"),
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


def _model_in(body: bytes) -> str:
    """The model that a JSON body names, if any."""
    try:
        return text_in(read_object(body).get("model")) if body else ""
    except InputError:  # for the upstream to refuse
        return ""


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
