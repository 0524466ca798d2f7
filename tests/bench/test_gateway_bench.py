"""The benchmark of the gateway measures what it says: agents that send their history again, and answers that count."""

import asyncio
import json
import subprocess

import pytest
from bench.gateway import Cell, Kept
from bench.gateway_load import Load, Talk, Took, measured
from bench.gateway_upstream import Canned, answer, reply_text

from bench import gateway, gateway_peer
from recto.formats import problems
from recto.formats.openai_chat import CHAT


def ran(load: Load) -> Took:
    """A load against a canned upstream, both in this loop."""

    async def both() -> Took:
        server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            given = {name: getattr(load, name) for name in Load.__slots__} | {"url": f"http://127.0.0.1:{port}/v1"}
            return await measured(Load(**given))

    return asyncio.run(both())


def body_of(request: bytes) -> dict:
    return json.loads(request.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("stream", [False, True])
def test_every_turn_of_every_session_is_timed_and_openings_are_kept_apart(stream):
    took = ran(Load(url="", clients=3, sessions=2, turns=4, messages=10, stream=stream))
    assert (len(took.opening), len(took.turns), took.failed) == (6, 24, 0)
    assert all(0 < first <= last for first, last in zip(took.first_byte, took.turns, strict=True))


def test_a_session_sends_a_valid_history_and_then_the_same_one_with_more_at_its_end():
    talk = Talk(Load(url="http://127.0.0.1:1/v1", messages=10), "s")
    first = body_of(talk.request())["messages"]
    talk.answered(7)
    second = body_of(talk.request())["messages"]
    assert [one["role"] for one in first[1:]] == ["user", "assistant"] * 5 + ["user"]
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": reply_text(7)}
    assert second[-1]["role"] == "user"
    assert not problems([json.dumps(one).encode() for one in second], CHAT)


def test_no_two_sessions_have_a_message_in_common():
    one, other = (Talk(Load(url="http://127.0.0.1:1/v1", messages=30), name) for name in ("a.0", "a.1"))
    assert not set(one.messages) & set(other.messages)


def test_a_streamed_answer_says_the_same_as_a_whole_one():
    whole = body_of(answer(b"{}", 5))["choices"][0]["message"]["content"]
    streamed = answer(b'{"stream": true, "stream_options": {"include_usage": true}}', 5).partition(b"\r\n\r\n")[2]
    events = [line[6:] for line in streamed.split(b"\n") if line.startswith(b"data: ")]
    chunks = [json.loads(event) for event in events if not event.startswith(b"[DONE]")]
    said = "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])
    assert said == whole == reply_text(5)
    assert chunks[-1]["usage"]["total_tokens"] > 0


def test_an_answer_that_is_none_counts_as_failed_and_not_as_fast():
    async def both() -> Took:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await measured(Load(url=f"http://127.0.0.1:{port}/v1", turns=2))

    took = asyncio.run(both())
    assert (took.failed, took.turns, took.opening) == (3, [], [])


def test_what_a_gateway_adds_is_measured_against_no_gateway_and_losing_is_shown():
    cell = Cell(clients=1, messages=10, stream=False)
    found = {gateway.DIRECT: Kept(opening=[1.0], turns=[1.0, 2.0, 9.0], rates=[500.0])}
    found[gateway.RECTO] = Kept(opening=[9.0], turns=[11.0, 12.0, 29.0], rates=[80.0], processor=0.04, failed=2)
    direct, recto = gateway._rows(cell, found)
    assert direct["figures"]["added p50 ms"] == 0
    assert (recto["figures"]["added p50 ms"], recto["figures"]["added p99 ms"]) == (10, 20)
    assert recto["figures"]["CPU ms"] == 10
    assert recto["note"].endswith("2 failed")


def test_growth_is_the_slope_of_what_is_held():
    assert gateway.slope([(0, 100.0), (10, 101.0), (20, 102.0)]) == pytest.approx(0.1)
    assert gateway.slope([(5, 100.0)]) == 0


def test_a_gateway_that_cannot_be_installed_is_told_and_not_dropped(monkeypatch):
    def refuse(peer):
        raise subprocess.CalledProcessError(1, ["pip"], stderr="ERROR: no such version\n")

    monkeypatch.setattr(gateway_peer, "install", refuse)
    with gateway.ExitStack() as stack:
        running: dict = {}
        (row,) = gateway._other(stack, running, gateway_peer.Running(url="http://127.0.0.1:1/v1"))
    assert not running
    assert (row["what"], row["note"]) == ("LiteLLM: not measured", "ERROR: no such version")
