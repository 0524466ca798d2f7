"""`recto mcp` as a process: what it writes where, what a cancelled call leaves behind, and two of them at once."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from contextlib import suppress

import anyio
import apsw
from tests.mcp.serving import ENVIRONMENT, MAIN, PROGRAM, SECONDS, Asking, asking, opened, over_stdio

import recto
from recto.engine.projection import NOTE

ROUNDS = 10


def spoken(id: int | None, method: str, **params: object) -> str:
    asked = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(asked if id is None else {**asked, "id": id})


def noted(session: recto.Session) -> list[str]:
    return [json.loads(entry.content)["text"] for entry in session.read() if entry.kind == NOTE]


def test_standard_output_carries_the_protocol_and_nothing_else_and_a_reader_stores_nothing(tmp_path):
    store = tmp_path / "transcript.db"
    with opened(store) as session:
        session.append({"role": "user", "content": "Hello."})
    (tmp_path / "transcript.db-recall").write_bytes(b"this is no index")
    lines = [
        spoken(
            1,
            "initialize",
            protocolVersion="2025-06-18",
            capabilities={},
            clientInfo={"name": "a test", "version": "1"},
        ),
        spoken(None, "notifications/initialized"),
        "this is no JSON",
        spoken(2, "tools/call", name="recall", arguments={"query": "hello"}),
        spoken(3, "tools/call", name="sessions", arguments={}),
        spoken(4, "tools/call", name="note", arguments={"text": "not allowed"}),
        spoken(5, "surprise"),
        spoken(6, "tools/list"),
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
        told: dict[int, dict] = {}
        while not {1, 2, 3, 4, 5, 6} <= set(told):
            line = process.stdout.readline()
            assert line, "it ended before it had answered"
            answer = json.loads(line)
            assert answer["jsonrpc"] == "2.0"
            told[answer.get("id")] = answer
        process.stdin.close()
        assert all(json.loads(line)["jsonrpc"] == "2.0" for line in process.stdout)
        assert process.wait(SECONDS) == 0
    assert told[1]["result"]["serverInfo"]["name"] == "recto"
    assert told[3]["result"]["structuredContent"]["sessions"][0]["session"] == MAIN
    assert told[4]["result"]["isError"]
    assert "may only read" in told[4]["result"]["content"][0]["text"]
    assert "note" not in [tool["name"] for tool in told[6]["result"]["tools"]]
    assert told[5]["error"]["code"] == -32601
    assert str(tmp_path) not in json.dumps(told)
    with opened(store) as session:
        assert len(session) == 1


def test_a_message_without_an_end_ends_the_server_with_an_error_and_memory_stays_bounded(tmp_path):
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
            spoken(1, "initialize", **hello),
            *(spoken(None, "notifications/initialized", padding="x" * 30_000) for _ in range(10)),
            spoken(2, "tools/list", padding="x" * (limit - 200)),
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


def test_a_cancelled_call_is_forgotten_and_the_next_one_answered(tmp_path):
    store = tmp_path / "transcript.db"
    with opened(store) as session:
        session.append({"role": "user", "content": "Hello."})
    with asking(over_stdio(store, RECTO_LIMITS__LOCK_SECONDS="3"), store) as client:
        assert client.told("sessions")["sessions"]
        holds = apsw.Connection(str(store))
        holds.execute("begin immediate")  # whoever writes waits, and is refused in the end

        async def given_up() -> bool:
            with anyio.move_on_after(0.5) as scope:
                await client.client.call_tool("note", {"text": "given up"})
            return scope.cancelled_caught

        assert client.portal.call(given_up)
        assert client.told("recall", query="hello")["hits"]
        says = client.refused("note", text="locked out")
        assert "Try again later" in says
        assert "transcript.db" not in says
        holds.execute("rollback")
        holds.close()
        client.told("note", text="the next one")
    with opened(store) as session:
        assert "the next one" in noted(session)
        assert "locked out" not in noted(session)


def test_two_clients_at_once_lose_nothing_and_repeat_nothing(tmp_path):
    store = tmp_path / "transcript.db"
    with asking(over_stdio(store), store) as one, asking(over_stdio(store), store) as two:
        threads = [threading.Thread(target=_notes, args=(client, name)) for client, name in ((one, "a"), (two, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        assert one.told("sessions") == two.told("sessions")
    with opened(store) as session:
        assert session.verify().ok
        assert sorted(noted(session)) == sorted(f"{name} {number}" for name in "ab" for number in range(ROUNDS))


def _notes(client: Asking, name: str) -> None:
    for number in range(ROUNDS):
        client.told("note", text=f"{name} {number}")


def test_without_the_packages_there_is_no_path_and_the_command_says_what_to_install():
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
