"""A failing embedder, a failing index, a full disk: nothing unindexed leaves, the turn goes on, the alert is there."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest
from leaving import DECISIONS, Moody, decisions, entered, events, evicted, settings, speak, unfindable

from recto.config.factory import open_session
from recto.errors import EmbedderFailed, WindowOverflow
from recto.recall.index import bm25
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteStore

pytestmark = pytest.mark.timeout(120)


def talk(session, turns, start=0):
    for number in range(start, start + turns):
        speak(session, number)
        session.append({"role": "user", "content": "Go on."})
        session.prompt()


@pytest.mark.parametrize("mood", ["fails", "breaks", "lies", "shrinks"])
def test_with_an_embedder_that_fails_units_leave_by_their_words_and_the_alert_is_raised_once(tmp_path, mood):
    embedder = Moody()
    embedder.mood = mood
    session, _ = entered(MemoryStore(), tmp_path / "i", embedder)
    talk(session, 20)
    made = decisions(session)
    assert made
    for decision in made:
        assert decision["indexed"].startswith("words alone: embedder 'moody/1'")
    assert len(events(session, "index_failed")) == 1
    assert events(session, "index_failed")[0]["words"] is True
    assert unfindable(session) == []
    embedder.mood = "works"
    talk(session, 15, start=100)
    assert decisions(session)[-1]["indexed"] == "words and vectors"
    assert len(events(session, "index_failed")) == 1
    embedder.mood = mood
    talk(session, 15, start=200)
    assert len(events(session, "index_failed")) == 2, "a new failure after it had worked is told anew"
    assert unfindable(session) == []


def test_an_embedder_that_hangs_holds_up_a_turn_no_longer_than_its_limit(tmp_path):
    embedder = Moody()
    embedder.mood = "hangs"
    session, indexer = entered(MemoryStore(), tmp_path / "i", embedder, index_seconds=0.3)
    slowest = 0.0
    for number in range(20):
        speak(session, number)
        session.append({"role": "user", "content": "Go on."})
        started = time.monotonic()
        session.prompt()
        slowest = max(slowest, time.monotonic() - started)
    assert 0.25 < slowest < 3.0
    assert all(decision["indexed"].startswith("words alone") for decision in decisions(session))
    assert evicted(session)
    assert unfindable(session) == []
    embedder.mood = "works"
    embedder.gate.set()
    talk(session, 15, start=100)
    assert decisions(session)[-1]["indexed"] == "words and vectors"
    indexer.close()


def test_without_an_index_nothing_leaves_and_the_overflow_says_why_and_what_to_do(tmp_path):
    session, indexer = entered(MemoryStore(), tmp_path / "i")
    indexer.index.close()
    with pytest.raises(WindowOverflow) as refused:
        talk(session, 100)
    assert decisions(session) == []
    assert "closed" in refused.value.kept_by
    assert "could not be recalled" in str(refused.value)
    assert "doctor" in str(refused.value)
    assert events(session, "window_overflow")[-1]["index"] == refused.value.kept_by
    [failed] = events(session, "index_failed")
    assert failed["words"] is False


def test_messages_that_leave_unindexed_would_be_seen(tmp_path):
    store = MemoryStore()
    talk(open_session(settings(enabled=False), store), 20)
    looking, _ = entered(store, tmp_path / "i")
    assert len(evicted(looking)) > 10
    assert len(unfindable(looking, catches_up=False)) > 10
    assert unfindable(looking) == []


def test_what_others_write_while_the_index_is_asked_lets_nothing_leave_that_was_not_asked_for(tmp_path):
    store = MemoryStore()

    class Interrupted(Moody):
        """While it is asked, somebody else writes to the session; then it fails."""

        def documents(self, texts):
            if len(written) < 3:
                written.append(other.append({"role": "assistant", "content": "it sings " * 400}))
            raise EmbedderFailed(self.name, "the plug is out")

    written: list = []
    other = open_session(settings(), store)
    session, indexer = entered(store, tmp_path / "i", Interrupted(), inject=False)
    asked: set[int] = set()
    gone: list[set[int]] = []
    confirm = indexer.confirm
    indexer.confirm = lambda name, seqs, seconds: (asked.update(seqs), confirm(name, seqs, seconds))[1]
    session.window.listen(lambda entry: gone.append(evicted(session) - asked) if entry.kind in DECISIONS else None)
    talk(session, 30)
    assert len(written) == 3
    assert gone
    assert all(not unasked for unasked in gone)


def ways_to_be_broken(path: Path):
    def folder():
        path.mkdir()

    def another_kind():
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE mine(x)")
        connection.close()

    return {"a folder": folder, "a database of somebody else": another_kind}


@pytest.mark.parametrize("way", ["a folder", "a database of somebody else"])
def test_where_something_else_is_in_its_place_the_session_opens_and_nothing_leaves(tmp_path, way):
    ways_to_be_broken(tmp_path / "a.db-recall")[way]()
    with open_session(settings(), SqliteStore(tmp_path / "a.db")) as session:
        with pytest.raises(WindowOverflow):
            talk(session, 100)
        assert decisions(session) == []
        assert len(events(session, "index_failed")) == 1
        session.store.close()


def damage(path: Path, how: str) -> None:
    if how == "garbage":
        path.write_bytes(b"garbage" * 5_000)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:5_000])
    elif how == "rows":
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE fresh SET data = x'00'; UPDATE sealed SET data = x'00'")
        assert connection.total_changes(), "there is nothing to damage"
        connection.close()
    else:
        content = bytearray(path.read_bytes())
        content[100 : len(content)] = b"\x5a" * (len(content) - 100)
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["garbage", "cut", "rows", "all but the header"])
def test_a_damaged_index_is_mended_without_anybody_doing_anything(tmp_path, how, monkeypatch):
    monkeypatch.setattr(bm25, "SEAL_AT", 8)
    for start in (0, 100):
        with open_session(settings(), SqliteStore(tmp_path / "a.db")) as session:
            talk(session, 15, start=start)
            assert evicted(session)
            assert unfindable(session) == []
            session.store.close()
        damage(tmp_path / "a.db-recall", how)
        for ending in ("-wal", "-shm"):
            (tmp_path / f"a.db-recall{ending}").unlink(missing_ok=True)
    with open_session(settings(), SqliteStore(tmp_path / "a.db")) as session:
        talk(session, 15, start=200)
        assert unfindable(session) == []
        assert not events(session, "window_overflow")
        assert all(decision["indexed"] == "words and vectors" for decision in decisions(session))
        session.store.close()
    assert list(tmp_path.glob("a.db-recall-damaged-*"))


def test_an_index_that_is_damaged_under_an_open_session_is_mended_too(tmp_path):
    with open_session(settings(), SqliteStore(tmp_path / "a.db")) as session:
        talk(session, 15)
        (tmp_path / "garbage").write_bytes(b"garbage" * 5_000)
        (tmp_path / "a.db-recall-wal").unlink()
        (tmp_path / "garbage").rename(tmp_path / "a.db-recall")
        talk(session, 15, start=100)
        assert unfindable(session) == []
        session.store.close()


def test_a_question_goes_on_by_words_where_the_embedder_fails_and_says_so(tmp_path):
    embedder = Moody()
    embedder.mood = "breaks"
    session, _ = entered(MemoryStore(), tmp_path / "i", embedder)
    speak(session, 1)
    found = session.recall("kestrel2q")
    assert [hit.seq for hit in found.hits][:1] == [1]
    assert any("moody/1" in note for note in found.notes)
    embedder.mood = "works"
    assert not session.recall("kestrel2q").notes


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "ballast").open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def empty(folder: Path) -> None:
    (folder / "ballast").unlink()


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [
        (fill, empty),
        (lambda folder: remount(folder, "ro"), lambda folder: remount(folder, "rw")),
    ],
    ids=["full", "read-only"],
)
@pytest.mark.parametrize("begins", ["broken", "whole"])
def test_a_disk_that_takes_nothing_keeps_what_fits_in_the_prompt_until_it_does(small_disk, breaks, mends, begins):
    store = MemoryStore()
    session, indexer = entered(store, small_disk / "i", Moody())
    if begins == "whole":
        talk(session, 15)
    indexer.close()
    before, made = evicted(session), len(decisions(session))
    breaks(small_disk)
    session, indexer = entered(store, small_disk / "i", Moody())
    with closing(indexer):
        if begins == "broken":
            with pytest.raises(WindowOverflow) as refused:
                talk(session, 100, start=100)
            assert refused.value.kept_by
            assert evicted(session) <= before, "something left though the index cannot be searched"
        else:  # words are in the transcript, so what does not fit may leave; vectors cannot be stored
            with suppress(WindowOverflow):
                talk(session, 30, start=100)
            for decision in decisions(session)[made:]:
                assert decision["indexed"].startswith("words alone")
        assert len(events(session, "index_failed")) == 1
        mends(small_disk)
        talk(session, 15, start=300)
        assert not evicted(session) <= before
        assert decisions(session)[-1]["indexed"] == "words and vectors"
        assert unfindable(session) == []
