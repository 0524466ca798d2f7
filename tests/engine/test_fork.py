"""Forks: identical up to an entry and independent from there; and one session on several surfaces."""

from __future__ import annotations

import json
import threading
from contextlib import closing

import pytest

import recto
from recto.engine.fork import fork
from recto.errors import InputError
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock, scripted_session
from recto.transcript.entries import Draft

SMALL = {"gpt-4o": {"window": 16_000, "max_input": 16_000}}


def opened(store, session="agent:default:main", **more):
    return recto.open(store, session=session, model="gpt-4o", models=SMALL, recall={"inject": False}, **more)


@pytest.fixture
def worked(tmp_path):
    path = tmp_path / "a.db"
    with opened(path) as session:
        for message in scripted_session(exchanges=30):
            if message["role"] == "assistant":
                session.prompt()
            session.append(message)
    return path


def test_a_fork_starts_with_the_same_prompt_and_diverges(worked):
    with opened(worked) as session:
        expected = session.prompt().raw
        made = fork(session.store, session.key, "agent:default:other", clock=FakeClock())
        assert json.loads(made.content)["from"] == session.key
        with opened(session.store, "agent:default:other") as other:
            assert other.prompt().raw == expected
            other.append({"role": "user", "content": "Only here."})
            assert "Only here." in json.dumps(other.prompt().messages)
            assert other.verify().ok
        assert "Only here." not in json.dumps(session.prompt().messages)
        assert session.verify().ok
        assert [entry.kind for entry in session.tail(1)] == ["branch"]


def test_a_fork_copies_the_search_terms_of_its_entries():
    with closing(MemoryStore()) as store:
        names = [Draft(id=str(n), ts=n, role="user", content=b"{}", terms=b"row %d" % n) for n in range(1, 6)]
        store.append("one", names)
        fork(store, "one", "two", clock=FakeClock(), at=3)
        assert list(store.terms("two")) == list(store.terms("one", 1, 3))


def test_a_fork_at_an_earlier_entry_has_no_later_entries(worked):
    with opened(worked) as session:
        fork(session.store, session.key, "agent:default:past", clock=FakeClock(), at=40)
        with opened(session.store, "agent:default:past") as past:
            assert len(past) == 41
            assert [entry.content for entry in past.read(1, 40)] == [entry.content for entry in session.read(1, 40)]


def test_an_interrupted_fork_resumes_and_a_finished_fork_is_not_repeated(worked):
    with opened(worked) as session:
        store = session.store
        fork(store, session.key, "agent:default:part", clock=FakeClock(), at=30)
        half = list(store.read("agent:default:part", 1, 20))
        store.append("agent:default:half", half)
        made = fork(store, session.key, "agent:default:half", clock=FakeClock(), at=60)
        assert made.seq == 61
        assert fork(store, session.key, "agent:default:half", clock=FakeClock(), at=60) == made


def test_another_session_is_never_overwritten(worked):
    with opened(worked) as session:
        with opened(session.store, "agent:default:busy") as busy:
            busy.append({"role": "user", "content": "Mine."})
        with pytest.raises(InputError, match="exists already"):
            fork(session.store, session.key, "agent:default:busy", clock=FakeClock())
        for target, at in ((session.key, None), ("agent:default:x", 10**6), ("tenant:a/agent:default:x", None)):
            with pytest.raises(InputError):
                fork(session.store, session.key, target, clock=FakeClock(), at=at)


@pytest.mark.requirement("session.one-history")
def test_two_concurrent_surfaces_share_one_ordered_history(tmp_path):
    path = tmp_path / "a.db"
    with opened(path) as first, opened(path, "recto") as second:
        assert first.key == second.key  # the alias is the same session

        def speak(session, surface):
            for number in range(30):
                session.append({"role": "user", "content": f"{surface} {number}"}, surface=surface)
                session.prompt()

        threads = [threading.Thread(target=speak, args=pair) for pair in ((first, "cli"), (second, "web"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        messages = [
            (entry.surface, json.loads(entry.content)["content"]) for entry in first.read() if entry.role == "user"
        ]
        for surface in ("cli", "web"):
            own = [text for at, text in messages if at == surface]
            assert own == [f"{surface} {number}" for number in range(30)]
        assert first.prompt().raw == second.prompt().raw
        assert len(first.prompt().messages) == 60


def test_a_session_forks_itself_and_stays_with_its_tenant(tmp_path):
    with opened(tmp_path / "a.db", tenant="acme") as session:
        session.append({"role": "user", "content": "Hello"})
        made = session.fork("agent:default:other", at=1)
        assert made.session == "tenant:acme/agent:default:other"
