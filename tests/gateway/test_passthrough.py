"""Requests without a conversation are streamed to the key's upstream and back, if the key allows their path."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest
from gateways import Running, gateway
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from upstream import Says, ScriptedUpstream, running, serving

SHARED = ("/v1/files", "/v1/batches", "/v1/responses", "/v1/messages/batches")


@dataclass
class Vendor:
    """A provider that records its requests, and responds in the shapes of the vendors."""

    name: str = "main"
    url: str = ""
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    received: int = 0
    first_piece: threading.Event = field(default_factory=threading.Event)
    half_sent: threading.Event = field(default_factory=threading.Event)
    broke_off: threading.Event = field(default_factory=threading.Event)

    async def answer(self, request: Request) -> Response:
        pieces = []
        try:
            async for piece in request.stream():
                self.received += len(piece)
                self.first_piece.set()
                pieces.append(piece)
        except ClientDisconnect:
            self.broke_off.set()
            raise
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if path in ("/v1/models", "/v1beta/models"):  # the gateway requests the list when it starts
            return JSONResponse({"object": "list", "data": []})
        self.seen.append((request.method, path, dict(request.headers), b"".join(pieces)))
        if path.endswith("/content") or path.endswith("/speech"):
            return StreamingResponse(self._slowly(), headers={"content-type": "application/octet-stream"})
        if request.headers.get("x-goog-upload-command") == "start":
            where = f"{self.url}/upload/v1beta/files?upload_id=a%20b&upload_protocol=resumable"
            return Response(headers={"x-goog-upload-url": where, "x-goog-upload-status": "active"})
        if "/missing" in path:
            return JSONResponse(
                {"error": {"message": "no such file", "code": "nothing"}}, 404, {"x-request-id": "req_9"}
            )
        fields = {"id": f"{self.name}-1", "object": "thing", "model": "m", "results": [], "data": [], "deleted": True}
        return JSONResponse(
            fields | {"has_more": False, "created": 1, "type": "message_batch"}, headers={"x-request-id": "req_1"}
        )

    async def _slowly(self) -> AsyncIterator[bytes]:
        yield b"half "
        while not self.half_sent.is_set():
            yield b""
        yield b"and half"


@contextmanager
def vendor_gateway(tmp_path: Path, **more: object) -> Iterator[tuple[Running, Vendor]]:
    vendor = Vendor()
    with serving(
        Starlette(routes=[Route("/{path:path}", vendor.answer, methods=["GET", "POST", "DELETE", "PUT"])])
    ) as url:
        vendor.url = url
        with gateway(tmp_path, url, **more) as gw:
            yield gw, vendor


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Vendor, str]]:
    with vendor_gateway(tmp_path_factory.mktemp("passed")) as (gw, vendor):
        yield gw, vendor, gw.key(paths=SHARED)


def test_openais_own_client_reaches_endpoints_without_a_conversation(both):
    gw, vendor, secret = both
    vendor.seen.clear()
    with openai.OpenAI(base_url=f"{gw.url}/v1", api_key=gw.secret, max_retries=0) as client:
        client.models.retrieve("gpt-4o")
        client.completions.create(model="m", prompt="once")
        client.moderations.create(input="is this fine?")
        client.images.generate(prompt="a cat")
    with openai.OpenAI(base_url=f"{gw.url}/v1", api_key=secret, max_retries=0) as client:
        assert client.files.create(file=("a.jsonl", b'{"a": 1}\n'), purpose="batch").id == "main-1"
        client.batches.create(completion_window="24h", endpoint="/v1/responses", input_file_id="file-1")
        client.responses.retrieve("resp_1")
        client.responses.delete("resp_1")
    assert [(method, path) for method, path, _, _ in vendor.seen] == [
        ("GET", "/v1/models/gpt-4o"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/moderations"),
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/files"),
        ("POST", "/v1/batches"),
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
    ]
    for _, _, headers, _ in vendor.seen:
        assert headers["authorization"] == "Bearer sk-upstream"
        assert not any("rk-" in value or name.startswith("x-recto") for name, value in headers.items())
    assert b'{"a": 1}\n' in vendor.seen[4][3]
    assert vendor.seen[4][2]["content-type"].startswith("multipart/form-data; boundary=")


def test_anthropics_own_client_reaches_its_batches(tmp_path):
    with vendor_gateway(tmp_path, speaks=("messages",)) as (gw, vendor):
        with anthropic.Anthropic(
            base_url=gw.url, api_key=gw.key(paths=("/v1/messages/batches",)), max_retries=0
        ) as client:
            client.messages.batches.retrieve("msgbatch_1")
        method, path, headers, _ = vendor.seen[-1]
    assert (method, path, headers["x-api-key"]) == ("GET", "/v1/messages/batches/msgbatch_1", "sk-upstream")


def test_resources_stored_by_a_provider_need_a_key_with_their_path(both):
    gw, vendor, secret = both
    before = len(vendor.seen)
    bearer = {"authorization": f"Bearer {gw.secret}"}
    for method, path in (("GET", "/v1/files"), ("GET", "/v1/files/f-1/content"), ("GET", "/v1/responses/resp_1")):
        refused = httpx2.request(method, gw.url + path, headers=bearer)
        assert refused.status_code == 403
        assert "recto keys add" in refused.json()["error"]["message"]
    assert httpx2.get(f"{gw.url}/v1/filesystem", headers={"authorization": f"Bearer {secret}"}).status_code == 404
    assert httpx2.get(f"{gw.url}/v1/organization/admin_api_keys", headers=bearer).status_code == 404
    assert httpx2.get(f"{gw.url}/v1/files").status_code == 401
    only = {"authorization": f"Bearer {secret}"}  # a key with paths has no others
    assert httpx2.post(f"{gw.url}/v1/moderations", json={}, headers=only).status_code == 403
    assert httpx2.get(f"{gw.url}/v1/chat/completions", headers=bearer).status_code == 405, "the gateway's own path"
    assert len(vendor.seen) == before, "none of these requests reached the upstream"


def test_errors_and_headers_of_the_upstream_are_returned_unchanged(both):
    gw, _, secret = both
    answer = httpx2.get(f"{gw.url}/v1/files/missing?purpose=a%20b", headers={"authorization": f"Bearer {secret}"})
    assert answer.status_code == 404
    assert answer.json() == {"error": {"message": "no such file", "code": "nothing"}}
    assert answer.headers["x-request-id"] == "req_9"
    assert "sandbox" in answer.headers["content-security-policy"], (
        "a response is never rendered as a page of the gateway"
    )


def test_an_upload_is_passed_on_while_it_arrives(both):
    gw, vendor, secret = both
    vendor.first_piece.clear()

    def body() -> Iterator[bytes]:
        yield b"a" * 70_000
        assert vendor.first_piece.wait(20), "the first piece has to arrive before the second is sent"
        yield b"b" * 70_000

    headers = {"authorization": f"Bearer {secret}", "content-type": "application/octet-stream"}
    assert httpx2.post(f"{gw.url}/v1/files", content=body(), headers=headers).status_code == 200
    assert vendor.seen[-1][3] == b"a" * 70_000 + b"b" * 70_000
    sized = headers | {"content-length": "140000"}
    assert httpx2.post(f"{gw.url}/v1/files", content=body(), headers=sized).status_code == 200
    assert vendor.seen[-1][2]["content-length"] == "140000"


def test_a_download_is_passed_on_while_it_arrives(both):
    gw, vendor, secret = both
    vendor.half_sent.clear()
    with httpx2.stream(
        "GET", f"{gw.url}/v1/files/f-1/content", headers={"authorization": f"Bearer {secret}"}
    ) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces) == b"half "
        vendor.half_sent.set()
        assert b"".join(pieces) == b"and half"


def test_an_upload_that_is_too_large_is_aborted_at_the_upstream_too(tmp_path):
    with vendor_gateway(tmp_path, gateway={"upload_bytes": 100_000}) as (gw, vendor):
        headers = {"authorization": f"Bearer {gw.key(paths=('/v1/files',))}", "content-type": "text/plain"}
        answer = httpx2.post(f"{gw.url}/v1/files", content=iter([b"a" * 60_000] * 4), headers=headers)
        assert answer.status_code == 413
        assert "upload_bytes" in answer.json()["error"]["message"]
        assert vendor.broke_off.wait(20)
        assert not vendor.seen, "half a file is no file"
        packed = headers | {"content-encoding": "gzip"}
        assert httpx2.post(f"{gw.url}/v1/files", content=b"a", headers=packed).status_code == 415


def test_the_key_the_header_the_model_or_the_format_selects_the_upstream(tmp_path):
    first, second = Vendor("first"), Vendor("second")
    routes = [[Route("/{path:path}", vendor.answer, methods=["GET", "POST"])] for vendor in (first, second)]
    with serving(Starlette(routes=routes[0])) as first_url, serving(Starlette(routes=routes[1])) as second_url:
        upstreams = {
            "first": {"url": f"{first_url}/v1", "speaks": ["chat"], "models": ["gpt-*"]},
            "second": {"url": f"{second_url}/base", "speaks": ["messages"], "models": ["claude-*"]},
        }
        with gateway(tmp_path, gateway={"upstreams": upstreams}) as gw:
            secret = gw.key(paths=("/v1",))

            def call_upstream(secret: str, body: dict | None = None, **headers: str) -> tuple[str, str]:
                all_headers = {"authorization": f"Bearer {secret}"} | headers
                answer = httpx2.post(f"{gw.url}/v1/files", json=body or {}, headers=all_headers)
                assert answer.status_code == 200, answer.text
                name = answer.json()["id"].removesuffix("-1")
                return name, (first if name == "first" else second).seen[-1][1]

            assert call_upstream(secret) == ("first", "/v1/files")
            assert call_upstream(secret, **{"anthropic-version": "2023-06-01"}) == ("second", "/base/v1/files")
            assert call_upstream(secret, {"model": "claude-x"})[0] == "second"
            assert call_upstream(secret, **{"x-recto-upstream": "second"})[0] == "second"
            assert call_upstream(gw.key(paths=("/v1",), upstream="second"))[0] == "second"
            bound = {
                "authorization": f"Bearer {gw.key(paths=('/v1',), upstream='second')}",
                "x-recto-upstream": "first",
            }
            httpx2.post(f"{gw.url}/v1/files", json={}, headers=bound)
            assert len(first.seen) == 1, "a key's upstream is the only one it may use"
            wrong = {"authorization": f"Bearer {gw.key(paths=('/v1',))}", "x-recto-upstream": "third"}
            assert httpx2.post(f"{gw.url}/v1/files", json={}, headers=wrong).status_code == 404


GEMINIS = (
    "/v1beta/files",
    "/v1beta/cachedContents",
    "/v1beta/batches",
    "/v1beta/operations",
    "/v1beta/tunedModels",
    "/v1beta/models",
)
EMBED = {"model": "models/gemini-embedding-001", "content": {"parts": [{"text": "words"}]}}


@pytest.fixture(scope="module")
def gemini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Vendor, str]]:
    with vendor_gateway(tmp_path_factory.mktemp("gemini"), speaks=("gemini",)) as (gw, vendor):
        yield gw, vendor, gw.key(paths=GEMINIS)


@pytest.mark.parametrize("place", ["header", "bearer", "query"])
def test_requests_without_a_conversation_reach_gemini_with_the_upstreams_own_key(gemini, place):
    gw, vendor, secret = gemini
    vendor.seen.clear()
    requests = [
        (gw.secret, "GET", "/v1beta/models/gemini-2.5-pro", None),
        (gw.secret, "POST", "/v1beta/models/gemini-embedding-001:embedContent", EMBED),
        (gw.secret, "POST", "/v1beta/models/gemini-embedding-001:batchEmbedContents", {"requests": [EMBED]}),
        (gw.secret, "POST", "/v1/models/gemini-embedding-001:embedContent", EMBED),
        (gw.secret, "POST", "/v1alpha/models/gemini-embedding-001:embedContent", EMBED),
        (secret, "GET", "/v1beta/files?pageSize=2&pageToken=a%20b", None),
        (secret, "GET", "/v1beta/files/f-1", None),
        (secret, "DELETE", "/v1beta/files/f-1", None),
        (secret, "GET", "/v1beta/files/f-1:download?alt=media", None),
        (secret, "GET", "/download/v1beta/files/f-1:download?alt=media", None),
        (secret, "POST", "/v1beta/cachedContents", {"model": "models/gemini-2.5-pro", "contents": []}),
        (secret, "GET", "/v1beta/cachedContents/c-1", None),
        (secret, "POST", "/v1beta/models/gemini-2.5-pro:batchGenerateContent", {"batch": {}}),
        (secret, "POST", "/v1beta/batches/b-1:cancel", {}),
        (secret, "POST", "/v1beta/models/veo-3:predictLongRunning", {"instances": []}),
        (secret, "GET", "/v1beta/models/veo-3/operations/o-1", None),
    ]
    for key, method, path, body in requests:
        headers = {"header": {"x-goog-api-key": key}, "bearer": {"authorization": f"Bearer {key}"}}.get(place, {})
        query = f"{'&' if '?' in path else '?'}key={key}" if place == "query" else ""
        answer = httpx2.request(method, f"{gw.url}{path}{query}", json=body, headers=headers)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        assert answer.json()["id"] == "main-1"
    assert [(method, path) for method, path, _, _ in vendor.seen] == [(method, path) for _, method, path, _ in requests]
    for (_, _, headers, sent), (_, _, _, body) in zip(vendor.seen, requests, strict=True):
        assert headers["x-goog-api-key"] == "sk-upstream"
        assert "authorization" not in headers
        assert not any("rk-" in value or name.startswith("x-recto") for name, value in headers.items())
        assert json.loads(sent or b"null") == body


def test_resources_stored_by_gemini_need_a_key_with_their_path_in_every_spelling(gemini):
    gw, vendor, secret = gemini
    vendor.seen.clear()
    plain, only = {"x-goog-api-key": gw.secret}, {"x-goog-api-key": gw.key(paths=("/v1beta/files",))}
    for method, path in (
        ("GET", "/v1beta/files"),
        ("POST", "/upload/v1beta/files"),
        ("GET", "/download/v1beta/files/f-1:download"),
        ("GET", "/v1alpha/cachedContents"),
        ("POST", "/v1beta/models/m:batchGenerateContent"),
        ("POST", "/v1/models/m:batchGenerateContent"),
        ("POST", "/v1beta/models/m:asyncBatchEmbedContent"),
        ("GET", "/v1beta/models/m/operations/o-1"),
        ("GET", "/v1beta/tunedModels"),
    ):
        refused = httpx2.request(method, gw.url + path, headers=plain)
        assert refused.status_code == 403, path
        assert "recto keys add" in refused.json()["error"]["message"]
        assert refused.json()["error"]["status"] == "PERMISSION_DENIED"
        allowed = httpx2.request(method, gw.url + path, headers=only).status_code
        assert allowed == (200 if "files" in path else 403), path
    assert len(vendor.seen) == 3, "the others did not reach the upstream"
    for path in (
        "/v1beta/auth_tokens",
        "/v1beta/interactions",
        "/v1beta/models/m:generateAnswer",
        "/v1beta/models/m:embedContent/",
        "/upload/v1beta/models/m:embedContent",
        "/v1beta/openai/chat/completions",
    ):
        assert httpx2.post(gw.url + path, json={}, headers=plain).status_code == 404, path
        assert httpx2.post(gw.url + path, json={}, headers={"x-goog-api-key": secret}).status_code == 404, path
    assert httpx2.get(f"{gw.url}/v1beta/files").status_code == 401
    assert httpx2.get(f"{gw.url}/v1beta/models/m:generateContent", headers=plain).status_code == 405
    assert len(vendor.seen) == 3


def test_a_key_in_the_query_is_never_passed_on_or_logged(tmp_path, capfd):
    with vendor_gateway(tmp_path, speaks=("gemini", "chat"), gateway={"access_log": "text"}) as (gw, vendor):
        for path in (
            "/v1beta/models/m?key={key}",
            "/v1beta/models/m?a=1&k%65y={key}&b=2",
            "/v1beta/models/m?key=AIza-of-the-client",
            "/v1/models/m?key={key}",
            "/v1/completions?key={key}",
        ):
            address = gw.url + path.format(key=gw.secret)
            body = None if "models" in path else {"model": "m"}
            answer = httpx2.request("POST" if body else "GET", address, json=body, headers={"x-api-key": gw.secret})
            assert answer.status_code == 200, answer.text
        listed = httpx2.get(f"{gw.url}/v1beta/models?key={gw.secret}")
        assert (listed.status_code, listed.json()) == (200, {"models": []})
        assert [path for _, path, _, _ in vendor.seen] == [
            "/v1beta/models/m",
            "/v1beta/models/m?a=1&b=2",
            "/v1beta/models/m",
            "/v1/models/m",
            "/v1/completions",
        ]
        assert not any("AIza" in str(headers) or "rk-" in str(headers) for _, _, headers, _ in vendor.seen)
        other_key = {"x-recto-key": gw.key()}
        assert httpx2.get(f"{gw.url}/v1beta/models/m?key={gw.secret}", headers=other_key).status_code == 400
        broken = httpx2.get(f"{gw.url}/v1beta/models/m?key=a%0d%0ab", headers={"x-api-key": gw.secret})
        assert broken.status_code == 400
    logged = "".join(capfd.readouterr())
    assert "path=/v1beta/models/m" in logged
    assert "AIza" not in logged
    assert gw.secret not in logged


def test_a_file_for_gemini_is_uploaded_through_the_gateway_piece_by_piece(gemini):
    gw, vendor, secret = gemini
    vendor.seen.clear()
    vendor.first_piece.clear()
    head = {"x-goog-api-key": secret, "x-goog-upload-protocol": "resumable"}
    begun = httpx2.post(
        f"{gw.url}/upload/v1beta/files",
        json={"file": {"display_name": "a"}},
        headers=head | {"x-goog-upload-command": "start", "x-goog-upload-header-content-length": "140000"},
    )
    where = begun.headers["x-goog-upload-url"]
    assert where == f"{gw.url}/upload/v1beta/files?upload_id=a%20b&upload_protocol=resumable"
    vendor.first_piece.clear()

    def body() -> Iterator[bytes]:
        yield b"a" * 70_000
        assert vendor.first_piece.wait(20), "the first piece has to arrive before the second is sent"
        yield b"b" * 70_000

    sent = httpx2.post(where, content=body(), headers=head | {"x-goog-upload-command": "upload, finalize"})
    assert sent.status_code == 200, sent.text
    (_, _, started, _), (_, path, headers, content) = vendor.seen
    assert started["x-goog-upload-header-content-length"] == "140000"
    assert path == "/upload/v1beta/files?upload_id=a%20b&upload_protocol=resumable"
    assert headers["x-goog-upload-command"] == "upload, finalize"
    assert headers["content-type"] == "application/octet-stream"
    assert content == b"a" * 70_000 + b"b" * 70_000
    vendor.half_sent.clear()
    with httpx2.stream("GET", f"{gw.url}/v1beta/files/f/content", headers={"x-goog-api-key": secret}) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces) == b"half "
        vendor.half_sent.set()
        assert b"".join(pieces) == b"and half"


def test_the_url_of_an_upload_is_reachable_by_the_client(tmp_path):
    vendor = Vendor()
    routes = [Route("/{path:path}", vendor.answer, methods=["GET", "POST"])]
    start = {"x-goog-upload-command": "start", "content-type": "application/json"}
    for name in "ab":
        (tmp_path / name).mkdir()
    with serving(Starlette(routes=routes)) as url:
        vendor.url = url
        options = {"trusted_proxies": ["127.0.0.1"], "hosts": ["llm.example.com"]}
        with gateway(tmp_path / "a", url, speaks=("gemini",), gateway=options) as gw:
            head = start | {"x-goog-api-key": gw.key(paths=("/v1beta/files",))}
            proxied = {"host": "llm.example.com", "x-forwarded-proto": "https"}
            answer = httpx2.post(f"{gw.url}/upload/v1beta/files", content=b"{}", headers=head | proxied)
            assert answer.headers["x-goog-upload-url"].startswith("https://llm.example.com/upload/v1beta/files?")
            vendor.url = "https://elsewhere.example.com"
            answer = httpx2.post(f"{gw.url}/upload/v1beta/files", content=b"{}", headers=head)
            assert answer.headers["x-goog-upload-url"].startswith(vendor.url), "the gateway does not serve that URL"
        vendor.url = url
        with gateway(tmp_path / "b", gateway={"local": True, "targets": [url]}) as gw:
            head = start | {"x-goog-api-key": "AIza-own", "x-recto-key": gw.key(paths=("/v1beta",))}
            answer = httpx2.post(f"{gw.url}/to/{url}/upload/v1beta/files", content=b"{}", headers=head)
            assert answer.headers["x-goog-upload-url"].startswith(f"{gw.url}/to/{url}/upload/v1beta/files?")
            assert vendor.seen[-1][2]["x-goog-api-key"] == "AIza-own"
            httpx2.get(
                f"{gw.url}/to/{url}/v1beta/cachedContents?key=AIza-other", headers={"x-recto-key": head["x-recto-key"]}
            )
            assert (vendor.seen[-1][1], vendor.seen[-1][2]["x-goog-api-key"]) == (
                "/v1beta/cachedContents",
                "AIza-other",
            )


def test_gemini_paths_go_to_the_upstream_that_has_the_model_and_never_to_another_format(tmp_path):
    first, second = Vendor("first"), Vendor("second")
    routes = [[Route("/{path:path}", vendor.answer, methods=["GET", "POST"])] for vendor in (first, second)]
    with serving(Starlette(routes=routes[0])) as first_url, serving(Starlette(routes=routes[1])) as second_url:
        upstreams = {
            "first": {"url": f"{first_url}/v1", "speaks": ["chat"], "models": ["gpt-*"]},
            "second": {"url": f"{second_url}/base/v1beta", "speaks": ["gemini"], "models": ["gemini-*"]},
        }
        with gateway(tmp_path, gateway={"upstreams": upstreams}) as gw:
            head = {"x-goog-api-key": gw.key(paths=("/v1beta", "/v1"))}
            for path, body in (
                ("/v1beta/models/gemini-embedding-001:embedContent", {}),
                ("/v1/models/gemini-embedding-001:embedContent", {}),
                ("/v1beta/cachedContents", {"model": "models/gemini-2.5-pro"}),
                ("/upload/v1beta/files", {}),
            ):
                answer = httpx2.post(gw.url + path, json=body, headers=head)
                assert answer.json()["id"] == "second-1", path
                assert second.seen[-1][1] == f"/base{path}"
            client = head | {"x-goog-api-client": "google-genai-sdk/1.0"}
            assert httpx2.get(f"{gw.url}/v1/models/gemini-2.5-pro", headers=client).json()["id"] == "second-1"
            assert second.seen[-1][1] == "/base/v1/models/gemini-2.5-pro"
            no_gemini = httpx2.get(f"{gw.url}/v1beta/models/gpt-4o", headers=head)
            assert (no_gemini.status_code, no_gemini.json()["error"]["status"]) == (404, "NOT_FOUND")
            assert not first.seen


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions", "/v1/v1/chat/completions"])
def test_paths_work_with_and_without_their_version(tmp_path, path):
    vendor = ScriptedUpstream(answer=lambda request: Says("Hello yourself."))
    with running(vendor), gateway(tmp_path, vendor.url) as gw:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]})
        answer = httpx2.post(
            gw.url + path, content=body, headers={"authorization": f"Bearer {gw.secret}"}
        )  # without a content type
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-recto-session-id"]


def test_the_embedded_model_has_no_files(tmp_path):
    with gateway(tmp_path) as gw:
        answer = httpx2.get(f"{gw.url}/v1/files", headers={"authorization": f"Bearer {gw.key(paths=('/v1',))}"})
        assert answer.status_code == 404
