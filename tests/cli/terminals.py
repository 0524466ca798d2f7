"""Runs a program in a pseudo-terminal; tests type keys and wait for output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

DEADLINE = 120.0
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()=>][0-9A-Z]?")
_OPEN_TERMINAL_AND_EXEC = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"
_CURSOR_QUERY = b"\x1b[6n"
"""The program asks the terminal for the cursor position."""


@dataclass
class Terminal:
    """A pseudo-terminal with everything it received, and how much of that was consumed."""

    ours: int
    process: subprocess.Popen[bytes]
    received: bytearray = field(default_factory=bytearray)
    seen: int = 0
    """Number of visible characters that `until` has consumed."""

    def type(self, keys: str) -> None:
        """Presses keys; Enter is a carriage return."""
        os.write(self.ours, keys.encode())

    def until(self, text: str) -> str:
        """Waits for a text; returns the new output up to and including it."""
        end = time.monotonic() + DEADLINE
        while (at := (shown := plain(self.received)).find(text, self.seen)) < 0:
            assert time.monotonic() < end, f"{text!r} did not appear in {shown[self.seen :]!r}"
            assert self._more(end - time.monotonic()), f"the program ended without {text!r}: {shown[self.seen :]!r}"
        before, self.seen = self.seen, at + len(text)
        return shown[before : self.seen]

    def ended(self) -> int:
        """Waits for the program to exit; returns its exit code."""
        end = time.monotonic() + DEADLINE
        while self._more(end - time.monotonic()):
            assert time.monotonic() < end, f"the program did not end: {plain(self.received)[self.seen :]!r}"
        return self.process.wait(DEADLINE)

    def _more(self, seconds: float) -> bool:
        if not select.select([self.ours], [], [], max(seconds, 0))[0]:
            return True
        try:
            piece = os.read(self.ours, 65536)
        except OSError:  # the other side has closed
            return False
        self.received += piece
        for _ in range(piece.count(_CURSOR_QUERY)):
            os.write(self.ours, b"\x1b[1;1R")
        return bool(piece)


def plain(received: bytes | bytearray) -> str:
    """The visible text, without escape sequences for cursor and colour."""
    return _SEQUENCE.sub("", received.decode(errors="replace"))


@contextmanager
def terminal(*command: str, environ: Mapping[str, str], size: tuple[int, int] = (24, 100)) -> Iterator[Terminal]:
    """Runs a program in a terminal of this many lines and columns; kills it at the end if it is still running."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", **environ}
    for name in ("COLUMNS", "LINES", "PROMPT_TOOLKIT_NO_CPR"):
        env.pop(name, None)

    # A new session that opens the terminal makes it its controlling terminal, so Ctrl-C reaches the program.
    own = [sys.executable, "-c", _OPEN_TERMINAL_AND_EXEC, os.ttyname(theirs), *command]
    process = subprocess.Popen(own, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)
