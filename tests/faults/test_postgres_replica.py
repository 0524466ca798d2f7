"""Reads from a replica: what is told of the past may be a little old, and says so; nothing else ever comes from there.

A real streaming replica follows a real server. Its replay is paused, its line to the primary is cut, and it is killed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx2
import psycopg
import pytest
import yaml
from own_postgres import Server, own_server, replica_of
from tests.cli.calling import called_at, own_file
from tests.gateway.gateways import Running, gateway
from tests.gateway.inspecting import SMALL, example
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.errors import StoreReadOnly
from recto.formats.openai_chat import CHAT
from recto.gateway.inspection.operations import OPERATIONS, PREFIX, STALENESS
from recto.stores.postgres import PostgresReplica, PostgresStore
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import Draft

pytestmark = pytest.mark.timeout(300)
DEADLINE = 60
LONG, SHORT = 600.0, 0.5
"""Seconds that a replica may be behind: more than a test lasts, or less."""
NAME = "reading"
REPLICA, STORE = True, False
"""Who has answered."""
PAST = {
    "/sessions", "/session/transcript", "/session/entry", "/session/compare", "/session/timeline", "/session/decisions",
    "/session/decision", "/session/audit", "/session/checkpoints", "/session/checkpoint", "/session/outline",
    "/session/grep", "/session/work/file", "/session/work/command", "/session/work/error", "/session/work/number",
}  # fmt: skip
"""What a replica may answer; a prompt too, where it is one of the past."""


def until(is_so: Callable[[], Any]) -> None:
    ends = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < ends, "it does not come to pass"
        time.sleep(0.01)


def draft(text: str) -> Draft:
    content = json.dumps({"role": "user", "content": text}).encode()
    return Draft(id=f"id of {text}", ts=1, role="user", wire=CHAT, content=content)


@dataclass
class Pair:
    """A server with a store in it, and one that follows it."""

    primary: Server
    replica: Server
    sessions: Iterator[str] = field(default_factory=lambda: map("chat-{}".format, count()))
    """Names that no other test has."""

    @property
    def url(self) -> str:
        return self.primary.address(NAME)

    @property
    def copy(self) -> str:
        return self.replica.address(NAME)

    def say(self, session: str, text: str) -> None:
        """Something is said, by somebody else than the gateway."""
        with PostgresStore(self.url) as store:
            store.append(session, [draft(text)])

    def caught_up(self) -> None:
        with self.primary.admin() as here, self.replica.admin() as there:
            [end] = here.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            until(lambda: there.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (end,)).fetchone()[0])

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The replica takes in what the primary writes, and does not show it."""
        state = "SELECT pg_get_wal_replay_pause_state()"
        with self.replica.admin() as connection:
            connection.execute("SELECT pg_wal_replay_pause()")
            until(lambda: connection.execute(state).fetchone() == ("paused",))
        try:
            yield
        finally:
            with self.replica.admin() as connection:
                connection.execute("SELECT pg_wal_replay_resume()")

    def looked_up(self) -> int:
        """How often rows of transcripts were looked for on the replica."""
        counted = "SELECT sum(idx_scan + seq_scan) FROM pg_stat_user_tables WHERE relname LIKE 'entries%'"
        with self.replica.admin(NAME) as connection:
            return int(connection.execute(counted).fetchone()[0])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with own_server() as primary:
        primary.start("fsync=off")
        PostgresStore(primary.made(NAME)).close()
        with replica_of(primary, "fsync=off") as replica:
            yield Pair(primary, replica)


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with running(ScriptedUpstream(lambda asked: Says(text="It is known."))) as made:
        yield made


@dataclass
class Place:
    """A gateway that may read from the replica, and a client with a session of its own."""

    running: Running
    client: httpx2.Client
    session: str

    @property
    def replica(self) -> PostgresReplica:
        return self.running.gateway.replica

    def ask(self, method: str, path: str, query: Any = None, body: Any = None) -> httpx2.Response:
        answer = self.client.request(method, PREFIX + path, params=query, json=body)
        assert answer.status_code == 200, answer.text
        return answer

    def transcript(self, session: str = "") -> tuple[list[str], bool]:
        """What the messages say, and who says so: one that may be old."""
        answer = self.ask("GET", "/session/transcript", {"session": session or self.session})
        entries = [one["text"] for one in answer.json()["entries"] if one["kind"] == "message"]
        assert 0 <= float(answer.headers.get(STALENESS, 0)) < LONG
        return entries, STALENESS in answer.headers

    def turn(self, text: str) -> None:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
        named = {"x-recto-session-id": self.session.split(":")[-1]}
        answer = self.client.post("/v1/chat/completions", json=body, headers=named)
        assert answer.status_code == 200, answer.text


