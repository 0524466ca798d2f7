"""Calls every endpoint of the vendors through a gateway: `python -m tests.gateway.endpoints` writes the table.

Every row is observed: whether and how the request reached the upstream, and what the client received. An endpoint
that the gateway answers itself needs a note on how its response differs from the vendor's; one that it refuses needs a
reason.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Says, ScriptedUpstream, serving

PAGE = Path(__file__).parent.parent.parent / "docs" / "gateway.md"
TABLE = re.compile(r"(<!-- endpoints: begin -->\n).*?(<!-- endpoints: end -->)", re.DOTALL)
OPENAI, ANTHROPIC, GEMINI = "OpenAI", "Anthropic", "Gemini"
_METHODS = ["GET", "POST", "DELETE", "PUT", "PATCH"]
_FILE = {"file": ("a.jsonl", b'{"a": 1}\n')}


@dataclass(frozen=True)
class Endpoint:
    """An endpoint, and a request to it."""

    vendor: str
    method: str
    path: str
    body: dict[str, Any] | None = None
    files: dict[str, Any] | None = None
    note: str = ""
    """How the gateway's own answer differs from the vendor's."""
    why: str = ""
    """Why the gateway refuses it."""


def _chat(**more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}], **more}


def _responses(**more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "input": "Hello", **more}


def _messages(**more: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}], **more}


def _contents(**more: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], **more}


_EMBEDDED = {"model": "models/gemini-embedding-001", "content": {"parts": [{"text": "Hello"}]}}
_COUNTED = "counts the prompt that would be sent; never more than the input budget. The upstream is not asked"
_CONVERSATIONS = "conversations are kept by the gateway, and work with every upstream"
_LISTED = "the models of all upstreams, in the shape of the client's vendor"
_APPEND_ONLY = "a transcript is neither changed nor deleted by its clients"
_STORED = "stored answers are in the transcript: [the inspection API](api.md) reads them"
_STREAM = "ask for a stream: an answer is stored as it comes"
_ADDED = "items are added by a request that names the conversation"
_ADMIN = "no endpoint of a conversation, and none that is passed on"
_UNREAD = "a conversation that the gateway does not read: use `generateContent`"
_THREAD = {"context": {"session_id": "thread-1", "current_agent_name": "/root"}}
_CODEX = "[Codex's notes and history](agents.md#windows-of-codex), on the transcript"
_NO_UPSTREAM = "the gateway's own compaction; the upstream is not asked"

ENDPOINTS = (
    Endpoint(OPENAI, "POST", "/v1/chat/completions", _chat()),
    Endpoint(OPENAI, "POST", "/v1/chat/completions", _chat(stream=True)),
    Endpoint(OPENAI, "GET", "/v1/chat/completions", why=_STORED),
    Endpoint(OPENAI, "GET", "/v1/chat/completions/{id}", why=_STORED),
    Endpoint(OPENAI, "POST", "/v1/responses", _responses()),
    Endpoint(OPENAI, "POST", "/v1/responses", _responses(stream=True)),
    Endpoint(
        OPENAI,
        "POST",
        "/v1/responses",
        _responses(background=True),
        why=_STREAM,
    ),
    Endpoint(OPENAI, "POST", "/v1/responses/input_tokens", _responses(), note=_COUNTED),
    Endpoint(OPENAI, "POST", "/v1/responses/compact", _responses(), note=_NO_UPSTREAM),
    Endpoint(OPENAI, "GET", "/v1/responses/{id}"),
    Endpoint(OPENAI, "DELETE", "/v1/responses/{id}"),
    Endpoint(OPENAI, "POST", "/v1/responses/{id}/cancel", {}),
    Endpoint(OPENAI, "GET", "/v1/responses/{id}/input_items"),
    Endpoint(
        OPENAI, "POST", "/v1/conversations", {"items": [{"role": "user", "content": "Hello"}]}, note=_CONVERSATIONS
    ),
    Endpoint(OPENAI, "GET", "/v1/conversations/{conversation}", note=_CONVERSATIONS),
    Endpoint(OPENAI, "GET", "/v1/conversations/{conversation}/items", note=_CONVERSATIONS),
    Endpoint(OPENAI, "POST", "/v1/conversations/{conversation}", {"metadata": {}}, why=_APPEND_ONLY),
    Endpoint(OPENAI, "DELETE", "/v1/conversations/{conversation}", why=_APPEND_ONLY),
    Endpoint(
        OPENAI,
        "POST",
        "/v1/conversations/{conversation}/items",
        {"items": []},
        why=_ADDED,
    ),
    Endpoint(OPENAI, "GET", "/v1/models", note=_LISTED),
    Endpoint(OPENAI, "GET", "/v1/models/{model}"),
    Endpoint(OPENAI, "POST", "/v1/completions", {"model": "gpt-4o", "prompt": "Hello"}),
    Endpoint(OPENAI, "POST", "/v1/embeddings", {"model": "gpt-4o", "input": "Hello"}),
    Endpoint(OPENAI, "POST", "/v1/moderations", {"input": "Hello"}),
    Endpoint(OPENAI, "POST", "/v1/images/generations", {"prompt": "a cat"}),
    Endpoint(OPENAI, "POST", "/v1/images/edits", files=_FILE),
    Endpoint(OPENAI, "POST", "/v1/audio/speech", {"model": "gpt-4o", "input": "Hello", "voice": "alloy"}),
    Endpoint(OPENAI, "POST", "/v1/audio/transcriptions", files=_FILE),
    Endpoint(OPENAI, "POST", "/v1/files", files=_FILE),
    Endpoint(OPENAI, "GET", "/v1/files"),
    Endpoint(OPENAI, "GET", "/v1/files/{id}/content"),
    Endpoint(OPENAI, "DELETE", "/v1/files/{id}"),
    Endpoint(OPENAI, "POST", "/v1/uploads", {"filename": "a"}),
    Endpoint(OPENAI, "POST", "/v1/batches", {"input_file_id": "file-1"}),
    Endpoint(OPENAI, "GET", "/v1/batches/{id}"),
    Endpoint(OPENAI, "POST", "/v1/batches/{id}/cancel", {}),
    Endpoint(OPENAI, "POST", "/v1/vector_stores", {"name": "a"}),
    Endpoint(OPENAI, "POST", "/v1/vector_stores/{id}/search", {"query": "a"}),
    Endpoint(OPENAI, "POST", "/v1/fine_tuning/jobs", {"model": "gpt-4o"}),
    Endpoint(OPENAI, "POST", "/v1/videos", {"prompt": "a cat"}),
    Endpoint(OPENAI, "GET", "/v1/containers"),
    Endpoint(OPENAI, "POST", "/v1/alpha/history/v2/list_windows", _THREAD, note=_CODEX),
    Endpoint(OPENAI, "POST", "/v1/alpha/notes/v2/thread_hint", _THREAD, note=_CODEX),
    Endpoint(OPENAI, "GET", "/v1/assistants", why=_ADMIN),
    Endpoint(OPENAI, "GET", "/v1/organization/admin_api_keys", why=_ADMIN),
    Endpoint(ANTHROPIC, "POST", "/v1/messages", _messages()),
    Endpoint(ANTHROPIC, "POST", "/v1/messages", _messages(stream=True)),
    Endpoint(ANTHROPIC, "POST", "/v1/messages/count_tokens", _messages(), note=_COUNTED),
    Endpoint(ANTHROPIC, "POST", "/v1/messages/batches", {"requests": []}),
    Endpoint(ANTHROPIC, "GET", "/v1/messages/batches/{id}"),
    Endpoint(ANTHROPIC, "GET", "/v1/messages/batches/{id}/results"),
    Endpoint(ANTHROPIC, "POST", "/v1/messages/batches/{id}/cancel", {}),
    Endpoint(ANTHROPIC, "DELETE", "/v1/messages/batches/{id}"),
    Endpoint(ANTHROPIC, "POST", "/v1/files", files=_FILE),
    Endpoint(ANTHROPIC, "GET", "/v1/files/{id}/content"),
    Endpoint(ANTHROPIC, "GET", "/v1/models", note=_LISTED),
    Endpoint(ANTHROPIC, "GET", "/v1/models/{model}"),
    Endpoint(GEMINI, "POST", "/v1beta/models/{model}:generateContent", _contents()),
    Endpoint(GEMINI, "POST", "/v1beta/models/{model}:streamGenerateContent?alt=sse", _contents()),
    Endpoint(GEMINI, "POST", "/v1beta/models/{model}:countTokens", _contents(), note=_COUNTED),
    Endpoint(GEMINI, "POST", "/v1beta/models/{model}:embedContent", _EMBEDDED),
    Endpoint(GEMINI, "POST", "/v1beta/models/{model}:batchEmbedContents", {"requests": [_EMBEDDED]}),
    Endpoint(GEMINI, "POST", "/v1beta/models/{model}:predict", {"instances": []}),
    Endpoint(GEMINI, "POST", "/v1beta/models/{model}:predictLongRunning", {"instances": []}),
    Endpoint(GEMINI, "GET", "/v1beta/models/{model}/operations/{id}"),
    Endpoint(GEMINI, "GET", "/v1beta/models", note=_LISTED),
    Endpoint(GEMINI, "GET", "/v1beta/models/{model}"),
    Endpoint(GEMINI, "POST", "/v1beta/models/{model}:batchGenerateContent", {"batch": {}}),
    Endpoint(GEMINI, "GET", "/v1beta/batches/{id}"),
    Endpoint(GEMINI, "POST", "/v1beta/batches/{id}:cancel", {}),
    Endpoint(GEMINI, "POST", "/upload/v1beta/files", files=_FILE),
    Endpoint(GEMINI, "GET", "/v1beta/files"),
    Endpoint(GEMINI, "GET", "/v1beta/files/{id}:download?alt=media"),
    Endpoint(GEMINI, "DELETE", "/v1beta/files/{id}"),
    Endpoint(GEMINI, "POST", "/v1beta/cachedContents", {"model": "models/gemini-2.5-pro"}),
    Endpoint(GEMINI, "PATCH", "/v1beta/cachedContents/{id}", {"ttl": "60s"}),
    Endpoint(GEMINI, "POST", "/v1beta/fileSearchStores", {"displayName": "a"}),
    Endpoint(GEMINI, "GET", "/v1beta/tunedModels"),
    Endpoint(GEMINI, "POST", "/v1beta/interactions", {"input": "Hello"}, why=_UNREAD),
    Endpoint(GEMINI, "POST", "/v1beta/auth_tokens", {}, why=_ADMIN),
)
_MODELS = ("/v1/models", "/v1beta/models")
GATEWAYS_OWN = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings")
"""Paths whose upstream request is not the client's: it has the prompt of a session, or the gateway makes it."""


