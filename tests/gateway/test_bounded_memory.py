"""What the gateway remembers has a bound, however many sessions, keys and clients there were; and what one of them asks
for does not stand in the way of another."""

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
from recto.recall.indexer import Indexer
from recto.recall.stemmer import PorterLexicon
from recto.recall.vector_worker import GuardedEmbedder
from recto.stores.memory import MemoryIndex, MemoryStore
from recto.stores.sqlite import SqliteStore, heads_file
from recto.testing import FakeClock
from recto.transcript.entries import Draft

DEADLINE = 60
"""Seconds for what must happen; on a machine that is busy it takes a while."""
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]


def said(number: int, text: str = "") -> Draft:
    content = b'{"role": "user", "content": "%s"}' % (text or f"entry {number}").encode()
    return Draft(id=f"m{number}", ts=number, role="user", content=content, wire="openai.chat", meta=b"{}")


def test_many_sessions_leave_no_more_behind_than_few(tmp_path):
    upstream = ScriptedUpstream(lambda asked: Says(text="All is well."))
    given = {"sessions": 4}
    with running(upstream) as up, gateway(tmp_path, up.url, gateway=given) as gw, httpx2.Client(timeout=60) as client:
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


def test_sessions_that_hold_large_messages_are_closed_before_they_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(session_pool, "_MAX_BYTES", 1_000_000)
    upstream = ScriptedUpstream(lambda asked: Says(text="All is well."))
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
        held = [held_bytes(pooled.session) for pooled in gw.gateway.sessions._open_sessions.values()]
        assert 0 < sum(held) <= 1_000_000


def test_a_refused_request_leaves_nothing_behind(tmp_path):
    upstream = ScriptedUpstream(lambda asked: Says(text="All is well."))
    text = "the quick brown fox " * 100_000

    def ask(client: httpx2.Client, content: str) -> int:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": content}], "tools": TOOLS}
        headers = {"authorization": f"Bearer {gw.secret}"}
        return client.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers).status_code

    with running(upstream) as up, gateway(tmp_path, up.url) as gw, httpx2.Client(timeout=60) as client:
        assert [ask(client, "hello"), ask(client, text), ask(client, "bye")] == [200, 400, 200]
        gc.collect()
        gc.disable()  # what only the collector finds would stay for long
        tracemalloc.start()
        try:
            assert [ask(client, text) for _ in range(4)] == [400] * 4
            assert ask(client, "bye again") == 200
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert kept < len(text)


def test_the_index_remembers_few_sessions_and_looks_up_the_rest(monkeypatch):
    monkeypatch.setattr(indexing, "_MAX_SESSIONS", 8)
    store, index = MemoryStore(), MemoryIndex()
    indexer = Indexer(store, index, lexicon=PorterLexicon(), in_background=False)
    names = [f"agent:default:{number}" for number in range(50)]
    for name in names:
        store.append(name, [said(1), said(2)])
        assert indexer.confirm(name, [1, 2], 5).vectors
    assert indexer._verified.size <= 8
    assert indexer._indexed.size == 8
    assert indexer.indexed_through(names[-1]) == 2
    assert indexer.indexed_through(names[0]) == 0  # not known here any more, and not asked for
    assert indexer.backlog(names[0]) == (0, 0)


def test_troubles_of_many_sessions_are_not_all_kept(monkeypatch):
    monkeypatch.setattr(indexing, "_MAX_SESSIONS", 8)
    indexer = Indexer(MemoryStore(), MemoryIndex(), lexicon=PorterLexicon(), in_background=False)
    indexer.index.covered = lambda session, lane: 1 / 0  # type: ignore[method-assign,assignment]
    for number in range(50):
        indexer.try_catch_up(f"agent:default:{number}")
    assert indexer._errors.size == 8
    assert "division" in indexer.last_error("agent:default:49")


def test_sessions_that_fell_silent_are_forgotten_though_nobody_asks_how_things_stand():
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


def test_the_number_a_session_had_is_found_among_thousands_by_eight_bytes_each(tmp_path, monkeypatch):
    marks = {f"s{number}": number.to_bytes(4, "big") * 2 for number in range(1, 3_001)}
    marks["across"] = marks["s7"][4:] + marks["s8"][:4]  # stands where two others meet
    monkeypatch.setattr(heads_file, "mark_of", lambda session: marks[session])
    file = heads_file.HeadsFile(tmp_path / "heads")
    file.create(late=False)
    head = heads_file.Head(1, bytes(32))
    file.rewrite([(number, f"s{number}", head) for number in range(1, 3_001) if number != 5])
    assert [file.number_of(name) for name in ("s1", "s2999", "s3000", "s5", "across")] == [1, 2999, 3000, None, None]
    assert len(file._marks) == 8 * 3_000
    file.keep(3_001, "across", head, None)
    assert file.number_of("across") == 3_001
    file.close()


