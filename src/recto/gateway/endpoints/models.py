"""The models and embeddings endpoints."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from recto.engine.async_session import on_a_thread
from recto.errors import EmbedderFailed, InputError, UpstreamsWrong
from recto.formats import Format, format_of_client
from recto.gateway.api_keys import Key
from recto.gateway.request import read_object
from recto.gateway.responses import BufferedResponse, read_body
from recto.gateway.session_pool import SessionPool
from recto.gateway.upstreams.http import HttpUpstream, Upstream, Upstreams, UpstreamUnreachable
from recto.recall.index.rows import BoundedCache
from recto.recall.indexer import Indexer
from recto.tokens.limits import models_in_list

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

_LIST_SECONDS: Final = 10.0
_LOOK_UP_SECONDS: Final = 3.0
"""How long a request waits for the list when its model is not known."""
_LIST_LIFETIME: Final = 3600.0
_MAX_MODELS: Final = 1_000
"""Models that are remembered as looked up; clients choose their names."""
_MAX_LIST_BYTES: Final = 8 * 1024 * 1024
_MAX_VECTOR_BYTES: Final = 64 * 1024 * 1024
_MODELS: Final = "models/"
_MAX_TEXTS: Final = 256
"""Texts per request that the embedder in this process accepts."""


class ModelsApi:
    """Lists the models of all upstreams, and embeds texts."""

    def __init__(self, upstreams: Upstreams, sessions: SessionPool, indexer: Indexer) -> None:
        self._upstreams = upstreams
        self._sessions = sessions
        self._indexer = indexer
        self._looked_up: BoundedCache[float] = BoundedCache(_MAX_MODELS)
        """By upstream and model: when its window may be looked up again."""
        self._lists: dict[str, tuple[float, asyncio.Task[Any]]] = {}
        """By upstream: when its list was requested, and the request."""

    async def look_up(self, upstream: Upstream, model: str, headers: Mapping[str, str]) -> None:
        """Find the window of a model that is not known here in its upstream's list, which is requested once an hour."""
        name, now = (upstream.name, model), time.monotonic()
        if not isinstance(upstream, HttpUpstream) or now < (self._looked_up.get(name) or 0):
            return
        if not await on_a_thread(self._sessions.knows, *name):
            await self._listed(upstream, headers)
            if upstream.name not in self._lists:  # the list of the start did not come
                await self._listed(upstream, headers)
        known = await on_a_thread(self._sessions.knows, *name)
        self._looked_up.put(name, math.inf if known else now + _LIST_LIFETIME)

    async def _listed(self, upstream: HttpUpstream, headers: Mapping[str, str]) -> None:
        """Wait for the list of an upstream: the one that was requested, if it is not too old."""
        at, task = self._lists.get(upstream.name, (0.0, None))
        now = time.monotonic()
        if task is None or now >= at + _LIST_LIFETIME:
            task = asyncio.ensure_future(self._models_of(upstream, headers))
            self._lists[upstream.name] = now, task
        await asyncio.wait({task}, timeout=_LOOK_UP_SECONDS)

    def ask_at_start(self) -> None:
        """Request the list of each upstream that has a key of its own, in the background.

        Nothing waits for it, and nothing fails with it: a list that did not come is requested again at first use.
        """
        for name, upstream in self._upstreams.by_name.items():
            if isinstance(upstream, HttpUpstream) and upstream.auth == "own":
                task = asyncio.ensure_future(self._models_of(upstream, {}))
                self._lists[name] = time.monotonic(), task
                task.add_done_callback(partial(self._forget_empty, name))

    async def close(self) -> None:
        """Cancel requests for lists."""
        tasks = [task for _, task in self._lists.values() if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _forget_empty(self, name: str, task: asyncio.Task[list[dict[str, Any]]]) -> None:
        """Forget a list that named no models but those of the settings."""
        known = {pattern for pattern, owner in self._upstreams.patterns if owner == name}
        if task.cancelled() or task.exception() or all(one["id"] in known for one in task.result()):
            self._lists.pop(name, None)

    async def models(self, headers: Mapping[str, str], key: Key, format: Format | None = None) -> dict[str, Any]:
        """List the models that a key can use, in a format; by default in the one that the headers show."""
        names = [key.upstream] if key.upstream else list(self._upstreams.by_name)
        upstreams = [upstream for name in names if (upstream := self._upstreams.named(name))]
        pending = [self._models_of(upstream, headers) for upstream in upstreams]
        found = {str(one["id"]): one for many in await asyncio.gather(*pending) for one in many}
        return (format or format_of_client(headers)).api.model_list(list(found.values()))

    async def _models_of(self, upstream: Upstream, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        name = upstream.name
        listed = [pattern for pattern, owner in self._upstreams.patterns if owner == name and "*" not in pattern]
        found = [{"id": model, "owned_by": name} for model in listed]
        if not isinstance(upstream, HttpUpstream):
            return found or [{"id": upstream.name, "owned_by": "recto"}]
        format = upstream.speaks[0]
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                answer = await upstream.send("GET", format.api.upstream_models_path, b"", headers, format=format)
                body = json.loads(await read_body(answer, _MAX_LIST_BYTES))
        except (UpstreamUnreachable, TimeoutError, ValueError, RecursionError):
            return found
        if answer.status != 200 or not isinstance(body, dict):
            return found
        for model, limits in models_in_list(body):
            self._sessions.limits.set_listed(name, model.removeprefix(_MODELS), limits)
        return found + _entries_in(body)

    async def embeddings(self, headers: Mapping[str, str], key: Key, body: bytes) -> BufferedResponse:
        """Embed texts with the upstream that has the model, or with the embedder in this process."""
        fields = read_object(body)
        upstream = self._upstreams.for_model(str(fields.get("model", "")), key)
        if isinstance(upstream, HttpUpstream):
            answer = await upstream.send("POST", "/embeddings", body, headers)
            try:
                found = await read_body(answer, _MAX_VECTOR_BYTES)
            finally:
                await answer.close()
            return BufferedResponse(answer.status, found, [one for one in answer.headers if one[0] != "content-length"])
        result = await on_a_thread(self._embedded, fields)
        return BufferedResponse(200, json.dumps(result).encode(), [("content-type", "application/json")])

    def _embedded(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        embedder = self._indexer.embedder
        if embedder is None:
            raise UpstreamsWrong("there is no embedder here: see the setting recall.embedder")
        input = fields.get("input")
        texts = [input] if isinstance(input, str) else input
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise InputError("'input' is a text or a list of texts")
        if len(texts) > _MAX_TEXTS:
            raise InputError(f"at most {_MAX_TEXTS} texts at once")
        try:
            vectors = embedder.documents(texts)
        except EmbedderFailed as error:
            raise UpstreamsWrong(str(error)) from None
        packed = fields.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": place, "embedding": _vector(vectors, place, packed)}
            for place in range(len(texts))
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "data": data, "model": embedder.name, "usage": usage}


def _entries_in(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a model list, with their ids: Gemini has names under `models/` instead."""
    listed = body.get("data", body.get("models"))
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    named = [{"id": one.get("name"), **one} for one in entries]
    return [{**one, "id": one["id"].removeprefix(_MODELS)} for one in named if isinstance(one["id"], str)]


def _vector(vectors: Matrix, place: int, packed: bool) -> str | list[float]:
    one = vectors[place]
    return base64.b64encode(one.astype("<f4").tobytes()).decode() if packed else [float(value) for value in one]