@pytest.fixture
def opened(pair, upstream, tmp_path):
    @contextmanager
    def made(most: float = LONG, *, url: str = "") -> Iterator[Place]:
        more = {
            "store": pair.url,
            "models": SMALL,
            "replica": {"url": url or pair.copy, "staleness_seconds": most},
            "recall": {"embedder": {"use": "none"}},
            "memory": {"folder": str(tmp_path / "memory")},
        }
        with gateway(tmp_path, upstream.url, **more) as one:
            headers = {"authorization": f"Bearer {one.secret}"}
            with httpx2.Client(base_url=one.url, headers=headers, timeout=DEADLINE) as client:
                yield Place(one, client, f"agent:default:{next(pair.sessions)}")

    return made


def test_what_is_told_of_the_past_comes_from_the_replica_and_all_else_from_the_store(pair, opened):
    with opened() as place:
        named = {"session": place.session}
        for number in range(8):  # enough that something is not protected
            place.turn(f"Ship {number} is called Ada. " + "It sails far. " * 200)
        decision = place.ask("POST", "/session/compact", named, {}).json()["decisions"][0]["seq"]
        place.ask("POST", "/session/checkpoints", named, {"goal": "sail"})
        pair.caught_up()
        until(lambda: place.replica.age(place.session) is not None)
        before = pair.looked_up()
        for one in OPERATIONS:
            if one.method == "GET":
                more = {"seq": decision} if one.path == "/session/decision" else {}
                answer = place.ask("GET", one.path, example(one, place.session, **more)[0])
                assert (STALENESS in answer.headers) == (one.path in PAST), one.path
                assert 0 <= float(answer.headers.get(STALENESS, 0)) < LONG
        assert STALENESS in place.ask("GET", "/session/prompt", {**named, "at": 2}).headers
        assert STALENESS not in place.ask("POST", "/session/recall", named, {"query": "ship"}).headers
        assert re.search(r"^recto_replica_behind_seconds \d", place.client.get("/metrics").text, re.MULTILINE)
    until(lambda: pair.looked_up() > before)  # it counts when those who asked have gone


def test_a_turn_sees_what_was_said_before_whatever_the_replica_knows(pair, opened, upstream):
    with opened() as place:
        place.turn("Good morning.")
        pair.caught_up()
        until(lambda: place.transcript()[1] is REPLICA)
        with pair.paused():
            place.turn("My word is swordfish.")
            place.turn("Which word was it?")
            said = [message["content"] for message in upstream.asked[-1].messages]
            assert "My word is swordfish." in said
            assert "Which word was it?" in said


def test_a_gateway_shows_what_it_has_written_itself(pair, opened):
    with opened() as place:
        place.turn("Good morning.")
        pair.caught_up()
        until(lambda: place.transcript()[1] is REPLICA)
        with pair.paused():
            place.turn("And good evening.")
            texts, answered = place.transcript()
            assert "And good evening." in texts
            assert answered is STORE
        pair.caught_up()
        until(lambda: place.transcript() == (texts, REPLICA))


def test_what_others_wrote_may_be_missing_for_as_long_as_it_is_said_and_no_longer(pair, opened):
    with opened(LONG) as patient, opened(SHORT) as hurried:
        chat, other = next(pair.sessions), next(pair.sessions)
        pair.say(chat, "old")
        pair.caught_up()
        for place in (patient, hurried):
            until(lambda place=place: place.transcript(chat) == (["old"], REPLICA))
        with pair.paused():
            pair.say(chat, "new")
            pair.say(other, "hidden")
            assert patient.transcript(chat) == (["old"], REPLICA)
            assert f'"{other}"' not in patient.ask("GET", "/sessions").text
            assert patient.transcript(other) == (["hidden"], STORE), "what it does not know, the store is asked for"
            until(lambda: hurried.replica.age() is None)
            assert hurried.replica.behind > SHORT
            assert hurried.transcript(chat) == (["old", "new"], STORE)
        until(lambda: hurried.transcript(chat) == (["old", "new"], REPLICA))
        nowhere = patient.client.get(PREFIX + "/session/transcript", params={"session": "nowhere"})
        assert nowhere.status_code == 404


def test_a_replica_that_no_longer_hears_of_its_primary_is_known_to_be_old(pair, opened):
    by_itself = "SELECT pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()"
    with opened(SHORT) as place, pair.replica.admin() as connection:
        chat = next(pair.sessions)
        pair.say(chat, "old")
        pair.caught_up()
        until(lambda: place.transcript(chat) == (["old"], REPLICA))
        [line] = connection.execute("SHOW primary_conninfo").fetchone()
        try:
            _follow(connection, "")
            until(lambda: not connection.execute("SELECT 1 FROM pg_stat_wal_receiver").fetchone())
            pair.say(chat, "new")
            until(lambda: place.replica.age() is None)
            assert connection.execute(by_itself).fetchone() == (True,), "asked alone, it seems to be up to date"
            assert place.transcript(chat) == (["old", "new"], STORE)
        finally:
            _follow(connection, line)
        until(lambda: place.transcript(chat) == (["old", "new"], REPLICA))