@dataclass
class Provider:
    """An upstream that answers every path and records its requests."""

    scripted: ScriptedUpstream = field(
        default_factory=lambda: ScriptedUpstream(lambda request: Says("Hello yourself."))
    )
    reached: list[tuple[str, str, bytes]] = field(default_factory=list)

    def app(self) -> Any:
        rest = Route("/{path:path}", self._anything, methods=_METHODS)
        inner = Starlette(routes=[*self.scripted.routes(), rest])

        async def app(scope: Any, receive: Any, send: Any) -> None:
            self.reached.append((scope["method"], scope["path"], b""))
            await inner(scope, receive, send)

        return app

    async def _anything(self, request: Request) -> Response:
        self.reached[-1] = (request.method, request.url.path, await request.body())
        return JSONResponse({"id": "vendor-1", "object": "thing"}, headers={"x-request-id": "req_1"})


@dataclass(frozen=True)
class Seen:
    """The response to a request, and what reached the upstream."""

    status: int
    reached: tuple[tuple[str, str, bytes], ...]
    body: bytes
    session: bool
    error: str


@contextmanager
def running_gateway(folder: Path) -> Iterator[tuple[Running, Provider]]:
    provider = Provider()
    with serving(provider.app()) as url, gateway(folder, url, speaks=("chat", "responses", "messages", "gemini")) as gw:
        yield gw, provider


