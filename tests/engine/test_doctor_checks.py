"""The doctor's checks of disk, permissions, clock and endpoints: each fault is reported with its cure."""

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
    return [finding.grade for finding in found]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can pass through."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_full_disk_reports_how_much_space_is_missing(tmp_path):
    assert grades(check_disk(tmp_path, "transcripts", required=1)) == ["fine"]
    (found,) = check_disk(tmp_path, "transcripts", required=10**18)
    assert found.grade == "problem"
    assert "TB free" not in found.says.partition(",")[2]
    assert found.cure.startswith("free ")


def test_a_file_readable_by_others_is_reported_and_its_cure_works(open_folder):
    file = open_folder / "a store.db"
    file.write_bytes(b"x")
    file.chmod(0o644)
    (found,) = check_permissions([open_folder, file])
    assert found.grade == "problem"
    assert f"can read '{file}'" in found.says
    subprocess.run(["sh", "-c", found.cure], check=True)
    assert grades(check_permissions([open_folder, file])) == ["fine"]


def test_a_file_writable_by_others_is_reported(open_folder):
    file = open_folder / "a.db"
    file.write_bytes(b"x")
    file.chmod(0o602)
    open_folder.chmod(0o777)
    says = [finding.says for finding in check_permissions([open_folder, file])]
    assert len(says) == 1
    assert f"write '{open_folder}' '{file}'" in says[0]
    open_folder.chmod(0o1777)
    assert "'" + str(open_folder) + "'" not in next(iter(check_permissions([open_folder, file]))).says


def test_a_private_folder_protects_its_files(open_folder):
    file = open_folder / "a.db"
    file.write_bytes(b"x")
    file.chmod(0o666)
    open_folder.chmod(0o700)
    assert grades(check_permissions([open_folder, file])) == ["fine"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_cannot_be_written_is_reported(tmp_path):
    file = tmp_path / "a.db"
    file.write_bytes(b"x")
    file.chmod(0o400)
    assert grades(check_permissions([file])) == ["problem"]


def summary(ts: int) -> SessionSummary:
    return SessionSummary(session="agent:a:main", entries=1, first_ts=0, last_ts=ts)


NOW = 1_790_000_000_000_000


def test_a_running_clock_ahead_of_every_entry_is_fine():
    assert grades(check_clock(FakeClock(time=NOW, step=5_000), [summary(NOW)])) == ["fine"]


@pytest.mark.parametrize(
    ("clock", "says"),
    [
        (FakeClock(time=NOW, step=0), "does not advance"),
        (FakeClock(time=NOW, step=-1_000), "backwards"),
        (FakeClock(time=NOW, step=60_000_000), "the clock went 60.0 s"),
        (FakeClock(time=0, step=5_000), "never set"),
    ],
)
def test_a_wrong_clock_is_reported(clock, says):
    (found,) = check_clock(clock, [])
    assert found.grade == "problem"
    assert says in found.says
    assert found.cure


def test_an_entry_dated_ahead_of_the_clock_is_reported():
    (found,) = check_clock(FakeClock(time=NOW, step=5_000), [summary(NOW + 3 * 86_400 * 10**6), summary(0)])
    assert found.grade == "problem"
    assert "'agent:a:main' is dated up to 3 days ahead" in found.says


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.server.seen.append(dict(self.headers))  # type: ignore[attr-defined]
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Suppresses the request log."""


def test_endpoints_are_probed_without_sending_or_showing_keys():
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
    assert [finding.says.partition(":")[0] for finding in found] == ["s0.url", "s1.url", "s2.url", "s3.url"]
    assert "the connection failed" in found[1].says
    assert "no answer" in found[2].says
    assert "hunter2" not in repr(found)
    assert len(server.seen) == 1
    assert not {"authorization", "x-api-key"} & {name.lower() for name in server.seen[0]}


def test_a_failing_check_is_a_finding_and_earlier_findings_are_kept():
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
