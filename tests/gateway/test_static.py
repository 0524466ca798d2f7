"""The page is served without a key and contains no data; its content security policy limits what it may do."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from recto.gateway.endpoints.static import FILES, POLICY, StaticFiles

HTML = {"accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def built(tmp_path):
    (tmp_path / "index.html").write_text("<!doctype html><title>Recto</title>")
    for name in FILES:
        (tmp_path / name).write_text(f"/* {name} */")
    return tmp_path


def client(folder) -> TestClient:
    return TestClient(Starlette(routes=StaticFiles(folder).routes()), base_url="http://127.0.0.1")


def test_a_browser_gets_the_page_and_a_program_gets_the_api_url(built):
    page = client(built).get("/", headers=HTML)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Recto" in page.text
    assert client(built).get("/").json()["api"] == "/api/v1/openapi.json"


def test_the_policy_allows_only_the_gateways_own_files(built):
    for path in ("/", *(f"/web/{name}" for name in FILES)):
        assert client(built).get(path, headers=HTML).headers["content-security-policy"] == POLICY
    rules = dict(rule.strip().partition(" ")[::2] for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_a_cached_file_is_not_sent_again(built):
    first = client(built).get("/web/app.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = client(built).get("/web/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    (built / "app.js").write_text("other")
    changed = client(built).get("/web/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (changed.status_code, changed.text) == (200, "other")


def test_a_client_that_accepts_gzip_gets_a_compressed_file(built):
    (built / "app.js").write_text("let x = 1;\n" * 1_000)
    packed = client(built).get("/web/app.js", headers={"accept-encoding": "gzip"})
    plain = client(built).get("/web/app.js", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 10
    assert packed.text == plain.text
    assert "content-encoding" not in plain.headers


def test_a_missing_page_names_the_command_that_builds_it(tmp_path):
    assert client(tmp_path).get("/", headers=HTML).json()["page"] == "not built: make web"
    missing = client(tmp_path).get("/web/app.js")
    assert missing.status_code == 404
    assert "make web" in missing.text


def test_no_other_file_is_served(built):
    (built / "secret.txt").write_text("secret")
    for path in ("/web/secret.txt", "/web/index.html", "/web/..%2fsecret.txt", "/web/"):
        assert client(built).get(path).status_code == 404
