"""Recorded sessions, each parsed once into a file of a temporary folder and replayed under any settings.

Only the sessions that are being replayed are in memory, and none is parsed twice.
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
from recto.lab.recordings import RecordingClock, iter_sessions
from recto.lab.search_space import Subject
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE, Entry

_KEY_MESSAGES = 6
"""Messages that identify a session: a resumed or branched copy begins with them too."""

_BYTES_PER_PROCESS = 400_000
"""Bytes to replay from which another process pays for its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRecording:
    """One session in its own file."""

    key: str
    """Fingerprint of its beginning: two sessions with one key are the same, or branches of it."""
    file: Path
    size: int
    """Bytes of its messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    recording: TuneRecording
    settings: Settings


def load_recordings(settings: Settings, files: Iterable[Path], folder: Path) -> list[TuneRecording]:
    """Reads every session with a response from the files; duplicates are dropped."""
    recordings: dict[str, TuneRecording] = {}
    for file in files:
        for entries in iter_sessions(settings, file):
            messages = [entry for entry in entries if entry.kind == MESSAGE]
            if not any(entry.role == "assistant" for entry in messages[1:]):
                continue
            digest = sha256(b"\n".join(entry.content for entry in messages)).hexdigest()
            if digest not in recordings:
                target = folder / digest
                target.write_bytes(pickle.dumps(entries))
                size = sum(len(entry.content) for entry in entries)
                recordings[digest] = TuneRecording(key=_fingerprint(messages[:_KEY_MESSAGES]), file=target, size=size)
    return [recordings[digest] for digest in sorted(recordings)]


def make_measure(
    subject: Subject, sessions: Sequence[TuneRecording], jobs: int | None, advance: Advance
) -> Callable[[Candidate, Sequence[int]], list[Backtest]]:
    """Returns a function that replays sessions under a candidate, in `jobs` processes or in as many as pay off."""

    def measure(values: Candidate, places: Sequence[int]) -> list[Backtest]:
        settings = subject.apply(values)
        tasks = [_Task(recording=sessions[place], settings=settings) for place in places]
        worth = sum(sessions[place].size for place in places) // _BYTES_PER_PROCESS
        processes = jobs or max(1, min(os.cpu_count() or 1, worth))
        return list(in_processes(_measure_recording, tasks, processes, advance, size=lambda task: task.recording.size))

    return measure


def _measure_recording(task: _Task, advance: Advance) -> Backtest:
    """Replays one session; runs in any process."""
    clock = RecordingClock()
    entries: list[Entry] = pickle.loads(task.recording.file.read_bytes())  # noqa: S301  # written by this program

    def feed() -> Iterator[Entry]:
        for entry in entries:
            advance(len(entry.content))
            yield entry
            clock.reach(entry.ts)

    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(task.settings, store)) as indexer,
        closing(open_session(task.settings, store, indexer, clock=clock)) as session,
    ):
        return backtest(session, feed())


def _fingerprint(messages: Iterable[Entry]) -> str:
    """Hashes roles and texts, without times and ids."""
    digest = sha256()
    for entry in messages:
        text = read(entry.content, entry.wire).text
        digest.update(f"{entry.role}\n{len(text)}\n{text}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
