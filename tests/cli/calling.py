"""Runs the command line in this process, as the program would: the same entry, without the time to start Python."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from recto.cli.console import out
from recto.cli.main import main


def called(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """What a command said and how it ended, with nobody at the terminal; `typed` comes in through a pipe."""
    said, complained = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(said), redirect_stderr(complained):
        patched.setattr(sys, "argv", ["recto", *arguments])
        patched.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(SystemExit) as ended:
            main()
        said.flush()
        complained.flush()
    texts = [stream.buffer.getvalue().decode() for stream in (said, complained)]
    return subprocess.CompletedProcess(["recto", *arguments], int(ended.value.code or 0), *texts)


def called_at(home: Path, *arguments: str, code: int = 0, typed: str = "") -> str:
    """What a command said to somebody whose home and folder is `home`; it has to end with that code."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        patched.setenv("HOME", str(home))
        patched.setattr(out, "width", 160)  # whatever width others left it with
        done = called(*arguments, typed=typed)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def own_file(home: Path) -> Path:
    """The settings file of somebody whose home is `home`."""
    folder = home / ".recto"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / "recto.yaml"
