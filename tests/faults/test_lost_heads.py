"""Writes of the heads file that a power cut lost are no damage; a transcript that was cut back is still found.

The heads file is written without waiting for the disk. So after a power cut any of its writes since the last sync may
be missing: each of these files is built and put beside the transcript as it was.
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
from recto.stores.sqlite import SqliteStore, heads_file

NAME = "transcript.db"
SESSIONS = ("a", "b", "long" + "-name" * 40)
Write = tuple[int, bytes]


class Disk:
    """Notes what is written to the heads file, and forgets it when it is synced."""

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

    def left_by_a_power_cut(self) -> Iterator[bytes]:
        """The file with each subset of the writes that were not synced."""
        for kept in itertools.product((False, True), repeat=len(self.waiting)):
            content = bytearray(self.synced)
            for (offset, data), is_kept in zip(self.waiting, kept, strict=True):
                if is_kept:
                    content.extend(bytes(max(0, offset + len(data) - len(content))))
                    content[offset : offset + len(data)] = data
            yield bytes(content)


@pytest.fixture
def states(swift_folder, monkeypatch) -> Iterator[tuple[Path, bytes]]:
    """The transcript after each append, with each file of heads that a power cut could leave beside it."""
    return _states(swift_folder, monkeypatch)


def _states(folder: Path, monkeypatch) -> Iterator[tuple[Path, bytes]]:
    live, count = folder / "live", itertools.count()
    live.mkdir()
    disk = Disk(live)
    monkeypatch.setattr(heads_file.os, "pwrite", disk.pwrite)
    monkeypatch.setattr(heads_file.os, "fsync", disk.fsync)
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
            snapshots.append((snapshot, list(disk.left_by_a_power_cut())))
    monkeypatch.undo()
    return ((snapshot, heads) for snapshot, files in snapshots for heads in files)


def put_together(transcript: Path, heads: bytes, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(transcript, folder)
    (folder / f"{NAME}-heads").write_bytes(heads)
    return folder / NAME


def test_heads_that_lost_writes_are_no_damage_and_are_brought_forward(states, swift_folder):
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


def test_a_transcript_that_was_cut_back_behind_its_head_is_found(states, swift_folder):
    """An older transcript beside newer heads: found wherever a head that is ahead of it reached the disk."""
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


def test_a_record_that_is_not_zero_and_not_whole_is_still_damage(states, swift_folder):
    *_, (transcript, heads) = states
    for offset in (1, 70, 2 * 64 + 5, 2 * 64 + 7):
        bent = bytearray(heads)
        bent[heads_file.RECORD + offset] ^= 1
        path = put_together(transcript, bytes(bent), swift_folder / "cut")
        with SqliteStore(path) as store:
            assert any("is damaged where it keeps the end of session number 1" in line for line in store.damage())


def test_the_command_brings_them_forward_and_says_so(states, swift_folder):
    *_, (transcript, heads) = states
    path = put_together(transcript, heads[: heads_file.RECORD], swift_folder / "cut")  # all but the header is lost
    first, second = (called("--store", str(path), "verify") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert "they are up to date again" in first.stdout
    assert "up to date" not in second.stdout
    with SqliteStore(path) as store:
        assert verify(store).behind == ()
