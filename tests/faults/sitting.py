"""Runs the program in a pseudo-terminal and records every byte that it draws."""

from __future__ import annotations

import codecs
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from select import select
from time import monotonic

DEADLINE = 60


class Terminal:
    """The program in a pseudo-terminal that a test types into."""

    def __init__(self, home: Path, *arguments: str) -> None:
        program = [sys.executable, "-c", "from recto.cli.main import main; main()", *arguments]
        around = {**os.environ, "HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        self.drawn = ""
        self._decoded = codecs.getincrementaldecoder("utf-8")()
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, 120))
        self.running = subprocess.Popen(program, cwd=home, env=around, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)

    def types(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, words: str = "") -> str:
        """Returns everything drawn from now on, up to these words or, without words, up to the end of the program."""
        begins, enough = len(self.drawn), monotonic() + DEADLINE
        while not words or words not in self.drawn[begins:]:
            if not select([self._master], [], [], max(enough - monotonic(), 0))[0]:
                raise AssertionError(f"{words!r} was not drawn in {DEADLINE} s: {self.drawn[-2_000:]!r}")
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # the other side has closed it
                piece = b""
            if not piece:
                assert not words, f"the program ended before it drew {words!r}: {self.drawn[-2_000:]!r}"
                break
            self.drawn += self._decoded.decode(piece)
        return self.drawn[begins:]

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.running.kill()
        self.running.wait()
        os.close(self._master)
