"""Promise 10: without a key nothing happens.

Invalid keys of every known kind, on every route of the gateway: none gives access, none causes a server error, no
upstream is called, and nothing is stored. Most of them are sent to the application directly, through its guard; one in
ten over connections to a gateway process.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import string
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from apart import Process, place
from chaos import PORT, Direct, Provider, call, direct
from tests.gateway.upstream import Says, ScriptedUpstream

from recto.config.factory import SystemClock
from recto.gateway.api_keys import Key, Keys
from recto.gateway.inspection.operations import RULES
from recto.gateway.middleware.auth import TABLE, Rule
from recto.stores.sqlite import SqliteStore

pytestmark = pytest.mark.timeout(0)
SHARDS = 4
CROWD = 100
"""Concurrent guesses."""
LINES, IN_A_ROW = 8, 50
"""Concurrent connections, and requests that each of them sends without waiting for a response."""
REFUSED = (400, 401, 431)
BODY = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}], "input": "hello"}'
TRICKS = (
    *(
        "",
        " ",
        "rk-",
        "rk-*",
        "rk-%",
        "rk-' OR '1'='1",
        'rk-" OR ""="',
        "rk-\\",
        "rk-\x00",
        "rk-%00",
        "null",
        "undefined",
    ),
    *(
        "rk-" + "a" * 43,
        "rk-" + "a" * 125,
        "rk-" + "a" * 9_000,
        "RK-",
        "sk-",
        "rk-\u00e9",
        "rk-\u00ff" * 20,
        "rk-../../etc",
    ),
    *("rk-a,rk-b", "rk-a rk-b", "rk-\tx", "true", "0", "[]", "{}", "rk-;DROP TABLE entries", "rk-$(id)", "rk-`id`"),
)
SCHEMES = ("Bearer ", "bearer ", "Basic ", "Bearer  ", "Bearer", "Token ", "", "Bearer Bearer ")
NAMES = ("authorization", "x-api-key", "x-goog-api-key", "api-key", "x-recto-key", "cookie", "proxy-authorization")


def wrong(rng: random.Random, secret: str) -> str:
    """Returns an invalid key, often close to a valid one."""
    match rng.randrange(6):
        case 0:
            return secret[: rng.randrange(len(secret))]
        case 1:
            return secret + rng.choice(string.printable[:94])
        case 2:
            at = rng.randrange(3, len(secret))
            return (
                secret[:at]
                + rng.choice([letter for letter in string.ascii_letters if letter != secret[at]])
                + secret[at + 1 :]
            )
        case 3:
            return secret.swapcase()
        case 4:
            return "rk-" + "".join(rng.choices(string.ascii_letters + string.digits + "-_", k=43))
        case _:
            return rng.choice(TRICKS)


async def tried(folder: Path, rng: random.Random, many: int) -> list[Any]:
    """Returns every response that passed the guard or failed."""
    found: list[Any] = []
    scripted = ScriptedUpstream(lambda request: Says(text="x"))
    quiet = {"access_log": "off"}  # a million lines; the gateway process below writes its own
    async with Provider(scripted).listening() as provider, direct(folder, provider.url, gateway=quiet) as gw:
        revoked, gone = gw.gateway.keys.add(Key(id="", name="revoked"))
        gw.gateway.keys.revoke(revoked.id)
        stored = [(summary.session, summary.entries) for summary in gw.store.sessions()]
        tries = guesses(rng, gw.gateway.authority.rules, gw.secret, gone)
        for _ in range(0, many, CROWD):
            asking = [ask(gw, rule, headers(name, value, PORT, rule)) for rule, name, value in islice(tries, CROWD)]
            found += [finding for findings in await asyncio.gather(*asking) for finding in findings]
        found += [("asked", request) for request in scripted.asked]
        if [(summary.session, summary.entries) for summary in gw.store.sessions()] != stored:
            found.append(("stored", gw.store.sessions()))
    return found


def guesses(rng: random.Random, rules: Sequence[Rule], secret: str, gone: str) -> Iterator[tuple[Rule, str, str]]:
    """Yields routes that need a key, each with a header that contains an invalid one, without end."""
    closed = [rule for rule in rules if rule.need != "open"]
    while True:
        name = rng.choice(NAMES)
        guess = gone if rng.random() < 0.05 else wrong(rng, secret)
        yield rng.choice(closed), name, (rng.choice(SCHEMES) if name == "authorization" else "") + guess


def headers(name: str, value: str, port: int, rule: Rule, *, brings: bool = True) -> list[tuple[bytes, bytes]]:
    pairs = [("host", f"127.0.0.1:{port}"), (name, value)]
    if brings and rule.method == "POST":
        pairs += [("content-type", "application/json"), ("content-length", str(len(BODY)))]
    return [(name.encode(), value.encode("latin-1")) for name, value in pairs]


async def ask(gw: Direct, rule: Rule, request_headers: list[tuple[bytes, bytes]]) -> list[Any]:
    brought = BODY if rule.method == "POST" else b""
    status, _, body = await call(gw.gateway.asgi, rule.method, path_of(rule), request_headers, brought)
    return [] if status in REFUSED else [(status, rule, request_headers, body)]


def path_of(rule: Rule) -> str:
    return re.sub(r"\{[^}]*\}", "conv_1", rule.path)


async def tried_over_connections(folder: Path, rng: random.Random, many: int) -> list[Any]:
    """Returns every response that passed the guard of a gateway process or failed."""
    scripted = ScriptedUpstream(lambda request: Says(text="x"))
    async with place(folder, Provider(scripted)) as (path, config, secret):
        with SqliteStore(path) as store:
            keys = Keys(store, SystemClock())
            revoked, gone = keys.add(Key(id="", name="revoked"))
            keys.revoke(revoked.id)
            stored = [(summary.session, summary.entries) for summary in store.sessions()]
        process = await Process.started(config)
        tries = guesses(rng, (*TABLE, *RULES), secret, gone)
        left = iter(range(0, many, IN_A_ROW))

        async def line() -> list[Any]:
            return [finding for _ in left for finding in await in_a_row(process.port, list(islice(tries, IN_A_ROW)))]

        found = [finding for findings in await asyncio.gather(*(line() for _ in range(LINES))) for finding in findings]
        await process.end(signal.SIGTERM)
        with SqliteStore(path) as store:
            if [(summary.session, summary.entries) for summary in store.sessions()] != stored:
                found.append(("stored", store.sessions()))
        return found + [("asked", request) for request in scripted.asked]


async def in_a_row(port: int, tries: list[tuple[Rule, str, str]]) -> list[Any]:
    """Pipelines requests on one connection; the last one has a body, and ends the connection."""
    tries.sort(key=lambda attempt: "\0" in attempt[2])  # after a NUL an HTTP parser reads no more
    sent = [
        wired(rule, headers(name, value, port, rule, brings=number == len(tries)))
        for number, (rule, name, value) in enumerate(tries, 1)
    ]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(sent))
    got = b""
    with suppress(ConnectionError):
        while (more := await reader.read(1 << 18)) and len(re.findall(rb"HTTP/1\.1 \d", got := got + more)) < len(sent):
            pass
    writer.close()
    answered = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", got)]
    odd = [pair for pair in zip(answered, tries, strict=False) if pair[0] not in REFUSED]
    unanswered = [attempt for attempt in tries[len(answered) :] if "\0" not in attempt[2]]
    return [*odd, *unanswered]


def wired(rule: Rule, request_headers: list[tuple[bytes, bytes]]) -> bytes:
    head = b"".join(b"%s: %s\r\n" % pair for pair in request_headers)
    body = BODY if any(name == b"content-length" for name, _ in request_headers) else b""
    return f"{rule.method} {path_of(rule)} HTTP/1.1\r\n".encode() + head + b"\r\n" + body


@pytest.mark.promise
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_invalid_key_gives_access(swift_folder, shard, scale):
    many = scale(3_600, ci=980_000, release=900_000) // SHARDS
    assert asyncio.run(tried(swift_folder, random.Random(10 + shard), many)) == []


@pytest.mark.promise
def test_no_invalid_key_gives_access_over_a_connection(swift_folder, scale):
    many = scale(400, ci=20_000, release=100_000)
    assert asyncio.run(tried_over_connections(swift_folder, random.Random(20), many)) == []


def test_a_gateway_that_only_compares_key_prefixes_is_caught(swift_folder, monkeypatch):
    find = Keys.find
    known: dict[str, Key] = {}

    def careless(keys: Keys, secret: str) -> Key | None:
        """Caches keys by their prefix, as a gateway once did."""
        found = find(keys, secret)
        if found is None and not known:
            known.update({secret[:3]: keys.list()[0]})
        return found or known.get(secret[:3])

    monkeypatch.setattr(Keys, "find", careless)
    assert asyncio.run(tried(swift_folder, random.Random(10), 100)) != []


def test_a_key_that_gives_access_is_detected_over_a_connection(tmp_path):
    async def meet() -> list[Any]:
        async with place(tmp_path, Provider(ScriptedUpstream(lambda request: Says(text="x")))) as (_, config, secret):
            process = await Process.started(config)
            rule = Rule("GET", "/v1/models", "ask")
            wrong_attempts = [(rule, "x-api-key", "rk-no")] * 3
            found = await in_a_row(process.port, [*wrong_attempts, (rule, "x-api-key", secret), *wrong_attempts])
            await process.end(signal.SIGTERM)
            return found

    assert [status for status, _ in asyncio.run(meet())] == [200]