def test_a_session_that_was_cut_away_is_still_missed_by_the_next_writer(tmp_path):
    path = tmp_path / "transcript.db"
    with SqliteStore(path) as store:
        for number in range(20):
            store.append(f"agent:default:{number}", [said(1)])
    file = heads_file.HeadsFile(path.with_name("transcript.db-heads"))
    assert [file.number_of(f"agent:default:{number}") for number in range(20)] == list(range(1, 21))
    file.close()


async def passes(stile: FairScheduler, key: str, order: list[str], name: str) -> None:
    async with stile.slot(key):
        order.append(name)
        await asyncio.sleep(0)


def test_one_request_of_another_key_waits_for_none_of_the_many():
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


def test_no_more_than_so_many_work_at_once_and_who_gives_up_makes_room():
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


def test_one_key_cannot_take_every_place_to_work():
    limits = RateLimits(GatewaySettings(concurrency=16))
    bad, good = Key(id="bad", name="bad"), Key(id="good", name="good")
    held = [limits.work(bad) for _ in range(14)]
    for one in held:
        one.__enter__()
    with pytest.raises(RequestRefused) as refused, limits.work(bad):
        pass
    assert refused.value.status == 503
    with limits.work(good), limits.work(good), pytest.raises(RequestRefused), limits.work(good):
        pass
    for one in held:
        one.__exit__(None, None, None)
    assert limits.in_flight == 0


class Counted(MemoryStore):
    """A store that counts how often its end is looked at."""

    looks = 0

    def head(self, session: str) -> heads_file.Head:
        self.looks += 1
        return super().head(session)


def test_a_thousand_requests_of_one_key_read_the_store_a_few_times_and_a_revoked_key_opens_nothing():
    store = Counted()
    keys = Keys(store, FakeClock())
    key, secret = keys.add(Key(id="", name="one"))
    lookup = KeyLookup(keys)

    async def meet() -> None:
        store.looks = 0
        found = await asyncio.gather(*(lookup.find(secret) for _ in range(1_000)), lookup.find("rk-unknown"))
        assert [one.id for one in found[:-1] if one] == [key.id] * 1_000
        assert found[-1] is None
        assert store.looks < 10
        keys.revoke(key.id)
        assert await lookup.find(secret) is None

    asyncio.run(meet())


class Slow:
    """An embedder that goes on when it is let, and says on which threads it was asked."""

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
    store.append("agent:default:main", [said(number) for number in range(1, 17)])
    indexer = Indexer(store, MemoryIndex(), lexicon=PorterLexicon(), embedder=embedder, in_background=False)
    assert indexer.confirm("agent:default:main", range(1, 17), 30).vectors
    assert (embedder.calls, len(embedder.threads)) == (16, 1)


def test_what_was_embedded_before_an_embedder_broke_is_kept():
    store, embedder = MemoryStore(), Slow(breaks_at=6)
    store.append("agent:default:main", [said(number) for number in range(1, 11)])
    indexer = Indexer(store, MemoryIndex(), lexicon=PorterLexicon(), embedder=embedder, in_background=False)
    confirmed = indexer.confirm("agent:default:main", range(1, 11), 30)
    assert (confirmed.words, confirmed.vectors) == (True, False)
    assert indexer.backlog("agent:default:main") == (0, 5)
    assert indexer.confirm("agent:default:main", range(1, 11), 30).vectors


def test_an_embedder_that_gets_on_has_time_again_and_one_that_does_not_is_given_up():
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
    given = []
    with pytest.raises(EmbedderFailed, match="not answered"):
        given.extend(guarded.each([["a"], ["b"], ["c"]], 0.05))
    assert len(given) <= 2
    embedder.stuck.set()


class Taken:
    """A lock that another has for a while, and while it has it gets on or does not."""

    def __init__(self, line: FifoLock, rounds: int, *, gets_on: bool) -> None:
        self.line, self.rounds, self.gets_on = line, rounds, gets_on
        self.asked = self.released = 0

    def acquire(self, timeout: float) -> bool:
        self.asked += 1
        if self.asked <= self.rounds and self.gets_on:
            self.line.report_progress()
        return self.asked > self.rounds

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize(("gets_on", "asked", "released"), [(True, 10, 1), (False, 2, 0)])
def test_a_session_that_must_be_indexed_now_waits_for_others_as_long_as_they_get_on(gets_on, asked, released):
    line = FifoLock()
    line._lock = taken = Taken(line, 9, gets_on=gets_on)  # type: ignore[assignment]
    with line.turn(10):
        pass
    assert (taken.asked, taken.released) == (asked, released)


def test_work_that_nobody_waits_for_lets_others_pass():
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


def test_time_is_given_again_for_each_step_and_not_without_end():
    deadline = Deadline.extending(1_000)
    before = deadline.remaining
    deadline.extend()
    assert deadline.remaining >= before
    gone = Deadline(at=0.0, step=1_000, end=0.0)
    gone.extend()
    assert gone.passed
