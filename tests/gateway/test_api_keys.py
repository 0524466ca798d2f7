"""API keys: a key is valid until it expires or is revoked, its secret is not stored, and no text of an unauthenticated
caller reaches the store.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from listening import PORT, RecordingApp, call_app

import recto
from recto.config import Settings
from recto.config.factory import make_importer
from recto.config.settings import GatewaySettings
from recto.engine.exporter import export_recto
from recto.engine.fork import fork
from recto.errors import InputError, UnknownKey
from recto.gateway.api_keys import SESSION, Key, Keys
from recto.gateway.middleware.auth import Guard
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteStore
from recto.testing import FakeClock
from recto.transcript.entries import event
from recto.transcript.session_keys import list_sessions

DAY = 24 * 3600 * 1_000_000


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    opened = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "a.db")
    yield opened
    opened.close()


def test_a_secret_finds_its_key_and_no_other(store):
    keys = Keys(store, FakeClock())
    key, secret = keys.add(Key(name="one", tenant="acme", rights=frozenset({"ask"}), requests_per_minute=5))
    other_key, other_secret = keys.add(Key(name="two"))
    assert keys.find(secret) == key
    assert keys.find(other_secret) == other_key
    assert (key.tenant, key.rights, key.requests_per_minute) == ("acme", {"ask"}, 5)
    assert key.id != other_key.id
    assert len(secret) == 46
    for wrong in (secret[:-1], secret + "x", secret.upper(), secret[3:], key.id, "", f'"{secret}"', f"{secret}\0"):
        assert keys.find(wrong) is None


def test_the_secret_of_a_key_is_not_stored(tmp_path):
    store = SqliteStore(tmp_path / "a.db")
    _, secret = Keys(store, FakeClock()).add(Key(name="one"))
    store.close()
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert b"key_added" in files
    assert secret.encode() not in files
    assert secret.removeprefix("rk-").encode() not in files


def test_a_key_revoked_by_another_process_is_refused_at_once(tmp_path):
    with SqliteStore(tmp_path / "a.db") as here, SqliteStore(tmp_path / "a.db") as there:
        mine, theirs = Keys(here, FakeClock()), Keys(there, FakeClock())
        key, secret = theirs.add(Key(name="one"))
        _, live_secret = theirs.add(Key(name="two"))
        assert mine.find(secret) == key
        assert theirs.revoke(key.id).revoked
        assert mine.find(secret) is None
        assert mine.find(live_secret) is not None
        assert theirs.revoke(key.id) == mine.list()[0]  # revoking it again changes nothing
        assert here.head(SESSION).seq == 3


def test_a_key_is_refused_after_it_expires():
    clock = FakeClock()
    keys = Keys(MemoryStore(), clock)
    key, secret = keys.add(Key(name="one", expires=clock.now() + DAY))
    assert keys.find(secret) == key
    assert keys.any_live()
    later = FakeClock(clock.now() + DAY)
    assert Keys(keys._store, later).find(secret) is None
    assert not Keys(keys._store, later).any_live()


def test_an_unknown_key_cannot_be_revoked(store):
    with pytest.raises(UnknownKey, match="recto keys list"):
        Keys(store, FakeClock()).revoke("nobody")


def test_after_a_backup_is_restored_only_its_keys_are_accepted(store):
    keys = Keys(store, FakeClock())
    _, secret = keys.add(Key(name="one"))
    assert keys.find(secret)
    keys._store = MemoryStore()
    assert keys.find(secret) is None
    other = Keys(keys._store, FakeClock())
    _, second = other.add(Key(name="two"))
    assert keys.find(secret) is None
    assert keys.find(second)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"id": "x", "name": "x", "rights": ["ask"]},
        {"id": "x", "name": "x", "rights": ["all"], "hash": "0" * 64},
        {"id": "x", "name": "x", "rights": [], "hash": "0" * 64},
        {"id": "", "name": "x", "rights": ["ask"], "hash": "0" * 64},
        {"id": "x", "name": "x", "rights": ["ask"], "hash": "00"},
        {"id": "x", "name": "x", "rights": ["ask"], "hash": "0" * 64, "tenant": "../etc"},
        {"id": "x", "name": "x", "rights": ["ask"], "hash": "0" * 64, "requests_per_minute": "many"},
        {"id": "x", "name": "x", "rights": ["ask"], "hash": "0" * 64, "a_limit_of_later": 5},
    ],
)
def test_an_event_with_invalid_fields_makes_no_key(store, fields):
    store.append(SESSION, [event(FakeClock(), "key_added", fields)])
    assert Keys(store, FakeClock()).list() == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": " "},
        {"name": "a\nb"},
        {"name": "x" * 65},
        {"tenant": "a/b"},
        {"agent": ""},
        {"agent": "a:b"},
        {"rights": frozenset()},
        {"rights": frozenset({"root"})},
        {"concurrency": -1},
        {"expires": 2**60},
        {"upstream": "x\x00"},
    ],
)
def test_a_key_with_invalid_fields_is_refused(wrong):
    with pytest.raises(InputError):
        replace(Key(name="good"), **wrong)


def test_no_caller_can_open_list_fork_or_import_the_session_of_keys(tmp_path):
    with SqliteStore(tmp_path / "a.db") as store:
        Keys(store, FakeClock()).add(Key(name="one"))
        for tenant in ("", "acme"):
            with pytest.raises(InputError, match="Recto's own"):
                recto.open(store, session=SESSION, tenant=tenant)
        with recto.open(store, session="agent:a:main") as session:
            session.append({"role": "user", "content": "key_added rk-"})
        assert [summary.session for summary in list_sessions(store)] == ["agent:a:main"]
        assert [summary.session for summary in list_sessions(store, limit=1)] == ["agent:a:main"]
        for source, target in ((SESSION, "agent:a:copy"), ("agent:a:main", SESSION)):
            with pytest.raises(InputError, match="Recto's own"):
                fork(store, source, target, clock=FakeClock())
        forged = b"".join(export_recto(store, [SESSION]))
    file = tmp_path / "forged.jsonl"
    file.write_bytes(forged)
    with SqliteStore(tmp_path / "b.db") as other:
        for keep_going in (False, True):
            with pytest.raises(InputError, match="Recto's own"):
                make_importer(Settings(), other).import_file(Path(file), keep_going=keep_going)
        with pytest.raises(InputError, match="Recto's own"):
            make_importer(Settings(), other).import_file(Path(file), session=SESSION)
        assert Keys(other, FakeClock()).list() == ()


MARK = "zzmark"
HOSTILE = [
    f"rk-{MARK}",
    f"rk-{MARK}' OR '1'='1",
    f"rk-{MARK}'; DROP TABLE entries; --",
    f'rk-"{MARK}"',
    f"rk-{MARK}\0",
    f"rk-{MARK}%00",
    f"rk-{MARK}%27%20OR%201=1",
    f"rk-{MARK}\u00e9\u00ff",
    f"rk-{MARK}" + "x" * 20_000,
    f"rk-{MARK}/../../etc/passwd",
    f"rk-{MARK}*",
    f"rk-{MARK}\\",
    f"rk-{MARK} {MARK}",
    f"rk-{MARK},rk-{MARK}",
    f"RK-{MARK}",
    f" rk-{MARK}",
    f"rk-{MARK}\t",
    f"{MARK}",
    "rk-",
    "",
    f"sk-{MARK}",
    f"rk-{MARK}{{{{7*7}}}}",
    f"rk-{MARK}\u2028".encode("utf-8", "replace").decode("latin-1"),
]
WAYS = [
    ("authorization", "Bearer {}"),
    ("authorization", "bearer {}"),
    ("authorization", "Bearer  {}"),
    ("authorization", "Basic {}"),
    ("authorization", "{}"),
    ("x-api-key", "{}"),
    ("x-goog-api-key", "{}"),
]


def test_without_a_valid_key_every_request_is_refused_and_no_caller_text_reaches_the_store(tmp_path):
    seen: list[str] = []

    def traced(connection: apsw.Connection) -> None:
        connection.exec_trace = lambda cursor, sql, bindings: bool(seen.append(f"{sql} {bindings!r}")) or True

    apsw.connection_hooks.append(traced)
    try:
        with SqliteStore(tmp_path / "a.db") as store:
            keys = Keys(store, FakeClock())
            key, secret = keys.add(Key(name="one"))
            revoked, gone = keys.add(Key(name="gone"))
            keys.revoke(revoked.id)
            behind = RecordingApp()
            guard = Guard(behind.app(), GatewaySettings(), keys)
            prefixes = [secret[:cut] for cut in range(0, len(secret), 3)]
            tried = [*HOSTILE, *prefixes, secret + "x", secret.swapcase(), gone, key.id, revoked.id]

            async def try_all() -> list[int]:
                requests = [
                    (path, [("host", f"127.0.0.1:{PORT}"), (name, form.format(text))])
                    for text in tried
                    for name, form in WAYS
                    for path in ("/v1/models", f"/v1/nothing/{MARK}")
                ]
                return [(await call_app(guard, path=path, headers=headers)).status for path, headers in requests]

            statuses = asyncio.run(try_all())
            assert len(statuses) > 500
            assert set(statuses) == {401}
            assert behind.scopes == []
            assert seen
            assert not [line for line in seen if MARK in line or secret[3:20] in line]
            good = [("host", f"127.0.0.1:{PORT}"), ("authorization", f"Bearer {secret}")]
            assert asyncio.run(call_app(guard, headers=good)).json == {"key": "one"}
    finally:
        apsw.connection_hooks.remove(traced)


def test_the_trace_would_show_text_that_reached_the_store(tmp_path):
    seen: list[str] = []

    def traced(connection: apsw.Connection) -> None:
        connection.exec_trace = lambda cursor, sql, bindings: bool(seen.append(f"{sql} {bindings!r}")) or True

    apsw.connection_hooks.append(traced)
    try:
        with SqliteStore(tmp_path / "a.db") as store:
            store.head(MARK)
    finally:
        apsw.connection_hooks.remove(traced)
    assert [line for line in seen if MARK in line]
