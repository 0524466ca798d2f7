"""Heads-file writes lost in a power cut are not damage; a truncated transcript is still detected.

The heads file is written without waiting for the disk. So after a power cut any of its writes since the last sync may
be missing: each of these files is built and put next to the transcript.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.calling import called
from witness import draft

from recto.engine.verification import verify
from recto.errors import TailCut
from recto.stores.sqlite import SqliteStore, connection

NAME = "transcript.db"
SESSIONS = ("a", "b", "long" + "-name" * 40)
Write = tuple[int, bytes]


class Disk:
    """Records the writes to the heads file since its last sync."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{NAME}-heads"
        self.synced = b""
        self.waiting: list[Write] = []
        self._pwrite, self._fsync = os.pwrite, os.fsync

    def pwrite(self, file: int, data: bytes, offset: int) -> int:
        self.waiting.append((offset, bytes(data)))
        return self._pwrite(file, data, offset)

    def fsync(self, file: int) -> None:
        self._fsync(file)
        self.synced, self.waiting = self.path.read_bytes(), []

    def states_after_a_power_cut(self) -> Iterator[bytes]:
        """Yields the file with each subset of the unsynced writes."""
        for applied in itertools.product((False, True), repeat=len(self.waiting)):
            content = bytearray(self.synced)
            for (offset, data), is_applied in zip(self.waiting, applied, strict=True):
                if is_applied:
                    content.extend(bytes(max(0, offset + len(data) - len(content))))
                    content[offset : offset + len(data)] = data
            yield bytes(content)


@pytest.fixture
def states(swift_folder, monkeypatch) -> Iterator[tuple[Path, bytes]]:
    """The transcript after each append, with each heads file that a power cut could leave next to it."""
    return _states(swift_folder, monkeypatch)


def _states(folder: Path, monkeypatch) -> Iterator[tuple[Path, bytes]]:
    live, count = folder / "live", itertools.count()
    live.mkdir()
    disk = Disk(live)
    monkeypatch.setattr(connection.os, "pwrite", disk.pwrite)
    monkeypatch.setattr(connection.os, "fsync", disk.fsync)
    snapshots = []
    with SqliteStore(live / NAME) as store:
        for session in (SESSIONS[0], SESSIONS[1], SESSIONS[0], SESSIONS[2], SESSIONS[1], SESSIONS[0], SESSIONS[2]):
            number = next(count)
            store.append(session, [draft(f"{number}"), draft(f"{number} too")])
            snapshot = folder / f"after{number}"
            snapshot.mkdir()
            for file in live.iterdir():
                if not file.name.endswith(("-heads", "-lock", "-shm")):
                    shutil.copy(file, snapshot)
            snapshots.append((snapshot, list(disk.states_after_a_power_cut())))
    monkeypatch.undo()
    return ((snapshot, heads) for snapshot, files in snapshots for heads in files)


def put_together(transcript: Path, heads: bytes, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(transcript, folder)
    (folder / f"{NAME}-heads").write_bytes(heads)
    return folder / NAME


def test_heads_with_lost_writes_are_not_damage_and_are_brought_up_to_date(states, swift_folder):
    seen = behind = 0
    for transcript, heads in states:
        path = put_together(transcript, heads, swift_folder / "cut")
        with SqliteStore(path) as store:
            result = verify(store)
            assert result.findings == ()
            behind += bool(result.behind)
            for summary in store.sessions():
                store.append(summary.session, [draft(f"later {summary.session}")])
            after = verify(store)
            assert (after.findings, after.behind) == ((), ())
            assert {name: head.seq for name, head in store.kept_heads().items()} == {
                summary.session: summary.entries for summary in store.sessions()
            }
        seen += 1
    assert seen == sum(2**number for number in range(1, 8))
    assert behind > seen // 2


def test_a_transcript_truncated_behind_its_head_is_detected(states, swift_folder):
    """An older transcript with newer heads is detected if a head that is ahead of it reached the disk."""
    every = list(states)
    oldest = every[0][0]
    found = whole = 0
    for _, heads in every:
        path = put_together(oldest, heads, swift_folder / "cut")
        with SqliteStore(path) as store:
            ahead = [name for name, head in store.kept_heads().items() if head.seq > store.head(name).seq]
            assert verify(store).ok == (not ahead)
            for name in {*ahead} & {*SESSIONS}:
                with pytest.raises(TailCut):
                    store.append(name, [draft("after")])
        found, whole = found + bool(ahead), whole + (not ahead)
    assert found > len(every) // 2
    assert whole > 0


def test_a_partial_record_is_still_damage(states, swift_folder):
    *_, (transcript, heads) = states
    for offset in (1, 70, 2 * 64 + 5, 2 * 64 + 7):
        bent = bytearray(heads)
        bent[connection.RECORD + offset] ^= 1
        path = put_together(transcript, bytes(bent), swift_folder / "cut")
        with SqliteStore(path) as store:
            assert any("is damaged where it keeps the end of session number 1" in line for line in store.damage())


def test_the_verify_command_updates_the_heads_and_reports_it(states, swift_folder):
    *_, (transcript, heads) = states
    path = put_together(transcript, heads[: connection.RECORD], swift_folder / "cut")  # all but the header is lost
    first, second = (called("--store", str(path), "verify") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert "they are up to date again" in first.stdout
    assert "up to date" not in second.stdout
    with SqliteStore(path) as store:
        assert verify(store).behind == ()