def ask(gw: Running, provider: Provider, endpoint: Endpoint, path: str, secret: str) -> Seen:
    headers = {"authorization": f"Bearer {secret}"}
    if endpoint.vendor == ANTHROPIC:
        headers = {"x-api-key": secret, "anthropic-version": "2023-06-01"}
    if endpoint.vendor == GEMINI:
        headers = {"x-goog-api-key": secret}
    provider.reached.clear()
    answer = httpx2.request(
        endpoint.method, gw.url + path, headers=headers, json=endpoint.body, files=endpoint.files, timeout=60
    )
    error = ""
    if answer.status_code >= 400:
        detail = answer.json()["error"]
        error = detail["status"] if endpoint.vendor == GEMINI else detail.get("code") or detail["type"]
    reached = tuple(
        reached_request
        for reached_request in provider.reached
        if reached_request[1] not in _MODELS or path.partition("?")[0].endswith("/models")
    )
    return Seen(answer.status_code, reached, answer.content, "x-recto-session-id" in answer.headers, error)


def row(gw: Running, provider: Provider, endpoint: Endpoint, names: dict[str, str]) -> tuple[str, str, str, str]:
    """Call an endpoint with a plain key and with a key made for its path, in both spellings of the path."""
    path = endpoint.path.format(**names)
    plain = ask(gw, provider, endpoint, path, gw.secret)
    needs_path = plain.status == 403
    secret = gw.key(paths=("/v1", "/v1beta")) if needs_path else gw.secret
    seen = ask(gw, provider, endpoint, path, secret)
    again = (
        path.removeprefix("/v1") if endpoint.vendor != GEMINI else f"{path}{'&' if '?' in path else '?'}key={secret}"
    )
    spelt = ask(gw, provider, endpoint, again, secret)
    assert (spelt.status, spelt.error, len(spelt.reached)) == (seen.status, seen.error, len(seen.reached)), path
    shown = f"`{endpoint.method} {endpoint.path}`"
    if endpoint.body and (flag := next((name for name in ("stream", "background") if name in endpoint.body), "")):
        shown += f" with `{flag}`"
    result, how = _result(endpoint, path, seen)
    if needs_path:
        (needed,) = re.findall(r"--path (\S+)'", json.loads(plain.body)["error"]["message"])
        made_with = "that path" if path.startswith(needed) else f"`{needed}`"
        how += f"; needs a key made with {made_with} (403 otherwise)"
    return endpoint.vendor, shown, result, how


