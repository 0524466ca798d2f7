"""`recto tui` in a real terminal: it starts over a new store, and restores the terminal on exit."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

_PROGRAM = """
import sys
from recto.config import load
from recto.tui.app import run
upstream = {"main": {"url": "http://127.0.0.1:9/v1", "speaks": ["chat"], "key": "sk-none"}}
settings = {"store": sys.argv[1], "gateway": {"upstreams": upstream}, "recall": {"embedder": {"use": "none"}}}
run(load(environ={}, arguments=settings | {"model": "gpt-4o"}))
"""


def test_the_tui_starts_in_a_terminal_and_restores_it_on_exit(tmp_path):
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "a.db")]
    program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    try:
        received = _read_until(ours, b"nothing was said") + _read_until(
            ours, b"rite to the model"
        )  # the cursor covers the first letter
        os.write(ours, b"\x11")  # Ctrl+Q
        received += _read_until(ours, b"\x1b[?1049l")
        assert program.wait(60) == 0
        assert b"Traceback" not in received
    finally:
        program.kill()
        program.wait(60)
        os.close(ours)


def _read_until(terminal: int, words: bytes) -> bytes:
    received, deadline = b"", time.monotonic() + 90
    while words not in received:
        assert time.monotonic() < deadline, received[-2000:]
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                received += os.read(terminal, 65_536)
            except OSError:  # the other side is gone
                break
    assert words in received, received[-2000:]
    return received
