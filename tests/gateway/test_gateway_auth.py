"""The guard admits only requests that are addressed to this gateway, allowed to their key and within the limits."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import tracemalloc
import zlib
from itertools import product
from urllib.parse import unquote

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from listening import PORT, RecordingApp, call_app
from starlette.routing import Mount, Route

from recto.config.settings import GatewaySettings
from recto.errors import RequestRefused
from recto.gateway.api_keys import Key, Keys
from recto.gateway.middleware._body import decompress, nesting_depth
from recto.gateway.middleware.auth import TABLE, AccessPolicy, Guard, Rule
from recto.gateway.middleware.origin import is_loopback, is_plain_path
from recto.gateway.middleware.rate_limit import RateLimits
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock

HOST = ("host", f"127.0.0.1:{PORT}")
JSON = ("content-type", "application/json")


class Gate:
    """A guard with one key in front of an application that records what reached it."""

    def __init__(self, authority=None, key=None, **changes):
        self.keys = Keys(MemoryStore(), FakeClock())
        self.key, self.secret = self.keys.add(key or Key(name="one"))
        self.behind = RecordingApp()
        self.guard = Guard(self.behind.app(), GatewaySettings(**changes), self.keys, authority)

    @property
    def bearer(self):
        return ("authorization", f"Bearer {self.secret}")

    def ask(self, *args, **kwargs):
        return asyncio.run(call_app(self.guard, *args, **kwargs))

    def post(self, body, *headers, path="/v1/chat/completions", pieces=None):
        pieces = [body] if pieces is None else pieces
        all_headers = [HOST, self.bearer, JSON, ("content-length", str(sum(map(len, pieces)))), *headers]
        return self.ask("POST", path, all_headers, pieces)


@pytest.fixture(scope="module")
def gate():
    return Gate(hosts=("gateway.example.com", "inner:9000"), origins=("https://chat.example.com",))


OWN_HOSTS = [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"]
GOOD_HOSTS = [*OWN_HOSTS, "gateway.example.com", "gateway.example.com:443", "inner:9000"]
BAD_HOSTS = [
    *("evil.example", f"evil.example:{PORT}", f"127.0.0.1.evil.example:{PORT}", f"localhost.evil.example:{PORT}"),
    *("127.0.0.1", "localhost", f"127.0.0.1:{PORT + 1}", f"localhost:{PORT}.", f"127.0.0.1:{PORT}@evil.example"),
    *(f"0.0.0.0:{PORT}", f"127.1:{PORT}", f"2130706433:{PORT}", f"0x7f.1:{PORT}", f"[::ffff:127.0.0.1]:{PORT}"),
    *("", " ", "null", f"127.0.0.1:{PORT}/x", f"localhost:{PORT},evil.example", f"evil@localhost:{PORT}"),
    *("gateway.example.com.evil.example", "xgateway.example.com", "inner", "inner:9001", f"localhost:0{PORT}"),
    *(f"\u0131localhost:{PORT}".encode().decode("latin-1"), "gateway.example.com:443:1", f"localhost\x00:{PORT}"),
]
BAD_ORIGINS = [
    *("https://evil.example", "http://evil.example", "null", "", "file://", f"http://localhost:{PORT + 1}"),
    *(
        "http://localhost:3000",
        f"https://localhost:{PORT}",
        f"http://127.0.0.1:{PORT}.evil.example",
        "http://localhost",
    ),
    *("https://chat.example.com.evil.example", "http://chat.example.com", "https://chat.example.com:444"),
    *("https://xchat.example.com", "chat.example.com", "chrome-extension://abc", f"http://user@localhost:{PORT}"),
]
SITES = [None, "cross-site", "same-site", "same-origin", "none", "odd", ""]
WAYS_IN = [("GET", "/v1/models", None), ("POST", "/v1/chat/completions", "text/plain"), ("GET", "/healthz", None)]


def page(host, origin, site, kind=None):
    headers = [("host", host)] if host is not None else []
    headers += [("origin", origin)] if origin is not None else []
    headers += [("sec-fetch-site", site)] if site is not None else []
    return headers + ([("content-type", kind)] if kind else [])


def test_foreign_origins_and_wrong_host_names_are_refused_in_every_combination(gate):
    combinations = [(host, origin, site) for host in BAD_HOSTS for origin in (None, "own") for site in SITES]
    combinations += [(host, origin, site) for host in GOOD_HOSTS for origin in BAD_ORIGINS for site in SITES]
    combinations += [(host, None, site) for host in GOOD_HOSTS for site in ("cross-site", "same-site", "odd", "")]
    combinations += [
        (host, "own", site)
        for host in (f"localhost:{PORT}", "gateway.example.com")
        for site in ("cross-site", "same-site", "odd")
    ]
    ways = random.Random(7).choices(WAYS_IN, k=len(combinations))

    async def try_all():
        found = []
        for (host, origin, site), (method, path, kind) in zip(combinations, ways, strict=True):
            named = f"http://{host.lower()}" if origin == "own" else origin
            headers = [*page(host, named, site, kind), gate.bearer]
            answer = await call_app(gate.guard, method, path, headers, [b"{}"] if kind else [])
            found.append((host, named, site, answer.status, answer.headers.get("access-control-allow-origin")))
        return found

    found = asyncio.run(try_all())
    assert len(found) >= 300
    assert [row for row in found if row[3] != 403 or row[4] is not None] == []
    assert gate.behind.scopes == []


def test_the_gateways_own_page_programs_and_allowed_pages_are_admitted(gate):
    for host in GOOD_HOSTS:
        own = [None, f"http://{host.lower()}"] + ([f"https://{host}"] if host.startswith("gateway") else [])
        for origin, site in product(own, (None, "same-origin", "none")):
            answer = gate.ask(headers=[*page(host, origin, site), gate.bearer])
            assert (answer.status, "access-control-allow-origin" in answer.headers) == (200, False), (host, origin)
        answer = gate.ask(headers=[*page(host, "https://chat.example.com", "cross-site"), gate.bearer])
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://chat.example.com"
        assert answer.headers["vary"] == "Origin"
    gate.behind.scopes.clear()


def test_an_allowed_page_still_needs_a_key_and_may_read_the_refusal(gate):
    answer = gate.ask(headers=page(f"localhost:{PORT}", "https://chat.example.com", "cross-site"))
    assert answer.status == 401
    assert answer.headers["access-control-allow-origin"] == "https://chat.example.com"


def test_a_preflight_request_of_an_allowed_page_is_answered_and_others_are_refused(gate):
    asking = [("access-control-request-method", "POST"), ("access-control-request-headers", "x-api-key")]
    asking += [("access-control-request-private-network", "true")]
    good = gate.ask("OPTIONS", headers=[HOST, ("origin", "https://chat.example.com"), *asking])
    assert good.status == 204
    assert good.headers["access-control-allow-origin"] == "https://chat.example.com"
    assert good.headers["access-control-allow-headers"] == "x-api-key"
    assert good.headers["access-control-allow-private-network"] == "true"
    for origin in [*BAD_ORIGINS, f"http://127.0.0.1:{PORT}"]:
        bad = gate.ask("OPTIONS", headers=[HOST, ("origin", origin), *asking])
        assert bad.status == 403
        assert not [name for name in bad.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/v1/../healthz",
            "/healthz/../v1/models",
            "/v1//models",
            "//v1/models",
            "/v1/%2e%2e/healthz",
            "/%2e/healthz",
        ),
        *("/v1%2fmodels", "/v1%2Fmodels", "/v1\\models", "/v1%5cmodels", "/v1/models%00", "/v1/models%0a", "/%ff"),
        *("http://evil.example/v1/models", "*", "", "v1/models", "/v1/models%E2%80%AE", "/healthz%20\u00e9"),
    ],
)
def test_an_ambiguous_path_is_refused(gate, path):
    answer = gate.ask(path=unquote(path), headers=[HOST, gate.bearer], raw_path=path.encode())
    assert answer.status == 400
    assert not is_plain_path(path.encode())


def test_plain_paths_are_accepted():
    assert all(
        map(is_plain_path, (b"/", b"/v1/models/org:a.b-c", b"/v1/models/caf%C3%A9", b"/a%20b", b"/...", b"/a.b"))
    )


@pytest.mark.parametrize(
    ("extra", "status"),
    [
        ([("content-length", "2"), ("transfer-encoding", "chunked")], 400),
        ([("content-length", "2"), ("content-length", "2")], 400),
        ([("content-length", "+2")], 400),
        ([("content-length", "-1")], 400),
        ([("content-length", "9" * 40)], 400),
        ([("host", "localhost")], 400),
        ([("authorization", "Bearer rk-other")], 400),
        ([("x-api-key", "rk-other")], 400),
        ([("x-api-key", "a"), ("x-api-key", "a")], 400),
        ([("upgrade", "websocket"), ("connection", "upgrade")], 400),
        ([("content-length", "2"), ("content-encoding", "br")], 415),
        ([("content-length", "2"), ("content-encoding", "gzip, gzip")], 415),
        ([("x-long", "x" * 40_000)], 431),
        ([(f"x-{number}", "1") for number in range(200)], 431),
    ],
)
def test_ambiguous_headers_are_refused(gate, extra, status):
    kind = [] if any(name == "content-type" for name, _ in extra) else [JSON]
    assert gate.ask("POST", "/v1/chat/completions", [HOST, gate.bearer, *kind, *extra], [b"{}"]).status == status
    assert gate.behind.bodies == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_a_web_form_could_send_is_refused(gate, kind):
    headers = [HOST, gate.bearer, ("content-type", kind), ("content-length", "2")]
    assert gate.ask("POST", "/v1/chat/completions", headers, [b"{}"]).status == 415


def test_long_paths_unknown_methods_and_old_versions_are_refused(gate):
    assert gate.ask(path="/" + "x" * 3_000, headers=[HOST]).status == 414
    assert gate.ask(headers=[HOST], query_string=b"x" * 9_000).status == 414
    assert gate.ask(headers=[HOST, gate.bearer], query_string=b"a=%00").status == 400
    for method in ("TRACE", "CONNECT", "PROPFIND", "get", "X" * 100):
        assert gate.ask(method, headers=[HOST, gate.bearer]).status == 405
    old = gate.ask("POST", headers=[HOST, gate.bearer, ("transfer-encoding", "chunked")], http_version="1.0")
    assert old.status == 400
    assert gate.ask(headers=[gate.bearer], http_version="1.0").status == 403  # no Host at all


def test_a_websocket_is_closed_before_it_opens(gate):
    sent = []

    async def send(message):
        sent.append(message["type"])

    asyncio.run(gate.guard({"type": "websocket", "path": "/", "headers": []}, None, send))
    assert sent == ["websocket.close"]


def test_every_header_that_carries_a_key_works_and_the_key_is_not_passed_on(gate):
    others = [("authorization", "Bearer somebody-elses"), ("x-api-key", "theirs")]
    ways = [
        [gate.bearer],
        [("authorization", f"bearer {gate.secret}")],
        [("x-api-key", gate.secret)],
        [("x-goog-api-key", gate.secret)],
        [gate.bearer, ("x-api-key", gate.secret)],
        [gate.bearer, others[1]],
        [others[0], ("x-api-key", gate.secret)],
    ]
    for way in ways:
        gate.behind.scopes.clear()
        assert gate.ask(headers=[HOST, *way]).json == {"key": "one"}
        scope = gate.behind.scopes.pop()
        assert scope["recto.key"] == gate.key
        assert gate.secret.encode() not in b"".join(value for _, value in scope["headers"])
    assert (b"authorization", b"Bearer somebody-elses") in scope["headers"]


def test_a_route_that_is_not_in_the_table_is_refused_for_every_key():
    gate = Gate(AccessPolicy([Rule("GET", "/healthz", "open")]))
    assert gate.ask(path="/healthz", headers=[HOST]).status == 200
    assert gate.ask(headers=[HOST]).status == 401
    assert gate.ask(headers=[HOST, gate.bearer]).status == 404
    assert gate.ask("POST", "/healthz", headers=[HOST]).status == 401
    answer = gate.ask("POST", "/healthz", headers=[HOST, gate.bearer])
    assert (answer.status, answer.json["error"]["message"]) == (405, "what can be done here: GET")
    assert gate.behind.scopes == []


def test_where_two_rules_match_the_key_needs_both_rights():
    authority = AccessPolicy([Rule("GET", "/v1/{rest:path}", "change"), Rule("GET", "/v1/models", "open")])
    assert authority.needs("GET", "/v1/models") == {"change", "open"}
    assert authority.needs("HEAD", "/v1/models") == {"change", "open"}
    assert authority.needs("GET", "/v1/models\n") == set()
    gate = Gate(authority, Key(name="one", rights=frozenset({"ask", "read"})))
    assert gate.ask(headers=[HOST]).status == 401
    assert gate.ask(headers=[HOST, gate.bearer]).status == 403


def test_a_refusal_names_the_right_that_the_key_lacks():
    gate = Gate(key=Key(name="one", rights=frozenset({"ask"})))
    answer = gate.ask(path="/metrics", headers=[HOST, gate.bearer])
    assert answer.status == 403
    assert "no right to read" in answer.json["error"]["message"]
    assert gate.ask(headers=[HOST, gate.bearer]).status == 200


def test_routes_without_a_rule_are_listed():
    routes = [
        Route("/healthz", RecordingApp().health),
        Mount("/api", routes=[Route("/x", RecordingApp().health, methods=["GET", "POST"])]),
    ]
    assert AccessPolicy().missing(routes) == ["GET /api/x", "POST /api/x"]
    assert AccessPolicy(TABLE, [Rule("GET", "/api/x", "read"), Rule("POST", "/api/x", "read")]).missing(routes) == []
    assert AccessPolicy().missing(RecordingApp().inside().routes) == []
    assert AccessPolicy().missing([Mount("/files", app=RecordingApp().inside())])


def test_only_the_page_and_health_routes_are_open():
    page = {"/", "/web/app.js", "/web/style.css", "/web/icon.svg"}
    assert {rule.path for rule in TABLE if rule.need == "open"} == page | {"/healthz", "/readyz"}


def test_refusals_have_the_shape_of_the_protocol(gate):
    assert gate.ask("POST", "/v1/messages", [HOST]).json["type"] == "error"
    assert gate.ask("POST", "/v1/messages", [HOST]).json["error"]["type"] == "authentication_error"
    assert gate.ask("POST", "/v1/chat/completions", [HOST]).json["error"]["code"] == "invalid_api_key"
    assert set(gate.ask("GET", "/api/v1/sessions", [HOST]).json["error"]) == {"code", "message"}
    assert gate.ask(headers=[HOST]).headers["www-authenticate"] == "Bearer"


def test_a_missing_and_a_wrong_key_get_different_messages_that_name_the_command_to_run(gate):
    missing = gate.ask("POST", "/v1/chat/completions", [HOST]).json["error"]["message"]
    wrong = gate.ask("POST", "/v1/chat/completions", [HOST, ("authorization", "Bearer sk-x")]).json["error"]["message"]
    assert missing.startswith("no key was sent")
    assert wrong.startswith("this is not a key of this gateway")
    assert "recto keys add NAME" in missing
    assert "recto keys add NAME" in wrong


def test_every_response_has_security_headers_and_no_server_header(gate):
    for path in ("/healthz", "/v1/models", "/nothing"):
        headers = gate.ask(path=path, headers=[HOST, gate.bearer]).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_a_body_with_too_large_a_declared_length_is_not_read():
    gate = Gate(body_bytes=1000)
    gate.guard._body_reader._seconds = 0.05

    async def ask():
        reads = []

        async def receive():
            reads.append(1)
            return {"type": "http.disconnect"}

        sent = []

        async def send(message):
            sent.append(message)

        headers = [HOST, gate.bearer, JSON, ("content-length", "1001"), ("expect", "100-continue")]
        raw = [(name.encode(), value.encode()) for name, value in headers]
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/chat/completions"}
        scope |= {"raw_path": b"/v1/chat/completions", "query_string": b"", "headers": raw, "server": ("", PORT)}
        await gate.guard(scope, receive, send)
        return reads, sent[0]["status"]

    assert asyncio.run(ask()) == ([], 413)


def test_a_body_that_grows_too_large_is_refused():
    gate = Gate(body_bytes=1000, key=Key(name="one", body_bytes=500))
    assert gate.post(b"x" * 500).json == {"bytes": 500}
    assert gate.post(b"x" * 501).status == 413
    chunked = [HOST, gate.bearer, JSON, ("transfer-encoding", "chunked")]
    assert gate.ask("POST", "/v1/chat/completions", chunked, [b"x" * 200] * 3).status == 413
    assert gate.ask("POST", "/v1/chat/completions", chunked, [b"x" * 200] * 2).json == {"bytes": 400}


def test_requests_without_a_key_have_a_small_body_limit():
    gate = Gate(AccessPolicy([Rule("POST", "/v1/chat/completions", "open")]))
    assert gate.post(b"x" * 16_000).status == 200
    assert gate.post(b"x" * 17_000).status == 413


PACKERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def raw_deflate(text):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(text) + packer.flush()


@pytest.mark.parametrize("coding", PACKERS)
def test_a_compressed_body_arrives_decompressed(gate, coding):
    gate.behind.bodies.clear()
    text = json.dumps({"messages": ["héllo" * 100]}).encode()
    assert gate.post(PACKERS[coding](text), ("content-encoding", coding)).status == 200
    assert gate.behind.bodies.pop() == text
    names = dict(gate.behind.scopes.pop()["headers"])
    assert b"content-encoding" not in names
    assert names[b"content-length"] == str(len(text)).encode()


@pytest.mark.parametrize("coding", PACKERS)
@given(text=st.binary(max_size=300), second=st.binary(max_size=50), cut=st.integers(1, 20))
def test_decompression_restores_the_bytes_and_refuses_damage(coding, text, second, cut):
    packed = PACKERS[coding](text)
    assert decompress(packed, coding, 300) == text
    if coding != "deflate":
        assert decompress(packed + PACKERS[coding](second), coding, 400) == text + second
    else:
        assert decompress(raw_deflate(text + b"?"), coding, 400) == text + b"?"
    for damaged in (packed[:-cut], packed + b"\xff" * cut):
        with pytest.raises(RequestRefused) as refused:
            decompress(damaged, coding, 300)
        assert refused.value.status == 400


@pytest.mark.parametrize("coding", PACKERS)
def test_a_decompression_bomb_is_refused_at_the_first_byte_over_the_limit(coding):
    gate = Gate(body_bytes=1 << 20)
    bomb = PACKERS[coding](b"[" * (64 << 20))
    assert len(bomb) < 1 << 17
    tracemalloc.start()
    try:
        assert gate.post(bomb, ("content-encoding", coding)).status == 413
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert gate.behind.bodies == []


def test_a_body_of_endless_empty_parts_is_refused():
    for packed, coding in ((gzip.compress(b"") * 65, "gzip"), (PACKERS["zstd"](b"") * 65, "zstd")):
        with pytest.raises(RequestRefused, match="parts"):
            decompress(packed, coding, 1000)


def test_a_zstd_body_with_a_large_window_is_refused():
    options = zstandard.ZstdCompressionParameters(window_log=27)
    greedy = zstandard.ZstdCompressor(compression_params=options).compressobj()
    with pytest.raises(RequestRefused, match="zstd"):
        decompress(greedy.compress(b"x" * 1000) + greedy.flush(), "zstd", 10_000)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"\\\\":[', b'{"\\"":'])
def test_json_nested_a_hundred_thousand_levels_deep_never_reaches_a_parser(gate, opening):
    gate.behind.bodies.clear()
    for coding in ("", "gzip"):
        body = opening * 100_000
        packed = gzip.compress(body) if coding else body
        answer = gate.post(packed, ("content-encoding", coding))
        assert (answer.status, answer.json["error"]["code"]) == (400, "too_deep")
    assert gate.post(b"[" * 128 + b"]" * 128).status == 200
    assert gate.post(b"[" * 129 + b"]" * 129).status == 400
    assert gate.post(b'"' + b"[" * 1000 + b'"').status == 200


VALUES = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a\n', max_size=8) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"\\b', max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


def depth_of(value):
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 0


@given(VALUES)
def test_the_depth_of_json_is_counted_as_a_parser_would(value):
    assert nesting_depth(json.dumps(value).encode()) == depth_of(value)
    assert nesting_depth(json.dumps(value).encode() + b'"' + b"[" * 300) < 300


def test_depth_is_counted_across_pieces():
    assert nesting_depth(b'["' + b"[" * (1 << 21) + b'",' + b"[" * 200) == 201
    assert nesting_depth(b"[" * (3 << 20)) == 3 << 20


def test_a_key_over_its_rate_is_refused_with_a_retry_time():
    now = [100.0]
    limits = RateLimits(GatewaySettings(), now=lambda: now[0])
    key, other = Key(id="a", name="a", requests_per_minute=3), Key(id="b", name="b", requests_per_minute=1)

    def is_admitted(key):
        with limits.request(key):
            return True

    assert all(is_admitted(key) for _ in range(3))
    with pytest.raises(RequestRefused) as refused:
        is_admitted(key)
    assert (refused.value.status, refused.value.retry_after) == (429, 20)
    assert is_admitted(other)
    now[0] += 20
    assert is_admitted(key)
    with pytest.raises(RequestRefused):
        is_admitted(key)
    now[0] += 10_000
    assert all(is_admitted(key) for _ in range(3))
    with pytest.raises(RequestRefused):
        is_admitted(key)
    now[0] -= 50_000  # a clock that goes back gives nothing and breaks nothing
    with pytest.raises(RequestRefused):
        is_admitted(key)


def test_concurrent_requests_and_buffered_bytes_are_bounded_per_key_and_in_total():
    limits = RateLimits(GatewaySettings(concurrency=2, body_bytes=100))
    key = Key(id="a", name="a", concurrency=1)
    with limits.request(key):
        with pytest.raises(RequestRefused) as refused, limits.request(key):
            pass
        assert refused.value.status == 429
    with limits.request(key):
        pass
    with limits.work(key), limits.work(key):
        with pytest.raises(RequestRefused) as refused, limits.work(key):
            pass
        assert refused.value.status == 503
    with limits.memory() as room:
        room.take(700)
        with pytest.raises(RequestRefused), limits.memory() as other:
            other.take(200)
    with limits.memory() as room:
        room.take(800)


def test_a_full_gateway_answers_health_checks_and_refuses_others_with_a_retry_time():
    gate = Gate(concurrency=1)
    with gate.guard.limits.work(Key(id="other", name="other")):
        assert gate.ask(path="/healthz", headers=[HOST]).status == 200
        answer = gate.ask(headers=[HOST, gate.bearer])
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert gate.post(b"{}", path="/v1/messages").status == 529
    assert gate.ask(headers=[HOST, gate.bearer]).status == 200


def test_a_failing_store_admits_no_key():
    gate = Gate()
    gate.keys._store.close()
    answer = gate.ask(headers=[HOST, gate.bearer])
    assert answer.status == 503
    assert gate.behind.scopes == []


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True)),
        *(("unix:/run/x", True), ("0.0.0.0", False), ("::", False), ("", False), ("10.0.0.1", False)),
        *(("localhost.example.com", False), ("::ffff:10.0.0.1", False), ("example.com", False)),
    ],
)
def test_loopback_addresses_are_recognized(host, loopback):
    assert is_loopback(host) is loopback