def _follow(connection: psycopg.Connection, line: str) -> None:
    connection.execute(psycopg.sql.SQL("ALTER SYSTEM SET primary_conninfo = {}").format(line))
    connection.execute("SELECT pg_reload_conf()")


def test_a_replica_that_is_down_is_done_without_and_used_again_when_it_is_back(pair, opened):
    with opened() as place:
        place.turn("Good morning.")
        pair.caught_up()
        until(lambda: place.transcript()[1] is REPLICA)
        pair.replica.kill()
        try:
            assert STALENESS not in place.ask("GET", "/sessions").headers
            assert place.transcript() == (["Good morning.", "It is known."], STORE)
            until(lambda: place.replica.behind is None)
            assert place.replica.fault
            assert "recto_replica_behind_seconds NaN" in place.client.get("/metrics").text
            with opened() as late:
                assert late.transcript(place.session) == (["Good morning.", "It is known."], STORE)
        finally:
            pair.replica.start("fsync=off")
        until(lambda: place.transcript() == (["Good morning.", "It is known."], REPLICA))


@pytest.mark.parametrize("wrong", ["the store itself", "another database"])
def test_what_is_no_replica_of_the_store_is_never_read(pair, opened, wrong):
    url = pair.url if wrong == "the store itself" else pair.replica.address("postgres")
    with opened(url=url) as place:
        place.turn("Good morning.")
        until(lambda: "replica" in place.replica.fault)
        assert place.transcript()[1] is STORE


def test_a_replica_named_as_the_store_can_be_read_and_says_that_it_cannot_be_written(pair):
    chat = next(pair.sessions)
    pair.say(chat, "hello")
    pair.caught_up()
    with PostgresStore(pair.copy) as store, closing(store.index(lock_timeout=5)) as index:
        assert [entry.id for entry in store.read(chat)] == ["id of hello"]
        assert chat not in index.sessions()
        with pytest.raises(StoreReadOnly, match="replica"):
            store.append(chat, [draft("more")])
        with pytest.raises(StoreReadOnly), store.turn(chat):
            pass


def test_a_store_that_is_opened_only_to_look_refuses_to_write_on_the_primary_too(pair):
    with PostgresStore(pair.url, read_only=True) as store, pytest.raises(StoreReadOnly):
        store.append("chat", [draft("hello")])


def test_the_command_line_says_that_it_read_from_a_replica_and_the_doctor_how_far_that_is_behind(pair, tmp_path):
    chat = next(pair.sessions)
    pair.say(chat, "hello")
    pair.caught_up()

    def told(most: float, *command: str, code: int = 0) -> str:
        given = {"url": pair.copy, "staleness_seconds": most}
        settings = {"store": pair.url, "replica": given, "recall": {"embedder": {"use": "none"}}}
        own_file(tmp_path).write_text(yaml.safe_dump(settings))
        return called_at(tmp_path, *command, code=code)

    for command in (
        (
            "session",
            "ls",
        ),
        ("session", "show", chat),
        ("audit", "--session", chat),
    ):
        assert "read from a replica; it may be" in told(LONG, *command)
    assert "s behind; it may be 600 s" in told(LONG, "doctor")
    with pair.paused():
        pair.say(chat, "more")
        shown = told(SHORT, "session", "show", chat)
        assert "more" in shown
        assert "replica" not in shown
        assert "has not replayed" in told(SHORT, "doctor", code=1)
    assert "replica" not in told(SHORT, "doctor", "--offline")


def test_a_replica_of_a_file_is_a_mistake_in_the_settings(tmp_path):
    SqliteStore(tmp_path / "a.db").close()
    settings = {"store": str(tmp_path / "a.db"), "replica": {"url": "postgresql://db/recto"}}
    own_file(tmp_path).write_text(yaml.safe_dump(settings))
    assert "replica.url" in called_at(tmp_path, "session", "ls", code=2)


def test_what_is_known_of_a_replica_is_only_what_it_has_replayed(pair):
    chat = next(pair.sessions)
    with PostgresStore(pair.url) as store, closing(PostgresReplica(pair.copy, store, most=LONG)) as replica:
        store.append(chat, [draft("hello")])
        assert replica.age() is None, "nobody has looked yet"
        with pair.paused():
            store.append(chat, [draft("more")])
            replica.look()
            assert replica.age() is None
        pair.caught_up()
        replica.look()
        assert replica.age() is not None
        assert replica.age(chat) is not None
        with pair.paused():
            store.append(chat, [draft("most")])
            assert replica.age() is not None
            assert replica.age(chat) is None, "this process has written more than the replica has"