def _result(endpoint: Endpoint, path: str, seen: Seen) -> tuple[str, str]:
    assert bool(endpoint.why) == (seen.status >= 400), f"{endpoint}: {seen}"
    assert bool(endpoint.note) == (seen.status < 400 and not reached_upstream(seen, path)), f"{endpoint}: {seen}"
    if seen.status >= 400:
        assert not reached_upstream(seen, path), f"{endpoint}: {seen}"
        return "refused", f"{seen.status} `{seen.error}`: {endpoint.why}"
    if endpoint.note:
        return "differs", endpoint.note
    method, reached_path, body = seen.reached[-1]
    assert (method, reached_path) == (endpoint.method, path.partition("?")[0])
    if seen.session:
        return "worked", "the upstream gets the prompt of a session that fits its window; all else passes as it came"
    if path in GATEWAYS_OWN:
        return "worked", "from the upstream that has the model, or the embedder in this process"
    assert endpoint.body is None or json.loads(body) == endpoint.body
    assert endpoint.files is None or b'{"a": 1}' in body
    assert seen.body == b'{"id":"vendor-1","object":"thing"}'
    return "worked", "passes as it came, in both directions"


def reached_upstream(seen: Seen, path: str) -> bool:
    """Whether the client's request reached the upstream."""
    return any(reached_path == path.partition("?")[0] for _, reached_path, _ in seen.reached) and path not in _MODELS


def table(folder: Path) -> str:
    """Call every endpoint and return the table."""
    with running_gateway(folder) as (gw, provider):
        headers = {"authorization": f"Bearer {gw.secret}"}
        opened = httpx2.post(f"{gw.url}/v1/conversations", headers=headers, json={}).json()["id"]
        names = {"id": "thing-1", "model": "gpt-4o", "conversation": opened}
        rows = [row(gw, provider, endpoint, names) for endpoint in ENDPOINTS]
    lines = ["| vendor | endpoint | result | what was seen |", "|---|---|---|---|"]
    return "\n".join((*lines, *(f"| {' | '.join(cells)} |" for cells in rows))) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = table(Path(folder))
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLE.sub(lambda found: found[1] + made + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
