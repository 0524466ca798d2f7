"""What the doctor looks at beside transcript and index: each thing made wrong on purpose, and each with its cure."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from recto.engine.doctor import (
    Address,
    CheckFinding,
    check_clock,
    check_disk,
    check_endpoints,
    check_permissions,
    run_check,
    worst_first,
)
from recto.errors import SettingsError
from recto.testing import FakeClock
from recto.transcript.entries import SessionSummary


def grades(found) -> list[str]:
    return [one.grade for one in found]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can pass through."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_disk_with_too_little_room_says_how_much_is_missing(tmp_path):
    assert grades(check_disk(tmp_path, "transcripts", required=1)) == ["fine"]
    (found,) = check_disk(tmp_path, "transcripts", required=10**18)
    assert found.grade == "problem"
    assert "TB free" not in found.says.partition(",")[2]
    assert found.cure.startswith("free ")


def test_what_others_can_read_is_told_and_its_cure_cures_it(open_folder):
    file = open_folder / "a store.db"
    file.write_bytes(b"x")
    file.chmod(0o644)
    (found,) = check_permissions([open_folder, file])
    assert found.grade == "problem"
    assert f"can read '{file}'" in found.says
    subprocess.run(["sh", "-c", found.cure], check=True)
    assert grades(check_permissions([open_folder, file])) == ["fine"]


def test_what_others_can_write_is_told(open_folder):
    file = open_folder / "a.db"
    file.write_bytes(b"x")
    file.chmod(0o602)
    open_folder.chmod(0o777)
    says = [one.says for one in check_permissions([open_folder, file])]
    assert len(says) == 1
    assert f"write '{open_folder}' '{file}'" in says[0]
    open_folder.chmod(0o1777)
    assert "'" + str(open_folder) + "'" not in next(iter(check_permissions([open_folder, file]))).says


def test_a_folder_that_is_closed_protects_what_is_in_it(open_folder):
    file = open_folder / "a.db"
    file.write_bytes(b"x")
    file.chmod(0o666)
    open_folder.chmod(0o700)
    assert grades(check_permissions([open_folder, file])) == ["fine"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_cannot_be_written_is_told(tmp_path):
    file = tmp_path / "a.db"
    file.write_bytes(b"x")
    file.chmod(0o400)
    assert grades(check_permissions([file])) == ["problem"]


def summary(ts: int) -> SessionSummary:
    return SessionSummary(session="agent:a:main", entries=1, first_ts=0, last_ts=ts)


NOW = 1_790_000_000_000_000


def test_a_clock_that_goes_and_is_ahead_of_everything_is_fine():
    assert grades(check_clock(FakeClock(time=NOW, step=5_000), [summary(NOW)])) == ["fine"]


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        (FakeClock(time=NOW, step=0), "does not advance"),
        (FakeClock(time=NOW, step=-1_000), "backwards"),
        (FakeClock(time=NOW, step=60_000_000), "the clock went 60.0 s"),
        (FakeClock(time=0, step=5_000), "never set"),
    ],
)
def test_a_clock_that_is_wrong_is_told(ours, says):
    (found,) = check_clock(ours, [])
    assert found.grade == "problem"
    assert says in found.says
    assert found.cure


def test_an_entry_that_is_ahead_of_the_clock_is_told():
    (found,) = check_clock(FakeClock(time=NOW, step=5_000), [summary(NOW + 3 * 86_400 * 10**6), summary(0)])
    assert found.grade == "problem"
    assert "'agent:a:main' is dated up to 3 days ahead" in found.says


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.server.seen.append(dict(self.headers))  # type: ignore[attr-defined]
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *given: object) -> None:
        """Says nothing."""


def test_an_address_answers_or_does_not_and_no_key_is_sent_or_told():
    with socket.socket() as closed, socket.socket() as silent:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: whoever connects is refused
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
            server.seen = []
            thread = Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            ports = [server.server_address[1], closed.getsockname()[1], silent.getsockname()[1]]
            urls = [f"http://me:hunter2@127.0.0.1:{port}/v1?key=hunter2" for port in ports]
            places = [Address(setting=f"s{place}.url", url=url, seconds=0.3) for place, url in enumerate(urls)]
            found = list(check_endpoints([*places, Address(setting="s3.url", url="no address at all")]))
            server.shutdown()
            thread.join()
    assert grades(found) == ["fine", "problem", "problem", "problem"]
    assert [one.says.partition(":")[0] for one in found] == ["s0.url", "s1.url", "s2.url", "s3.url"]
    assert "the connection failed" in found[1].says
    assert "no answer" in found[2].says
    assert "hunter2" not in repr(found)
    assert len(server.seen) == 1
    assert not {"authorization", "x-api-key"} & {name.lower() for name in server.seen[0]}


def test_a_check_that_breaks_is_a_finding_and_what_it_found_before_is_kept():
    def broken(error: Exception):
        yield CheckFinding(grade="fine", about="a", says="one")
        raise error

    for error in (
        KeyError("the key is hunter2"),
        FileNotFoundError(2, "No such file", "x"),
        SettingsError("a.b", "no"),
    ):
        found = run_check("a", lambda error=error: broken(error))
        assert grades(found) == ["fine", "problem"]
        assert found[1].cure
        assert "hunter2" not in found[1].says
        assert grades(worst_first(found)) == ["problem", "fine"]
