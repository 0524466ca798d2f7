"""Recorded sessions, each set apart once, and gone through again under whatever settings.

Each session waits in a file of a folder that goes with the command, read and counted already: only those that are gone
through at the moment are in memory, and none is read a second time in the format it came in.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from recto.cli.console import Advance
from recto.config import Settings
from recto.config.factory import make_indexer, open_session
from recto.formats import read
from recto.lab.backtest import Backtest, backtest
from recto.lab.objective import Candidate
from recto.lab.process_pool import in_processes
from recto.lab.recordings import RecordedTime, sessions_of
from recto.lab.search_space import Subject
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE, Entry

_BEGINNING = 6
"""Messages by which a session is known: one that was resumed or branched elsewhere begins with them too."""

_WORTH_A_PROCESS = 400_000
"""Bytes to go through from which on another process pays for its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One session, set apart."""

    key: str
    """What its beginning is: two sessions with one key are one, or branches of one."""
    file: Path
    size: int
    """Bytes of what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    recording: Recording
    settings: Settings


def recordings(settings: Settings, files: Iterable[Path], folder: Path) -> list[Recording]:
    """Every session of the files in which a model was asked; what was given twice is there once."""
    found: dict[str, Recording] = {}
    for file in files:
        for entries in sessions_of(settings, file):
            said = [entry for entry in entries if entry.kind == MESSAGE]
            if not any(entry.role == "assistant" for entry in said[1:]):
                continue
            whole = sha256(b"\n".join(entry.content for entry in said)).hexdigest()
            if whole not in found:
                place = folder / whole
                place.write_bytes(pickle.dumps(entries))
                size = sum(len(entry.content) for entry in entries)
                found[whole] = Recording(key=_print(said[:_BEGINNING]), file=place, size=size)
    return [found[whole] for whole in sorted(found)]


def measuring(
    subject: Subject, sessions: Sequence[Recording], jobs: int | None, advance: Advance
) -> Callable[[Candidate, Sequence[int]], list[Backtest]]:
    """What sessions come to under a candidate: in so many processes, or in as many as there are cores and work for."""

    def measure(values: Candidate, places: Sequence[int]) -> list[Backtest]:
        settings = subject.under(values)
        tasks = [_Task(recording=sessions[place], settings=settings) for place in places]
        worth = sum(sessions[place].size for place in places) // _WORTH_A_PROCESS
        many = jobs or max(1, min(os.cpu_count() or 1, worth))
        return list(in_processes(_measured, tasks, many, advance, size=lambda task: task.recording.size))

    return measure


def _measured(task: _Task, advance: Advance) -> Backtest:
    """In whichever process."""
    time = RecordedTime()
    entries: list[Entry] = pickle.loads(task.recording.file.read_bytes())  # noqa: S301  # written by us, read by us

    def passed() -> Iterator[Entry]:
        for entry in entries:
            advance(len(entry.content))
            yield entry
            time.reach(entry.ts)

    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(task.settings, store)) as indexer,
        closing(open_session(task.settings, store, indexer, clock=time)) as session,
    ):
        return backtest(session, passed())


def _print(said: Iterable[Entry]) -> str:
    """What was said, without when and by which id."""
    digest = sha256()
    for entry in said:
        text = read(entry.content, entry.wire).text
        digest.update(f"{entry.role}\n{len(text)}\n{text}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
