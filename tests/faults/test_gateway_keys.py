"""Promise 10: without a key nothing happens.

Keys that are wrong in every way anybody thought of, on every route of the whole gateway: none opens anything, none is
an error of the server, no upstream is asked, and nothing is stored.
"""

from __future__ import annotations

import asyncio
import random
import string
from pathlib import Path
from typing import Any

import pytest
from chaos import PORT, Direct, Provider, call, direct
from tests.gateway.upstream import Says, ScriptedUpstream

from recto.core.keys import Key
from recto.engine.keys import Keys

pytestmark = pytest.mark.timeout(0)
SHARDS = 4
CROWD = 100
"""So many guess at once."""
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
    """Something that is no key, often nearly one."""
    match rng.randrange(6):
        case 0:
            return secret[: rng.randrange(len(secret))]
        case 1:
            return secret + rng.choice(string.printable[:94])
        case 2:
            at = rng.randrange(3, len(secret))
            return (
                secret[:at] + rng.choice([one for one in string.ascii_letters if one != secret[at]]) + secret[at + 1 :]
            )
        case 3:
            return secret.swapcase()
        case 4:
            return "rk-" + "".join(rng.choices(string.ascii_letters + string.digits + "-_", k=43))
        case _:
            return rng.choice(TRICKS)


async def tried(folder: Path, rng: random.Random, many: int) -> list[Any]:
    """What got past, or broke."""
    found: list[Any] = []
    scripted = ScriptedUpstream(lambda asked: Says(text="x"))
    async with Provider(scripted).listening() as provider, direct(folder, provider.url) as gw:
        revoked, gone = gw.gateway.keys.add(Key(id="", name="revoked"))
        gw.gateway.keys.revoke(revoked.id)
        stored = [(one.session, one.entries) for one in gw.store.sessions()]
        closed = [rule for rule in gw.gateway.authority.rules if rule.need != "open"]
        for _ in range(0, many, CROWD):
            guesses = []
            for _ in range(CROWD):
                rule = rng.choice(closed)
                secret = gone if rng.random() < 0.05 else wrong(rng, gw.secret)
                guesses.append(ask(gw, rule.method, rule.path.replace("{id}", "conv_1"), headers(rng, secret)))
            found += [one for told in await asyncio.gather(*guesses) for one in told]
        found += [("asked", one) for one in scripted.asked]
        if [(one.session, one.entries) for one in gw.store.sessions()] != stored:
            found.append(("stored", gw.store.sessions()))
    return found


def headers(rng: random.Random, secret: str) -> list[tuple[bytes, bytes]]:
    name = rng.choice(NAMES)
    value = (rng.choice(SCHEMES) if name == "authorization" else "") + secret
    given = [("host", f"127.0.0.1:{PORT}"), (name, value), ("content-type", "application/json")]
    return [(name.encode(), value.encode("latin-1")) for name, value in [*given, ("content-length", str(len(BODY)))]]


async def ask(gw: Direct, method: str, path: str, given: list[tuple[bytes, bytes]]) -> list[Any]:
    status, _, body = await call(gw.gateway.asgi, method, path, given, BODY)
    return [] if status in (400, 401, 431) else [(status, method, path, given, body)]


@pytest.mark.promise
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_wrong_key_opens_anything(swift_folder, shard, scale):
    many = scale(4_000, ci=100_000, release=1_000_000) // SHARDS
    assert asyncio.run(tried(swift_folder, random.Random(10 + shard), many)) == []


def test_a_gateway_that_only_looks_at_how_a_key_begins_is_caught(swift_folder, monkeypatch):
    find = Keys.find
    known: dict[str, Key] = {}

    def careless(keys: Keys, secret: str) -> Key | None:
        """Remembers keys by their beginning, as a gateway once did."""
        found = find(keys, secret)
        if found is None and not known:
            known.update({secret[:3]: keys.list()[0]})
        return found or known.get(secret[:3])

    monkeypatch.setattr(Keys, "find", careless)
    assert asyncio.run(tried(swift_folder, random.Random(10), 100)) != []
