"""The gateway's memory stays bounded for any number of sessions, keys and clients, and no client blocks another."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc

import httpx2
import numpy as np
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.concurrency import Deadline, FifoLock
from recto.config.settings import GatewaySettings
from recto.engine.session import held_bytes
from recto.errors import EmbedderFailed, RequestRefused
from recto.gateway import session_pool
from recto.gateway.api_keys import Key, KeyLookup, Keys
from recto.gateway.middleware.rate_limit import RateLimits
from recto.gateway.proxy import RequestLanes
from recto.gateway.scheduler import FairScheduler
from recto.health.exporters._active_sessions import ActiveSessions
from recto.health.metrics import Alert
from recto.recall import indexer as indexing
from recto.recall.indexer import GuardedEmbedder, Indexer
from recto.recall.stemmer import PorterLexicon
from recto.stores.memory import MemoryIndex, MemoryStore
from recto.stores.sqlite import SqliteStore, connection
from recto.testing import FakeClock
from recto.transcript.entries import Draft

DEADLINE = 60
"""Seconds to wait for an event that must happen; on a busy machine it takes a while."""
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]


def make_draft(number: int, text: str = "") -> Draft:
    content = b'{"role": "user", "content": "%s"}' % (text or f"entry {number}").encode()
    return Draft(id=f"m{number}", ts=number, role="user", content=content, wire="openai.chat", meta=b"{}")


def test_caches_stay_bounded_after_many_sessions(tmp_path):
    upstream = ScriptedUpstream(lambda request: Says(text="All is well."))
    settings = {"sessions": 4}
    with (
        running(upstream) as up,
        gateway(tmp_path, up.url, gateway=settings) as gw,
        httpx2.Client(timeout=60) as client,
    ):
        turns, sessions = gw.gateway.turns, gw.gateway.sessions
        turns.resolver.fingerprints.cache_size = 16
        for number in range(40):
            body = {"model": "gpt-4o", "messages": [{"role": "user", "content": f"task {number}"}], "tools": TOOLS}
            answer = client.post(
                f"{gw.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {gw.secret}"}
            )
            assert answer.status_code == 200
        assert len(sessions._open_sessions) <= 4
        assert len(turns.resolver.fingerprints._cache) <= 16
        assert turns._busy == {}


def test_open_sessions_with_large_messages_are_closed_above_a_byte_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(session_pool, "_MAX_BYTES", 1_000_000)
    upstream = ScriptedUpstream(lambda request: Says(text="All is well."))
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    with running(upstream) as up, gateway(tmp_path, up.url) as gw, httpx2.Client(timeout=60) as client:
        for number in range(6):
            messages = [
                {"role": "user", "content": f"task {number}"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "word " * 80_000},
            ]
            for more in ([], [{"role": "assistant", "content": "So."}, {"role": "user", "content": "Go on."}]):
                answer = client.post(
                    f"{gw.url}/v1/chat/completions",
                    json={"model": "gpt-4o", "messages": [*messages, *more], "tools": TOOLS},
                    headers={"authorization": f"Bearer {gw.secret}"},
                )
                assert answer.status_code == 200
        open_bytes = [held_bytes(pooled.session) for pooled in gw.gateway.sessions._open_sessions.values()]
        assert 0 < sum(open_bytes) <= 1_000_000


def test_a_refused_request_leaks_no_memory(tmp_path):
    upstream = ScriptedUpstream(lambda request: Says(text="All is well."))
    text = "the quick brown fox " * 100_000

    def ask(client: httpx2.Client, content: str) -> int:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": content}], "tools": TOOLS}
        headers = {"authorization": f"Bearer {gw.secret}"}
        return client.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers).status_code

    with running(upstream) as up, gateway(tmp_path, up.url) as gw, httpx2.Client(timeout=60) as client:
        assert [ask(client, "hello"), ask(client, text), ask(client, "bye")] == [200, 400, 200]
        gc.collect()
        gc.disable()  # an object that only the collector frees would stay for long
        tracemalloc.start()
        try:
            assert [ask(client, text) for _ in range(4)] == [400] * 4
            assert ask(client, "bye again") == 200
            leaked, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert leaked < len(text)


def test_the_index_caches_few_sessions_and_looks_up_the_rest(monkeypatch):
    monkeypatch.setattr(indexing, "_MAX_SESSIONS", 8)
    store, index = MemoryStore(), MemoryIndex()
    indexer = Indexer(store, index, lexicon=PorterLexicon(), in_background=False)
    names = [f"agent:default:{number}" for number in range(50)]
    for name in names:
        store.append(name, [make_draft(1), make_draft(2)])
        assert indexer.confirm(name, [1, 2], 5).vectors
    assert indexer._verified.size <= 8
    assert indexer._indexed.size == 8
    assert indexer.indexed_through(names[-1]) == 2
    assert indexer.indexed_through(names[0]) == 0  # evicted from the cache, and not requested
    assert indexer.backlog(names[0]) == (0, 0)


def test_indexing_errors_of_many_sessions_are_bounded(monkeypatch):
    monkeypatch.setattr(indexing, "_MAX_SESSIONS", 8)
    indexer = Indexer(MemoryStore(), MemoryIndex(), lexicon=PorterLexicon(), in_background=False)
    indexer.index.covered = lambda session, lane: 1 / 0  # type: ignore[method-assign,assignment]
    for number in range(50):
        indexer.try_catch_up(f"agent:default:{number}")
    assert indexer._errors.size == 8
    assert "division" in indexer.last_error("agent:default:49")


def test_inactive_sessions_are_forgotten_without_any_scrape():
    now = [0.0]
    live = ActiveSessions(seconds=10, now=lambda: now[0])
    for number in range(100):
        now[0] += 1
        alert = Alert(
            name="index_lag",
            grade="warning",
            session=f"s{number}",
            turn=1,
            ts=0,
            value=1,
            threshold=1,
            says="",
            action="",
        )
        live.alert(alert)
    assert len(live._sessions) <= 11


def test_a_session_number_is_found_among_thousands_by_an_eight_byte_mark(tmp_path, monkeypatch):
    marks = {f"s{number}": number.to_bytes(4, "big") * 2 for number in range(1, 3_001)}
    marks["across"] = marks["s7"][4:] + marks["s8"][:4]  # occurs where two other marks meet
    monkeypatch.setattr(connection, "mark_of", lambda session: marks[session])
    heads = connection.HeadsFile(tmp_path / "heads")
    heads.create(late=False)
    head = connection.Head(1, bytes(32))
    heads.rewrite([(number, f"s{number}", head) for number in range(1, 3_001) if number != 5])
    assert [heads.number_of(name) for name in ("s1", "s2999", "s3000", "s5", "across")] == [1, 2999, 3000, None, None]
    assert len(heads._marks) == 8 * 3_000
    heads.keep(3_001, "across", head, None)
    assert heads.number_of("across") == 3_001
    heads.close()


def test_the_heads_file_numbers_every_session_of_a_closed_store(tmp_path):
    path = tmp_path / "transcript.db"
    with SqliteStore(path) as store:
        for number in range(20):
            store.append(f"agent:default:{number}", [make_draft(1)])
    file = connection.HeadsFile(path.with_name("transcript.db-heads"))
    assert [file.number_of(f"agent:default:{number}") for number in range(20)] == list(range(1, 21))
    file.close()


async def passes(stile: FairScheduler, key: str, order: list[str], name: str) -> None:
    async with stile.slot(key):
        order.append(name)
        await asyncio.sleep(0)


def test_a_request_of_another_key_does_not_wait_for_the_many_of_one_key():
    async def meet() -> list[str]:
        stile, order = FairScheduler(1), []
        async with stile.slot("bad"):
            many = [asyncio.create_task(passes(stile, "bad", order, f"bad{number}")) for number in range(100)]
            await asyncio.sleep(0)
            good = asyncio.create_task(passes(stile, "good", order, "good"))
            await asyncio.sleep(0)
            assert stile.waiting == 101
        await asyncio.gather(*many, good)
        assert (stile.waiting, stile._free) == (0, 1)
        return order

    assert asyncio.run(meet()).index("good") <= 1


def test_the_scheduler_never_exceeds_its_slots_and_a_cancelled_waiter_frees_its_place():
    async def meet() -> int:
        stile, inside, most = FairScheduler(3), 0, 0

        async def work(number: int) -> None:
            nonlocal inside, most
            async with stile.slot(str(number % 5)):
                inside += 1
                most = max(most, inside)
                try:
                    await asyncio.sleep(0)
                finally:
                    inside -= 1

        tasks = [asyncio.create_task(work(number)) for number in range(60)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (stile.waiting, stile._free, inside) == (0, 3, 0)
        return most

    assert asyncio.run(meet()) == 3


def test_small_requests_do_not_wait_behind_large_ones():
    lanes = RequestLanes()
    assert lanes.scheduler(1_000) is not lanes.scheduler(10_000_000)


def test_one_key_cannot_take_every_slot():
    limits = RateLimits(GatewaySettings(concurrency=16))
    bad, good = Key(id="bad", name="bad"), Key(id="good", name="good")
    slots = [limits.work(bad) for _ in range(14)]
    for slot in slots:
        slot.__enter__()
    with pytest.raises(RequestRefused) as refused, limits.work(bad):
        pass
    assert refused.value.status == 503
    with limits.work(good), limits.work(good), pytest.raises(RequestRefused), limits.work(good):
        pass
    for slot in slots:
        slot.__exit__(None, None, None)
    assert limits.in_flight == 0


class Counted(MemoryStore):
    """A store that counts how often its head is read."""

    looks = 0

    def head(self, session: str) -> connection.Head:
        self.looks += 1
        return super().head(session)


def test_a_thousand_concurrent_lookups_read_the_store_a_few_times_and_a_revoked_key_is_refused():
    store = Counted()
    keys = Keys(store, FakeClock())
    key, secret = keys.add(Key(id="", name="one"))
    lookup = KeyLookup(keys)

    async def meet() -> None:
        store.looks = 0
        found = await asyncio.gather(*(lookup.find(secret) for _ in range(1_000)), lookup.find("rk-unknown"))
        assert [match.id for match in found[:-1] if match] == [key.id] * 1_000
        assert found[-1] is None
        assert store.looks < 10
        keys.revoke(key.id)
        assert await lookup.find(secret) is None

    asyncio.run(meet())


class Slow:
    """An embedder that counts its calls and records the threads that called it."""

    name, dims, weight = "slow/1", 4, 0.7

    def __init__(self, breaks_at: int = 0) -> None:
        self.threads: set[int] = set()
        self.calls = 0
        self._breaks_at = breaks_at

    def documents(self, texts):
        self.calls += 1
        self.threads.add(threading.get_ident())
        if self.calls == self._breaks_at:
            raise RuntimeError("poison")
        return np.tile(np.array([1, 0, 0, 0], np.float32), (len(texts), 1))

    def query(self, text):
        return self.documents([text])


def test_a_page_of_messages_is_embedded_on_one_thread():
    store, embedder = MemoryStore(), Slow()
    store.append("agent:default:main", [make_draft(number) for number in range(1, 17)])
    indexer = Indexer(store, MemoryIndex(), lexicon=PorterLexicon(), embedder=embedder, in_background=False)
    assert indexer.confirm("agent:default:main", range(1, 17), 30).vectors
    assert (embedder.calls, len(embedder.threads)) == (16, 1)


def test_vectors_embedded_before_an_embedder_failed_are_stored():
    store, embedder = MemoryStore(), Slow(breaks_at=6)
    store.append("agent:default:main", [make_draft(number) for number in range(1, 11)])
    indexer = Indexer(store, MemoryIndex(), lexicon=PorterLexicon(), embedder=embedder, in_background=False)
    confirmed = indexer.confirm("agent:default:main", range(1, 11), 30)
    assert (confirmed.words, confirmed.vectors) == (True, False)
    assert indexer.backlog("agent:default:main") == (0, 5)
    assert indexer.confirm("agent:default:main", range(1, 11), 30).vectors


def test_an_embedder_that_makes_progress_gets_more_time_and_a_stuck_one_is_abandoned():
    class Waits(Slow):
        def __init__(self) -> None:
            super().__init__()
            self.stuck = threading.Event()

        def documents(self, texts):
            found = super().documents(texts)
            if self.calls == 3:
                self.stuck.wait(DEADLINE)
            return found

    embedder = Waits()
    guarded = GuardedEmbedder(embedder)
    batches = []
    with pytest.raises(EmbedderFailed, match="not answered"):
        batches.extend(guarded.each([["a"], ["b"], ["c"]], 0.05))
    assert len(batches) <= 2
    embedder.stuck.set()


class BusyLock:
    """A lock that another holder keeps for some rounds, with or without progress."""

    def __init__(self, line: FifoLock, rounds: int, *, progresses: bool) -> None:
        self.line, self.rounds, self.progresses = line, rounds, progresses
        self.attempts = self.released = 0

    def acquire(self, timeout: float) -> bool:
        self.attempts += 1
        if self.attempts <= self.rounds and self.progresses:
            self.line.report_progress()
        return self.attempts > self.rounds

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize(("progresses", "attempts", "released"), [(True, 10, 1), (False, 2, 0)])
def test_a_session_that_must_be_indexed_now_waits_for_others_as_long_as_they_make_progress(
    progresses, attempts, released
):
    line = FifoLock()
    line._lock = lock = BusyLock(line, 9, progresses=progresses)  # type: ignore[assignment]
    with line.turn(10):
        pass
    assert (lock.attempts, lock.released) == (attempts, released)


def test_background_work_lets_other_work_pass():
    line, order = FifoLock(), []

    def later() -> None:
        line.wait_until_free(DEADLINE)
        order.append("later")

    with line.turn(1):
        other = threading.Thread(target=later)
        other.start()
        order.append("now")
    other.join(DEADLINE)
    assert order == ["now", "later"]


def test_a_deadline_is_extended_for_each_step_up_to_its_end():
    deadline = Deadline.extending(1_000)
    before = deadline.remaining
    deadline.extend()
    assert deadline.remaining >= before
    gone = Deadline(at=0.0, step=1_000, end=0.0)
    gone.extend()
    assert gone.passed
