"""Files next to a store are private to their owner, and no key appears on a command line."""

from __future__ import annotations

import logging
import os
import stat
import webbrowser
from contextlib import closing
from pathlib import Path

import pytest

import recto
from recto.cli import serve
from recto.continuity.folders import make_private_folder
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import Draft


def mode(path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_every_checkpoint_folder_is_private_to_its_owner(tmp_path):
    folder = tmp_path / "made" / "on" / "the way"
    with recto.open(tmp_path / "a.db", continuity={"folder": str(folder), "environment": False}) as session:
        session.append({"role": "user", "content": "Fix the parser."})
        session.checkpoint()
    made = [path for path in (tmp_path / "made").rglob("*") if path.is_dir()]
    assert len(made) >= 3
    assert {mode(path) for path in [tmp_path / "made", *made]} == {0o700}
    assert {mode(path) for path in folder.rglob("*") if path.is_file()} == {0o600}


def test_new_parent_folders_are_private_too_and_existing_folders_are_unchanged(tmp_path):
    (tmp_path / "shared").mkdir(mode=0o755)
    make_private_folder(tmp_path / "shared" / "a" / "b")
    make_private_folder(tmp_path / "shared" / "a" / "b")
    assert [mode(tmp_path / "shared" / part) for part in (".", "a", "a/b")] == [0o755, 0o700, 0o700]


class _Browser:
    def __init__(self):
        self.opened = []

    def open(self, page):
        self.opened.append(page)


def test_the_browser_command_line_contains_no_key(monkeypatch):
    browser = _Browser()
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    page = "http://127.0.0.1:8642/#/overview?session=agent:default:sample&key=rk-secret"
    serve._open_browser(page)
    serve._open_browser("http://127.0.0.1:8642/")
    (opened, plain) = browser.opened
    assert "rk-secret" not in opened
    assert plain == "http://127.0.0.1:8642/"
    file = Path(opened.removeprefix("file://"))
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert page.replace("&", "&amp;") in file.read_text(encoding="utf-8")


def test_a_write_to_a_store_without_its_heads_file_logs_a_warning(tmp_path, caplog):
    draft = Draft(id="a", ts=1, role="user", content=b"{}")
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        store.append("s", [draft])
    (tmp_path / "b.db").write_bytes((tmp_path / "a.db").read_bytes())
    with caplog.at_level(logging.WARNING, logger="recto.store"):
        with closing(SqliteStore(tmp_path / "a.db")) as store:
            store.append("s", [Draft(id="b", ts=1, role="user", content=b"{}")])
        assert caplog.text == ""
        with closing(SqliteStore(tmp_path / "b.db")) as copy:
            copy.append("s", [Draft(id="c", ts=1, role="user", content=b"{}")])
    assert "'b.db-heads' was missing" in caplog.text
