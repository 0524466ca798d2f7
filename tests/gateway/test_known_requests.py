"""A request's prefix that repeats an earlier request is not parsed again, with the same result as a whole parse."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults.chaos import call as direct_call
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.config import load
from recto.errors import InputError
from recto.formats import Body, open_body, reopen_body
from recto.gateway.api_keys import Key
from recto.gateway.app import Gateway
from recto.gateway.request import KnownPrefix, KnownRequest, KnownRequests
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE

WORDS = st.text(st.sampled_from('ab"\\ {}[],:é漢😀\n'), max_size=12)
MESSAGES = st.lists(
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant", "system"]), WORDS
    ),
    min_size=1,
    max_size=8,
)
MEMBERS = st.dictionaries(st.sampled_from(["model", "tools", "stream", "user", "é"]), st.one_of(WORDS, st.none()))


def body_of(before: dict, messages: list, after: dict, style: int) -> bytes:
    after = {key: value for key, value in after.items() if key not in before}
    spaced = {0: {}, 1: {"separators": (",", ":")}, 2: {"indent": 1}, 3: {"ensure_ascii": False}}[style]
    return json.dumps({**before, "messages": messages, **after}, **spaced).encode()


def opened(raw: bytes) -> Body | None:
    try:
        return open_body(raw, "openai.chat")
    except InputError:
        return None


@given(
    before=MEMBERS,
    old=MESSAGES,
    after=MEMBERS,
    style=st.integers(0, 3),
    place=st.integers(0, 8),
    new=MESSAGES,
    other=st.one_of(st.none(), MEMBERS),
    cut=st.one_of(st.none(), st.integers(0, 400)),
    junk=st.sampled_from([b"", b"}", b", ", b"]", b'"', b"1", b"\xff"]),
)
def test_a_body_with_a_known_prefix_is_parsed_like_a_new_one(before, old, after, style, place, new, other, cut, junk):
    known = opened(body_of(before, old, after, style))
    raw = body_of(before, [*old[:place], *new], after if other is None else other, style)
    raw = raw if cut is None else raw[:cut] + junk + raw[cut:]
    whole = opened(raw)
    shared = known.common_messages(raw)
    if not shared:
        return
    assert raw[: known.ends[shared - 1]] == known.raw[: known.ends[shared - 1]]
    end_bytes = known.common_end(raw, shared)
    assert raw.endswith(known.raw[len(known.raw) - end_bytes :])
    for same in {0, end_bytes}:
        if whole is None:
            with pytest.raises(InputError):
                reopen_body(raw, known, shared, same)
            continue
        again = reopen_body(raw, known, shared, same)
        assert str(again._roles) == str(whole._roles)
        assert replace(again, _roles=()) == replace(whole, _roles=())
        sent = [*whole.messages[1:], b'{"role": "user", "content": "more"}']
        assert again.with_messages(sent) == whole.with_messages(sent)
        assert list(again.fields) == list(whole.fields)


@pytest.mark.parametrize(
    ("new", "is_known"),
    [
        (b"", True),
        (b', {"role": "user", "content": "b"}', True),
        (b', {"role": "user", "content": "\\"[{"}', True),
        (b', {"role": "user", "content": "b"', False),  # an object that does not end
        (b', {"role": "user", "content": "', False),  # a string that does not end
        (b', {"role": "user", "content": "' + b"b" * 40_000 + b'"}', False),  # too long to be scanned
    ],
)
def test_the_end_of_a_body_is_recognized_only_after_complete_new_messages(new, is_known):
    start, end = b'{"model": "m", "messages": [{"role": "user", "content": "a"}', b'], "tools": [{"type": "function"}]}'
    known = open_body(start + end, "openai.chat")
    assert known.common_end(start + new + end, 1) == (len(end) if is_known else 0)
    assert known.common_end(start + new + end + b" ", 1) == 0


def test_an_array_that_ends_before_the_known_end_is_parsed_as_it_is():
    start, end = b'{"model": "m", "messages": [{"role": "user", "content": "a"}', b'], "tools": []}'
    known = open_body(start + end, "openai.chat")
    raw = start + b'], "user": [{}], "stop": [1' + end
    assert known.common_end(raw, 1) == len(end)
    assert reopen_body(raw, known, 1, len(end)) == open_body(raw, "openai.chat")


def known_request(raw: bytes, seed: bytes = b"seed") -> KnownRequest:
    return KnownRequest(body=open_body(raw, "openai.chat"), seed=seed, chain=())


def history(*texts: str, model: str = "m") -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text} for text in texts]}).encode()


def test_a_request_is_known_to_its_own_key_and_format_only():
    known = KnownRequests()
    known.remember("one", known_request(history("a", "b")), None)
    assert known.match("one", "openai.chat", history("a", "b", "c")).count == 2
    assert known.match("one", "openai.chat", history("a", "x", "c")).count == 1
    assert known.match("two", "openai.chat", history("a", "b", "c")) is None
    assert known.match("one", "anthropic.messages", history("a", "b", "c")) is None
    assert known.match("one", "openai.chat", history("a", "b", "c", model="other")) is None


def test_a_request_without_a_list_of_messages_is_not_cached():
    known = KnownRequests()
    for raw in (b'{"model": "m", "input": "hello"}', b'{"model": "m", "input": []}', b'{"model": "m"}'):
        known.remember("one", KnownRequest(body=open_body(raw, "openai.responses"), seed=b"", chain=()), None)
        assert known.match("one", "openai.responses", raw) is None
    assert not known._kept


def test_a_request_replaces_the_one_that_it_continues_and_a_branch_does_not():
    known = KnownRequests()
    known.remember("one", known_request(history("a", "b")), None)
    longer = history("a", "b", "c")
    known.remember("one", known_request(longer), known.match("one", "openai.chat", longer))
    assert len(known._kept) == 1
    branch = history("a", "b", "x", "y")
    known.remember("one", known_request(branch), known.match("one", "openai.chat", branch))
    assert len(known._kept) == 2
    assert known.match("one", "openai.chat", history("a", "b", "c", "d")).count == 3
    assert known.match("one", "openai.chat", history("a", "b", "x", "y", "z")).count == 4


def test_the_cache_is_bounded_and_evicts_the_oldest_request_first():
    known = KnownRequests(max_bytes=20_000)
    for number in range(50):
        known.remember("one", known_request(history(f"{number} " + "x" * 1_000, "b")), None)
    assert known._size <= 20_000
    assert 0 < len(known._kept) < 10
    assert known.match("one", "openai.chat", history("0 " + "x" * 1_000, "b", "c")) is None
    assert known.match("one", "openai.chat", history("49 " + "x" * 1_000, "b", "c")).count == 2
    known.remember("one", known_request(history("y" * 30_000, "b")), None)
    assert (len(known._kept), known._size, dict(known._by_owner)) == (0, 0, {})


class Forgetful(KnownRequests):
    """Never matches: every request is parsed whole."""

    def match(self, key: str, wire: str, raw: bytes) -> KnownPrefix | None:
        return None


class Counting(KnownRequests):
    matches = 0

    def match(self, key: str, wire: str, raw: bytes) -> KnownPrefix | None:
        found = super().match(key, wire, raw)
        self.matches += found is not None
        return found


class Pair:
    """Two gateways in this process that get the same requests; one of them parses every request whole."""

    def __init__(self, url: str) -> None:
        upstream_settings = {"url": f"{url}/v1", "speaks": ["chat", "messages"]}
        arguments = {
            "store": "memory:",
            "gateway": {"upstreams": {"main": upstream_settings}},
            "recall": {"enabled": False},
        }
        self._loop = asyncio.Runner()
        self.gateways = []
        for known in (Counting(), Forgetful()):
            made = Gateway(load(environ={}, arguments=arguments), MemoryStore())
            made.guard._known = made._known = known
            for route in made.routes:
                if hasattr(route.app, "_known"):
                    route.app._known = known
            secrets = [made.keys.add(Key(id="", name=name))[1] for name in ("one", "two")]
            self.gateways.append((made, secrets))

    def ask(self, path: str, raw: bytes, who: int, headers: dict[str, str]) -> list[tuple[int, bytes]]:
        answers = []
        for gateway, secrets in self.gateways:
            all_headers = {"host": "127.0.0.1:8642", "authorization": f"Bearer {secrets[who]}", **headers}
            all_headers |= {"content-type": "application/json", "content-length": str(len(raw))}
            pairs = [(name.encode(), value.encode()) for name, value in all_headers.items()]
            status, _, body = self._loop.run(direct_call(gateway.asgi, "POST", path, pairs, raw))
            answers.append((status, body))
        return answers

    def stored(self) -> list[list[list[tuple[str, str, bytes]]]]:
        """Returns the messages of all sessions of each gateway, whatever the names of the sessions."""
        return [
            sorted(
                [
                    (entry.role, entry.wire, entry.content)
                    for entry in made.store.read(found.session)
                    if entry.kind == MESSAGE
                ]
                for found in made.store.sessions()
                if found.session.startswith("agent:")
            )
            for made, _ in self.gateways
        ]

    def close(self) -> None:
        for gateway, _ in self.gateways:
            self._loop.run(gateway.upstreams.close())
            gateway.close()
        self._loop.close()


@pytest.fixture(scope="module")
def upstream():
    def echo_last_message(request: Asked) -> Says:
        return Says(text=f"answer to: {json.dumps(request.messages[-1].get('content'))[:60]}")

    with running(ScriptedUpstream(echo_last_message)) as made:
        yield made


EDITS = st.tuples(
    st.sampled_from(
        ["go on", "go on", "go on", "edit", "drop", "again", "remind", "other key", "other name", "tools", "mark"]
    ),
    st.integers(0, 20),
    WORDS.filter(str.strip),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(EDITS, min_size=2, max_size=9), path=st.sampled_from(["chat/completions", "messages"]))
def test_an_edited_history_is_stored_as_if_every_request_were_parsed_whole(upstream, steps, path):
    pair = Pair(upstream.url)
    messages: list[dict] = [{"role": "user", "content": "hello"}]
    headers: dict[str, str] = {}
    more: dict = {}
    who = 0
    try:
        for action, place, text in [("again", 0, "x"), *steps, ("again", 0, "x")]:
            at = place % len(messages)
            reminder: list[dict] = []
            match action:
                case "edit":
                    messages[at] = {**messages[at], "content": text}
                case "drop" if len(messages) > 2:
                    del messages[at - at % 2 : at - at % 2 + 2]
                case "remind" if path != "messages":
                    reminder = [{"role": "system", "content": text}]
                case "other key":
                    who = 1 - who
                case "other name":
                    headers = {"x-session-id": f"a-long-name-{place % 3}"}
                case "tools":
                    parameters = {"type": "object", "properties": {}}
                    tool = {"name": "run", "parameters": parameters}
                    more = {"tools": [{"type": "function", "function": tool}]} if path != "messages" else {}
                case "mark" if path == "messages":
                    block = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
                    messages[-1] = {"role": "user", "content": [block]}
                case "go on":
                    messages += [{"role": "user", "content": text}] if messages[-1]["role"] == "assistant" else []
            if messages[-1]["role"] == "assistant":
                messages.append({"role": "user", "content": text})
            raw = json.dumps({"model": "gpt-4o", "max_tokens": 50, "messages": [*messages, *reminder], **more}).encode()
            count_before = len(upstream.asked)
            (status, body), (status_whole, _) = pair.ask(f"/v1/{path}", raw, who, headers)
            assert status == status_whole
            if status == 200:
                first, second = upstream.asked[count_before:]
                assert first.raw == second.raw
                answer = json.loads(body)
                content = answer["content"] if path == "messages" else answer["choices"][0]["message"]["content"]
                messages.append({"role": "assistant", "content": content})
        fast, whole = pair.stored()
        assert fast == whole
        assert pair.gateways[0][0]._known.matches
    finally:
        pair.close()
