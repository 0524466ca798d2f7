"""Runs the command line in this process: the same entry point, without the time to start Python."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from recto.cli.console import out
from recto.cli.main import main


def called(*arguments: str, typed: str | None = "") -> subprocess.CompletedProcess[str]:
    """Runs a command without a terminal and returns its output and exit code.

    `typed` is its standard input; None closes it.
    """
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(stdout), redirect_stderr(stderr):
        patched.setattr(sys, "argv", ["recto", *arguments])
        patched.setattr(sys, "stdin", None if typed is None else io.StringIO(typed))
        with pytest.raises(SystemExit) as exit_info:
            main()
        stdout.flush()
        stderr.flush()
    texts = [stream.buffer.getvalue().decode() for stream in (stdout, stderr)]
    return subprocess.CompletedProcess(["recto", *arguments], int(exit_info.value.code or 0), *texts)


def called_at(home: Path, *arguments: str, code: int = 0, typed: str | None = "") -> str:
    """Runs a command in `home`, as home and working directory; asserts the exit code and returns all output."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        patched.setenv("HOME", str(home))
        patched.setattr(out, "width", 160)  # other tests may have changed the width
        done = called(*arguments, typed=typed)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def own_file(home: Path) -> Path:
    """The path of the user's settings file below `home`."""
    folder = home / ".recto"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / "recto.yaml"
