"""Promise 17: erased content is gone from every file, everything else is intact, and the erasure is recorded.

A unique word is searched for in every file, before (the control: it is found) and after.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import apsw
import pytest
from own_postgres import own_server
from witness import Child, draft, findings

from recto.config import Settings, load
from recto.config.factory import derived_folders, make_indexer
from recto.engine.erasure import ERASED, ERASURE_SESSION, FINISHED, Eraser, erasable_sessions, read_erasures
from recto.engine.verification import verify
from recto.errors import IndexCorrupt, InputError, StoreReadOnly, TailCut, UnknownSession
from recto.gateway.lineage import Lineage, LineagePoint
from recto.stores.memory import MemoryIndex, MemoryStore
from recto.stores.postgres import PostgresStore, grant_role
from recto.stores.sqlite import SqliteStore
from recto.stores.sqlite.index import SqliteIndex
from recto.testing import FakeClock
from recto.transcript.entries import EMPTY_HEAD, Head
from recto.transcript.session_keys import TenantStore, stored_key

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(300)]
CANARY = "zyxwvquetzal"
OTHER = "kept-beside-it"
ACME, GLOBEX = stored_key("agent:a:main", "acme"), stored_key("agent:a:main", "globex")


def drafts_with(name: str, word: str, size: int = 10) -> list:
    text = f"{word} " * size
    body = json.dumps({"role": "user", "content": f"{name} {text}"}).encode()
    return [draft(f"{name}.{number}", body) for number in range(40)]


def with_word(folder: Path, word: str) -> list[str]:
    """Returns the files below a folder that contain a word, in any of the encodings that are used."""
    forms = [word.encode(), word.encode("utf-16-le"), word.encode().hex().encode()]
    found = []
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                content = (Path(base) / name).read_bytes()
                if any(form in content for form in forms):
                    found.append(name)
    return sorted(found)


def eraser(store, index, reason="asked for") -> Eraser:
    return Eraser(store=store, index=index, clock=FakeClock(), by="Ada", reason=reason)


def filled(store, settings: Settings) -> None:
    """Fills a store with small and large indexed messages of two tenants and of one session without a tenant."""
    for session, word in ((ACME, CANARY), ("plain", CANARY), (GLOBEX, OTHER)):
        store.append(session, drafts_with(f"small {word}", word))
        store.append(session, drafts_with("large", word, 4_000)[:3])
    with contextlib.closing(make_indexer(settings, store)) as indexer:
        for session in (ACME, "plain", GLOBEX):
            indexer.try_catch_up(session)


@pytest.fixture
def settings(tmp_path) -> Settings:
    return load(arguments={"store": str(tmp_path / "transcript.db")})


def test_no_byte_of_an_erased_session_remains_in_any_file(tmp_path, settings):
    path = Path(settings.store)
    with SqliteStore(path) as store:
        filled(store, settings)
        with SqliteIndex(f"{path}-recall") as index:
            (tmp_path / "transcript.db-recall-damaged-1").write_text(CANARY)
            assert {"transcript.db", "transcript.db-wal"} & set(with_word(tmp_path, CANARY)), "the control"
            doing = eraser(store, index)
            done = list(doing.erase([ACME, "plain"]))
            doing.clean_up([ACME, "plain"], [], scrub=True)
            assert with_word(tmp_path, CANARY) == []
            assert not {ACME, "plain"}.intersection(index.sessions())
            assert [len(list(store.terms(session))) for session in (ACME, "plain", GLOBEX)] == [0, 0, 43]
        assert [erasure.entries for erasure in done] == [43, 43]
        assert findings(store) == []
        assert sum(1 for _ in store.read(GLOBEX)) == 43
    assert with_word(tmp_path, CANARY) == []
    assert "transcript.db" in with_word(tmp_path, OTHER)


def test_removing_rows_alone_leaves_bytes_in_the_file(tmp_path):
    path = tmp_path / "transcript.db"
    with SqliteStore(path) as store:
        store.append("plain", drafts_with("one", CANARY, 2_000))
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA secure_delete=OFF; DROP TRIGGER entries_stay; DELETE FROM entries")
    connection.close()
    assert with_word(tmp_path, CANARY) != []


def test_no_byte_of_an_erased_tenant_remains_in_the_files_of_a_database():
    with own_server() as server:
        server.start("wal_recycle=off", "min_wal_size=32MB", "autovacuum=off")
        url = server.made("erased")
        settings = load(arguments={"store": url})
        with PostgresStore(url) as store:
            filled(store, settings)
            with server.admin("erased") as connection:
                connection.execute("ANALYZE; CHECKPOINT")
            assert with_word(server.files / "base", CANARY) != []
            with contextlib.closing(store.index(lock_timeout=20)) as index:
                doing = eraser(store, index)
                assert [erasure.session for erasure in doing.erase([*erasable_sessions(store, "acme"), "plain"])] == [
                    ACME,
                    "plain",
                ]
                with server.admin() as connection:
                    connection.execute("CHECKPOINT")
                assert with_word(server.files / "base", CANARY) != [], "the control: rows alone are not bytes"
                doing.clean_up([ACME, "plain"], [], scrub=True)
                assert not {ACME, "plain"}.intersection(index.sessions())
                assert [len(list(store.terms(session))) for session in (ACME, "plain", GLOBEX)] == [0, 0, 43]
            with server.admin() as connection:  # as the server does by itself in time
                for _ in range(2):
                    connection.execute("SELECT pg_switch_wal()")
                    connection.execute("CHECKPOINT")
            assert with_word(server.files, CANARY) == []
            assert with_word(server.files, OTHER) != []
            assert findings(store) == []
            assert verify(store).ok
            _refused_to_a_gateway(server, url, store)


def _refused_to_a_gateway(server, url: str, store: PostgresStore) -> None:
    with server.admin() as connection:
        connection.execute("CREATE ROLE narrow LOGIN")
    key = grant_role(url, "narrow")
    narrow = PostgresStore(server.address("erased", "narrow"), key=key, lock_timeout=10)
    with narrow, pytest.raises(StoreReadOnly, match="owner"):
        narrow.erase(GLOBEX)
    assert store.head(GLOBEX).seq == 43


@pytest.fixture(params=["memory", "sqlite"])
def pair(request, tmp_path):
    """A store and its index."""
    if request.param == "memory":
        yield MemoryStore(), MemoryIndex()
        return
    with SqliteStore(tmp_path / "a.db") as store, SqliteIndex(tmp_path / "a.db-recall") as index:
        yield store, index


def test_an_erasure_records_who_did_it_why_and_where_the_chain_ended(pair):
    store, index = pair
    store.append("gone", drafts_with("one", "x"))
    head = store.head("gone")
    [done] = eraser(store, index, "the user asked").erase(["gone"])
    assert (done.session, done.end, done.by, done.reason) == ("gone", head, "Ada", "the user asked")
    assert read_erasures(store) == {"gone": [done]}
    assert [entry.kind for entry in store.read(ERASURE_SESSION)] == [ERASED, FINISHED]
    assert verify(store).ok
    assert list(eraser(store, index).erase(["gone"])) == [done], "a second erasure changes nothing"
    assert store.head(ERASURE_SESSION).seq == 2


def test_nothing_is_erased_without_a_reason_or_a_session(pair):
    store, index = pair
    for by, reason in (("", "why"), ("Ada", " ")):
        with pytest.raises(InputError):
            Eraser(store=store, index=index, clock=FakeClock(), by=by, reason=reason)
    with pytest.raises(UnknownSession):
        list(eraser(store, index).erase(["never was"]))
    with pytest.raises(InputError, match="tenant"):
        erasable_sessions(store, "nobody")
    assert store.head(ERASURE_SESSION) == EMPTY_HEAD


def test_external_heads_agree_with_an_erasure_or_are_reported(pair):
    store, index = pair
    store.append("gone", drafts_with("one", "x")[:5])
    early = store.head("gone")
    store.append("gone", drafts_with("two", "x")[:5])
    end = store.head("gone")
    list(eraser(store, index).erase(["gone"]))
    for head in (early, end):
        result = verify(store, heads={"gone": head})
        assert (result.ok, result.erased) == (True, ("gone",))
        assert verify(store, "gone", heads={"gone": head}).ok
    for head in (Head(11, end.hash), Head(10, early.hash)):
        assert not verify(store, heads={"gone": head}).ok
    assert not verify(store, heads={"never recorded": end}).ok
    store.append("gone", drafts_with("three", "x")[:2])
    assert verify(store, heads={"gone": end}).ok, "the head of the erased session"
    assert not verify(store, heads={"gone": Head(1, end.hash)}).ok


def test_removing_a_session_without_a_record_is_detected(tmp_path):
    with SqliteStore(tmp_path / "a.db") as store, SqliteIndex(tmp_path / "a.db-recall") as index:
        for _ in range(2):  # also after a session of that name was erased properly
            store.append("gone", drafts_with("one", "x")[:3])
            heads = (tmp_path / "a.db-heads").read_bytes()
            if store.head(ERASURE_SESSION) == EMPTY_HEAD:
                list(eraser(store, index).erase(["gone"]))
        store.erase("gone")
        (tmp_path / "a.db-heads").write_bytes(heads)
        assert [found.session for found in verify(store).findings] == ["gone"]
        with pytest.raises(TailCut):
            list(eraser(store, index).erase(["gone"]))


def test_an_interrupted_erasure_is_finished_when_it_is_requested_again(tmp_path):
    for steps in range(6):
        folder = tmp_path / str(steps)
        folder.mkdir()
        path = folder / "a.db"
        with SqliteStore(path) as store:
            store.append("gone", drafts_with("one", CANARY, 300))
            store.append("stays", drafts_with("two", OTHER))

        def work(acknowledge, path=path, steps=steps) -> None:
            with SqliteStore(path) as store, SqliteIndex(f"{path}-recall") as index:
                dying = eraser(_Dying(store, steps), index)
                list(dying.erase(["gone"]))
                dying.clean_up(["gone"], [], scrub=True)

        Child.running(work).end()
        with SqliteStore(path) as store, SqliteIndex(f"{path}-recall") as index:
            assert verify(store).ok, "interrupted, and no false alarm"
            again = eraser(store, index, "another reason")
            [done] = again.erase(["gone"])
            again.clean_up(["gone"], [], scrub=True)
            assert done.reason == ("asked for" if steps > 0 else "another reason")
            assert [erasure.is_finished for erasure in read_erasures(store)["gone"]] == [True]
            assert [line.session for line in store.sessions()] == [ERASURE_SESSION, "stays"]
            assert list(store.kept_heads()) == ["stays", ERASURE_SESSION]
            assert findings(store) == []
        assert with_word(folder, CANARY) == []


class _Dying:
    """A store whose process exits after a number of writes; the heads of an erasure lag behind it."""

    def __init__(self, store: SqliteStore, steps: int) -> None:
        self._store = store
        self._left = steps

    def __getattr__(self, name):
        return getattr(self._store, name)

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            os._exit(0)

    def append(self, *args, **kwargs):
        self._step()
        return self._store.append(*args, **kwargs)

    def erase(self, session, *, expect=None):
        self._step()
        if self._left == 0:  # in the middle: the rows are gone, the head outside is still there
            heads = Path(f"{self._store.location}-heads")
            before = heads.read_bytes()
            self._store.erase(session, expect=expect)
            heads.write_bytes(before)
            os._exit(0)
        return self._store.erase(session, expect=expect)

    def scrub(self, sessions):
        self._step()
        return self._store.scrub(sessions)


def test_erasing_a_tenant_removes_its_notes_and_memory_and_no_other_tenant(tmp_path, settings):
    with SqliteStore(settings.store) as store, SqliteIndex(f"{settings.store}-recall") as index:
        notes = ("recto:lineage/acme/0f", "recto:lineage/acmes/0f", "recto:lineage//0f")
        for session in (ACME, stored_key("b", "acme"), stored_key("b", "acmes"), GLOBEX, "plain", *notes):
            store.append(session, drafts_with("one", "x")[:2])
        for whose in ("tenant-acme", "tenant-acmes", "own"):
            (tmp_path / "transcript.db-memory" / whose / "a").mkdir(parents=True)
        names = erasable_sessions(store, "acme")
        assert names == [notes[0], ACME, stored_key("b", "acme")]
        doing = eraser(store, index)
        list(doing.erase(names))
        doing.clean_up(names, derived_folders(settings, store, names, "acme"), scrub=True)
        left = {line.session for line in store.sessions()} - {ERASURE_SESSION}
        assert left == {stored_key("b", "acmes"), GLOBEX, "plain", *notes[1:]}
        left = {folder.name for folder in (tmp_path / "transcript.db-memory").iterdir()}
        assert left == {"own", "tenant-acmes"}
        assert erasable_sessions(store, "acme") == names, "a second request still lists the erased sessions"
        assert verify(store).ok


def test_a_damaged_index_does_not_keep_a_session_alive(tmp_path):
    path = tmp_path / "a.db"
    with SqliteStore(path) as store, SqliteIndex(f"{path}-recall") as index:
        store.append("gone", drafts_with("one", CANARY))
        (tmp_path / "a.db-recall").write_bytes(b"SQLite format 3\0" + CANARY.encode() * 1000)
        with pytest.raises(IndexCorrupt):
            index.sessions()
        doing = eraser(store, index)
        list(doing.erase(["gone"]))
        doing.clean_up(["gone"], [], scrub=True)
        assert with_word(tmp_path, CANARY) == []


def test_another_process_with_the_store_open_sees_the_erasure_and_goes_on(tmp_path):
    path = tmp_path / "a.db"
    with SqliteStore(path) as first, SqliteStore(path) as second:
        for number in range(3):
            first.append("gone", [draft(f"old {number}")])
        second.append("gone", [draft("old 3")])
        first.append("gone", [draft("old 4")])
        assert second.erase("gone").seq == 5
        second.scrub(["gone"])
        assert first.head("gone") == EMPTY_HEAD
        [entry] = first.append("gone", [draft("new")])
        assert entry.seq == 1
        assert findings(first) == findings(second) == []


def test_a_gateway_does_not_continue_a_conversation_from_an_erased_session(tmp_path):
    with SqliteStore(tmp_path / "a.db") as store:
        store.append("gone", drafts_with("one", "x")[:4])
        lineage, view = Lineage(FakeClock()), TenantStore(store)
        lineage.record(view, b"a history", LineagePoint(session="gone", seq=4))
        assert lineage.find(view, b"a history") == LineagePoint(session="gone", seq=4)
        store.erase("gone")
        assert lineage.find(view, b"a history") is None
