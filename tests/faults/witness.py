"""Helpers of the fault tests: a forked writer that acknowledges through a pipe, and an independent verification."""

from __future__ import annotations

import os
import select
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recto.transcript.entries import EMPTY_HEAD, ChainBreak, Draft, Head, verify_chain
from recto.transcript.protocols import TranscriptStore


def draft(name: str, content: bytes | None = None, *, key: bool = True, ts: int = 1) -> Draft:
    body = f'{{"role":"user","content":"{name}"}}'.encode() if content is None else content
    return Draft(id=f"id-{name}", ts=ts, role="user", content=body, key=f"key-{name}" if key else None)


def findings(store: TranscriptStore, heads: Mapping[str, Head] | None = None) -> list[str]:
    """Returns every finding: of the chains, of the heads stored outside, and of the engine's own check."""
    found = list(store.damage())
    heads = store.kept_heads() if heads is None else heads
    names = [summary.session for summary in store.sessions()]
    found += [f"{name} is missing" for name in heads.keys() - set(names)]
    for name in names:
        head = heads.get(name, EMPTY_HEAD)
        passed = head.seq == 0
        position = EMPTY_HEAD
        for entry in store.read(name):
            step = verify_chain(name, position, [entry])
            if isinstance(step, ChainBreak):
                found.append(step.reason)
                break
            position = step
            if position.seq == head.seq:
                passed = position.hash == head.hash
        if not passed:
            found.append(f"{name} does not pass through the head that was kept")
        if position.seq != store.head(name).seq:
            found.append(f"{name} ends elsewhere than its head")
    return found


@dataclass
class Child:
    """A forked process that runs `work(acknowledge)`. Fork before anything is opened in the parent."""

    pid: int
    pipe: int

    @classmethod
    def running(cls, work: Callable[[Callable[[str], None]], None]) -> Child:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            try:
                work(lambda line: os.write(writing, line.encode() + b"\n"))
            except BaseException:  # noqa: BLE001  # reported to the parent
                os.write(writing, traceback.format_exc().encode()[-60_000:])
            finally:
                os._exit(0)
        os.close(writing)
        return cls(pid, reading)

    def wait_for(self, lines: int) -> list[str]:
        """Reads until so many lines are acknowledged, or the child ends."""
        raw = b""
        while raw.count(b"\n") < lines and (more := os.read(self.pipe, 65536)):
            raw += more
        return raw.decode().splitlines()

    def kill(self, after_seconds: float = 0.0) -> list[str]:
        """Ends it with SIGKILL; returns what it had acknowledged and was not read yet."""
        select.select([], [], [], after_seconds)
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def end(self) -> list[str]:
        """Waits for its end; returns what it acknowledged and was not read yet."""
        raw = b""
        while more := os.read(self.pipe, 65536):
            raw += more
        os.close(self.pipe)
        os.waitpid(self.pid, 0)
        return raw.decode().splitlines()
