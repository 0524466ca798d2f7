"""Promise 18: the gateway never fetches what a message names.

A gateway process receives requests full of addresses: images, files, tool servers, webhooks, upstreams chosen by the
client, and an upstream that redirects. Every connection and every name lookup of the process is recorded by an audit
hook that the process cannot remove. Only the upstream is ever contacted.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(0)
HERE = Path(__file__).parent
ROOT = HERE.parent.parent

PROGRAM = """
import asyncio, json, socket, sys
sys.path[:0] = sys.argv[3:5]
seen = []
sys.addaudithook(
    lambda event, args: seen.append([event, str(args[1] if event == "socket.connect" else args[0])])
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request") else None
)
from pathlib import Path
from chaos import Provider, clean, direct, elsewhere
from tests.gateway.upstream import Says, ScriptedUpstream

async def main():
    requests = json.loads(Path(sys.argv[1]).read_text())
    scripted = ScriptedUpstream(lambda request: Says(text="See http://169.254.169.254/ and ![x](http://10.0.0.1/a.png)"))
    turn = iter(range(10**9))
    fault = lambda request: elsewhere if next(turn) % 5 == 0 else clean
    statuses = {}
    async with Provider(scripted, fault).listening() as provider, direct(Path(sys.argv[2]), provider.url) as gw:
        for path, body, headers in requests:
            answer = await gw.ask("POST", path, json.dumps(body).encode(), headers=headers)
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
        if "fetch" in sys.argv[5:]:  # the control: fetches an address in a message
            url = requests[0][1]["messages"][0]["content"][0]["image_url"]["url"]
            try:
                socket.create_connection((url.split("/")[2].split(":")[0], 9), timeout=0.05)
            except OSError:
                pass
        upstream = str(("127.0.0.1", int(provider.url.rpartition(":")[2])))
    allowed = {("socket.connect", upstream), ("socket.getaddrinfo", "127.0.0.1")}
    others = [event for event in seen if tuple(event) not in allowed]
    made = sum(event == ["socket.connect", upstream] for event in seen)
    print(json.dumps({"statuses": statuses, "others": others, "made": made, "asked": len(scripted.asked)}))

asyncio.run(main())
"""
HOSTS = (
    *("169.254.169.254", "127.0.0.1:1", "127.0.0.2:9", "localhost:9", "[::1]:9", "[fd00:ec2::254]", "0.0.0.0:9"),
    *("metadata.google.internal", "2130706433:9", "0x7f.1:9", "127.1:9", "[::ffff:127.0.0.1]:9", "evil.example"),
)
HEADERS = ("x-base-url", "x-upstream", "x-forwarded-host", "referer", "x-webhook")
SCHEMES = ("http", "https", "file", "ftp", "gs", "s3", "ws", "HTTP")


def address(rng: random.Random) -> str:
    return f"{rng.choice(SCHEMES)}://{rng.choice(HOSTS)}/{rng.randrange(10**9)}.png"


def requests(rng: random.Random, urls: int) -> list[Any]:
    """Returns requests in three formats with so many addresses, in every field that could be fetched from."""
    made: list[Any] = [("/v1/chat/completions", chat(lambda: "http://127.0.0.1:9/first.png"), {})]
    named = 0
    while named < urls:
        url = lambda: address(rng)  # noqa: E731
        headers = {
            name: address(rng) for name in ("x-base-url", "x-upstream", "x-forwarded-host", "referer", "x-webhook")
        }
        path, body = rng.choice((("/v1/chat/completions", chat), ("/v1/responses", items), ("/v1/messages", blocks)))
        made.append((path, body(url), headers))
        named += json.dumps(made[-1]).count("://")
    return made


def chat(url: Any) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url()}} for _ in range(60)]
    parts += [
        {"type": "text", "text": f"see {url()} and <img src='{url()}'>"},
        {"type": "file", "file": {"file_url": url()}},
    ]
    tools = [{"type": "function", "function": {"name": "get", "description": url(), "parameters": {"$ref": url()}}}]
    more = {"base_url": url(), "api_base": url(), "webhook": url(), "callback_url": url(), "metadata": {"url": url()}}
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": parts}], "tools": tools, **more}


def items(url: Any) -> dict[str, Any]:
    parts = [{"type": "input_image", "image_url": url()} for _ in range(60)]
    parts += [{"type": "input_file", "file_url": url()}, {"type": "input_text", "text": url()}]
    tools = [{"type": "mcp", "server_label": "a", "server_url": url()}, {"type": "function", "name": "get"}]
    return {"model": "gpt-4o", "input": [{"role": "user", "content": parts}], "tools": tools, "webhook_url": url()}


def blocks(url: Any) -> dict[str, Any]:
    parts = [{"type": "image", "source": {"type": "url", "url": url()}} for _ in range(60)]
    parts += [{"type": "document", "source": {"type": "url", "url": url()}}, {"type": "text", "text": url()}]
    body = {"model": "gpt-4o", "max_tokens": 9, "messages": [{"role": "user", "content": parts}]}
    tools = [{"name": "get", "description": url(), "input_schema": {"type": "object"}}]
    return {**body, "tools": tools, "mcp_servers": [{"type": "url", "name": "a", "url": url()}], "system": url()}


def watched(folder: Path, sent: list[Any], *more: str) -> dict[str, Any]:
    """Runs a gateway process on requests; returns what its audit hook recorded."""
    (folder / "requests.json").write_text(json.dumps(sent))
    arguments = [str(folder / "requests.json"), str(folder), str(ROOT), str(HERE), *more]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.promise
def test_nothing_that_a_message_names_is_ever_fetched(swift_folder, scale):
    sent = requests(random.Random(18), scale(2_000, ci=10_000, release=100_000))
    found = watched(swift_folder, sent)
    assert found["others"] == []
    assert found["asked"] == len(sent)
    assert found["made"] >= 1
    assert set(found["statuses"]) == {"200", "502"}  # a redirect is treated as a failure of the upstream


def test_a_gateway_that_fetches_is_detected(swift_folder):
    found = watched(swift_folder, requests(random.Random(18), 1), "fetch")
    assert ["socket.connect", "('127.0.0.1', 9)"] in found["others"]
