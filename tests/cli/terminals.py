"""A program in a pseudo-terminal, and somebody in front of it who types and waits for what appears."""

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
_OWNS = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"
_WHERE = b"\x1b[6n"
"""The terminal is asked where the cursor is."""


@dataclass
class Terminal:
    """All that was shown on it, and how much of that was looked at."""

    ours: int
    process: subprocess.Popen[bytes]
    received: bytearray = field(default_factory=bytearray)
    seen: int = 0
    """How much of what can be read was waited for already."""

    def type(self, keys: str) -> None:
        """Presses keys; Enter is a carriage return."""
        os.write(self.ours, keys.encode())

    def until(self, text: str) -> str:
        """What is shown from here on, up to and including a text."""
        end = time.monotonic() + DEADLINE
        while (at := (shown := plain(self.received)).find(text, self.seen)) < 0:
            assert time.monotonic() < end, f"{text!r} did not appear in {shown[self.seen :]!r}"
            assert self._more(end - time.monotonic()), f"it ended without {text!r}: {shown[self.seen :]!r}"
        before, self.seen = self.seen, at + len(text)
        return shown[before : self.seen]

    def ended(self) -> int:
        """Waits for its end; how it ended."""
        end = time.monotonic() + DEADLINE
        while self._more(end - time.monotonic()):
            assert time.monotonic() < end, f"it did not end: {plain(self.received)[self.seen :]!r}"
        return self.process.wait(DEADLINE)

    def _more(self, seconds: float) -> bool:
        if not select.select([self.ours], [], [], max(seconds, 0))[0]:
            return True
        try:
            piece = os.read(self.ours, 65536)
        except OSError:  # the other side has closed
            return False
        self.received += piece
        for _ in range(piece.count(_WHERE)):
            os.write(self.ours, b"\x1b[1;1R")
        return bool(piece)


def plain(received: bytes | bytearray) -> str:
    """What is read on it, without the sequences that only move and colour."""
    return _SEQUENCE.sub("", received.decode(errors="replace"))


@contextmanager
def terminal(*command: str, environ: Mapping[str, str], size: tuple[int, int] = (24, 100)) -> Iterator[Terminal]:
    """A program in a terminal of so many lines and columns; it is ended, if it has not ended by itself."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    given = {**os.environ, "TERM": "xterm-256color", **environ}
    for name in ("COLUMNS", "LINES", "PROMPT_TOOLKIT_NO_CPR"):
        given.pop(name, None)

    # Its own session opens the terminal first and so is the one whom Ctrl-C reaches.
    own = [sys.executable, "-c", _OWNS, os.ttyname(theirs), *command]
    process = subprocess.Popen(own, stdin=theirs, stdout=theirs, stderr=theirs, env=given, start_new_session=True)
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)
