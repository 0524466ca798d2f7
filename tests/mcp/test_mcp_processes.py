"""`recto mcp` as a process: its output streams, cancelled calls, memory limits, and two servers on one store."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from contextlib import suppress

import anyio
import apsw
from tests.mcp.serving import ENVIRONMENT, MAIN, PROGRAM, SECONDS, SyncClient, opened, over_stdio, sync_client

import recto
from recto.engine.projection import NOTE

ROUNDS = 10


def rpc_message(id: int | None, method: str, **params: object) -> str:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if id is None else {**message, "id": id})


def notes_of(session: recto.Session) -> list[str]:
    return [json.loads(entry.content)["text"] for entry in session.read() if entry.kind == NOTE]


def test_standard_output_carries_only_the_protocol_and_a_read_only_server_stores_nothing(tmp_path):
    store = tmp_path / "transcript.db"
    with opened(store) as session:
        session.append({"role": "user", "content": "Hello."})
    (tmp_path / "transcript.db-recall").write_bytes(b"this is no index")
    lines = [
        rpc_message(
            1,
            "initialize",
            protocolVersion="2025-06-18",
            capabilities={},
            clientInfo={"name": "a test", "version": "1"},
        ),
        rpc_message(None, "notifications/initialized"),
        "this is no JSON",
        rpc_message(2, "tools/call", name="recall", arguments={"query": "hello"}),
        rpc_message(3, "tools/call", name="sessions", arguments={}),
        rpc_message(4, "tools/call", name="note", arguments={"text": "not allowed"}),
        rpc_message(5, "surprise"),
        rpc_message(6, "tools/list"),
    ]
    with subprocess.Popen(
        [PROGRAM, "--store", str(store), "mcp", "--read-only"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        answers: dict[int, dict] = {}
        while not {1, 2, 3, 4, 5, 6} <= set(answers):
            line = process.stdout.readline()
            assert line, "the server ended before it answered"
            answer = json.loads(line)
            assert answer["jsonrpc"] == "2.0"
            answers[answer.get("id")] = answer
        process.stdin.close()
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in process.stdout)
        assert process.wait(SECONDS) == 0
    assert answers[1]["result"]["serverInfo"]["name"] == "recto"
    assert answers[3]["result"]["structuredContent"]["sessions"][0]["session"] == MAIN
    assert answers[4]["result"]["isError"]
    assert "may only read" in answers[4]["result"]["content"][0]["text"]
    assert "note" not in [tool["name"] for tool in answers[6]["result"]["tools"]]
    assert answers[5]["error"]["code"] == -32601
    assert str(tmp_path) not in json.dumps(answers)
    with opened(store) as session:
        assert len(session) == 1


def test_an_endless_message_stops_the_server_with_an_error_and_bounded_memory(tmp_path):
    store, limit, space = tmp_path / "transcript.db", 50_000, 3 << 30
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}}
    with subprocess.Popen(
        [PROGRAM, "--store", str(store), "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "RECTO_GATEWAY__BODY_BYTES": str(limit)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)),  # noqa: PLW1509  # no threads here
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [
            rpc_message(1, "initialize", **hello),
            *(rpc_message(None, "notifications/initialized", padding="x" * 30_000) for _ in range(10)),
            rpc_message(2, "tools/list", padding="x" * (limit - 200)),
        ]
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == [1, 2]
        with suppress(BrokenPipeError):
            while process.poll() is None:
                process.stdin.write("\0" * 100_000)
                process.stdin.flush()
        assert process.wait(SECONDS) not in (0, 137)
        says = process.stderr.read()
    assert "the limit is 50,000; raise 'gateway.body_bytes'" in says
    assert "Traceback" not in says


def test_a_cancelled_call_is_dropped_and_the_next_one_is_answered(tmp_path):
    store = tmp_path / "transcript.db"
    with opened(store) as session:
        session.append({"role": "user", "content": "Hello."})
    with sync_client(over_stdio(store, RECTO_LIMITS__LOCK_SECONDS="3"), store) as client:
        assert client.call("sessions")["sessions"]
        locker = apsw.Connection(str(store))
        locker.execute("begin immediate")  # writers wait, and are refused in the end

        async def cancel_call() -> bool:
            with anyio.move_on_after(0.5) as scope:
                await client.client.call_tool("note", {"text": "given up"})
            return scope.cancelled_caught

        assert client.portal.call(cancel_call)
        assert client.call("recall", query="hello")["hits"]
        says = client.refused("note", text="locked out")
        assert "Try again later" in says
        assert "transcript.db" not in says
        locker.execute("rollback")
        locker.close()
        client.call("note", text="the next one")
    with opened(store) as session:
        assert "the next one" in notes_of(session)
        assert "locked out" not in notes_of(session)


def test_two_concurrent_clients_lose_and_repeat_no_entry(tmp_path):
    store = tmp_path / "transcript.db"
    with sync_client(over_stdio(store), store) as first, sync_client(over_stdio(store), store) as second:
        threads = [
            threading.Thread(target=_notes, args=(client, name)) for client, name in ((first, "a"), (second, "b"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        assert first.call("sessions") == second.call("sessions")
    with opened(store) as session:
        assert session.verify().ok
        assert sorted(notes_of(session)) == sorted(f"{name} {number}" for name in "ab" for number in range(ROUNDS))


def _notes(client: SyncClient, name: str) -> None:
    for number in range(ROUNDS):
        client.call("note", text=f"{name} {number}")


def test_without_the_packages_there_is_no_route_and_the_command_names_what_to_install():
    blocked = "import sys; sys.modules['mcp'] = sys.modules['mcp_types'] = None; sys.argv = ['recto', 'mcp']; "
    check = "import recto.gateway.app, recto.gateway.endpoints.mcp; assert not recto.gateway.endpoints.mcp.RULES; "
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}{check}from recto.cli.main import main; main()"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "pip install 'recto-ai[mcp]'" in done.stderr
