"""The fill level of a session's prompt: every screen shows the same tokens, room, zone and turn at the same time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse
from tests.cli.calling import called_at, own_file
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running
from tests.tui.driving import drawn, driven, press
from tests.web.browsing import BUILT, CHROMIUM, chromium, visit

import recto
from recto.engine.views.codec import to_builtins
from recto.errors import InputError
from recto.mcp import queries
from recto.mcp.context import McpContext
from recto.mcp.params import ReportParams
from recto.tui.display_text import percent, reading_line, short_number

MODEL, MAIN = "gpt-4o", "agent:default:main"
ONE, TWO, THREE = (f"agent:default:{name}" for name in ("one", "two", "three"))
MODELS = {MODEL: {"window": 8_000, "max_output": 1_000}}
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads. " * 80,
        "parameters": {"type": "object", "properties": {}},
    },
}


class Screens:
    """A gateway over a store, and the programs that show a session of it."""

    def __init__(self, home: Path, gw: Running, upstream: ScriptedUpstream, settings: dict[str, Any]) -> None:
        self.home = home
        self.gw = gw
        self.upstream = upstream
        self.settings = settings

    def get(self, path: str, session: str, **query: object) -> Any:
        headers = {"authorization": f"Bearer {self.gw.secret}"}
        params = {"session": session, **query}
        answer = httpx2.get(f"{self.gw.url}/api/v1{path}", params=params, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ask(self, messages: list[dict[str, Any]], session: str, **more: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.gw.secret}", "x-recto-session-id": session}
        body = {"model": MODEL, "messages": messages, "tools": [TOOL], **more}
        return httpx2.post(f"{self.gw.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    def readings(self, session: str) -> dict[str, tuple[int, int, str, int]]:
        """Returns the tokens, room, zone and turn that each screen shows."""
        reading = self.get("/session", session)["reading"]
        health = self.get("/session/health", session)
        if health["turns"]:
            assert health["forecast"]["until_red"] == reading["turns_until_red"]
        found = {
            "page and sidebar": reading,
            "page, window": self.get("/session/window", session),
            "page, budget": self.get("/session/context", session)["reading"],
            "page, health": health["reading"],
            "recto context": json.loads(called_at(self.home, "context", "list", "--session", session, "--json"))[
                "reading"
            ],
            "recto health": json.loads(called_at(self.home, "health", "--session", session, "--json"))["reading"],
            "MCP": self._mcp(session),
            "library": self._library(session),
        }
        timeline = self.get("/session/timeline", session)
        found["page, timeline"] = timeline["points"][-1] | {"room": timeline["room"]}
        asyncio.run(self._terminal(session))
        return {name: (shown["tokens"], shown["room"], shown["zone"], shown["turn"]) for name, shown in found.items()}

    def _mcp(self, session: str) -> dict[str, Any]:
        key = next(key for key in self.gw.gateway.keys.list() if key.name == "test")
        pool = self.gw.gateway.sessions
        context = McpContext(
            store=pool.view(key), use=lambda name: pool.use(key, name, MODEL), default_session=MAIN, may_change=False
        )
        return to_builtins(queries.context_report(context, ReportParams(session=session)))

    def _library(self, session: str) -> dict[str, Any]:
        with recto.open(session=session, **self.settings) as opened:
            assert opened.report().reading == opened.health.report().reading
            return to_builtins(opened.report().reading)

    async def _terminal(self, session: str) -> None:
        """Checks that the gauge of every screen, the window and health match the API."""
        async with driven(self.gw, session, size=(160, 40)) as pilot:
            now = pilot.app.state.now
            assert now is not None
            reading = now.reading
            assert to_builtins(reading) == self.get("/session", session)["reading"]
            for keys in (("4",), ("4", "t"), ("8",)):  # the window, its budget, health
                await press(pilot, "escape", *keys)
                screen = drawn(pilot)
                assert f"{percent(reading.utilization)} {reading.zone}" in screen
                assert f"{short_number(reading.tokens)}/{short_number(reading.room)}" in screen
                if keys == ("4",):
                    assert f"Turn {reading.turn:,}" in screen
                    full = f"{reading.tokens:,} of {reading.room:,} tokens"
                    assert f"{full} {percent(reading.utilization)} {reading.zone}" in screen
                else:
                    assert reading_line(reading) in screen or "No turn of this session was measured" in screen


@pytest.fixture
def screens(tmp_path) -> Iterator[Screens]:
    upstream = ScriptedUpstream(lambda request: Says(text="Noted. " + "The ledger is balanced. " * 60))
    more: dict[str, Any] = {
        "model": MODEL,
        "models": MODELS,
        "recall": {"embedder": {"use": "none"}, "background": False},
    }
    with ExitStack() as stack:
        stack.enter_context(running(upstream))
        gw = stack.enter_context(gateway(tmp_path, upstream.url, **more))
        settings = {"store": str(tmp_path / "transcript.db"), **more}
        own_file(tmp_path).write_text(json.dumps(settings))
        yield Screens(tmp_path, gw, upstream, settings)


def agree(readings: dict[str, tuple[int, int, str, int]]) -> tuple[int, int, str, int]:
    """Checks that all screens show the same reading, and returns it."""
    assert len(set(readings.values())) == 1, readings
    return next(iter(readings.values()))


@pytest.mark.requirement("report.one-reading")
def test_every_screen_shows_one_reading_of_a_gateway_session(screens):
    history = [
        {"role": "system", "content": "# Rules\n\nBe short."},
        {"role": "user", "content": "Balance the ledger."},
    ]
    screens.upstream.fail = lambda request: JSONResponse({"error": {"message": "down"}}, status_code=500)
    assert screens.ask(history, ONE).status_code >= 500
    before = agree(screens.readings(ONE))
    screens.upstream.fail = lambda request: None

    answer = screens.ask(history, ONE)
    sent = int(answer.headers["x-recto-tokens"].split("/")[0])
    run = screens.get("/session/context", ONE)["run"]
    assert run["tokens"] == sent == before[0]
    assert any(piece["kind"] == "tool" and piece["name"] == "read_file" for piece in run["pieces"])
    after = agree(screens.readings(ONE))
    assert after[0] > sent

    while True:
        history.append(answer.json()["choices"][0]["message"])
        history.append({"role": "user", "content": "And the next page. " * 60})
        answer = screens.ask(history, ONE)
        assert answer.status_code == 200, answer.text
        if answer.headers["x-recto-decisions"] != "none":
            break
    evicted = agree(screens.readings(ONE))
    assert evicted[3] == sum(message["role"] == "user" for message in history)
    last = screens.get("/session/context", ONE)["run"]
    assert last["tokens"] == int(answer.headers["x-recto-tokens"].split("/")[0])
    earlier = screens.get("/session/context", ONE, run=run["seq"])["run"]
    assert earlier == run
    assert (
        json.loads(called_at(screens.home, "context", "detail", "--session", ONE, "--run", str(run["seq"]), "--json"))[
            "run"
        ]
        == run
    )


@pytest.mark.requirement("report.one-reading")
def test_every_screen_shows_one_reading_of_a_library_session(screens):
    with recto.open(session=TWO, **screens.settings) as session:
        session.append({"role": "user", "content": "Balance the ledger."})
        agree(screens.readings(TWO))
        prompt = session.prompt([TOOL])
        session.append({"role": "assistant", "content": "It is balanced."})
        tokens, *_ = agree(screens.readings(TWO))
        assert tokens == prompt.tokens + session.tail(1)[0].tokens
        for turn in range(12):
            session.append({"role": "user", "content": f"Page {turn}. " + "More of the ledger. " * 80})
            decided = session.prompt([TOOL]).decisions
            session.append({"role": "assistant", "content": "Noted. " * 100})
            if decided:
                break
        assert decided
        agree(screens.readings(TWO))
        session.compact()
        assert agree(screens.readings(TWO))[3] == turn + 2
        with ThreadPoolExecutor(1) as browser:  # a browser and an event loop cannot run in one thread
            shown = browser.submit(page_says, screens.gw, TWO).result()
        tokens, room, zone, turns = agree(screens.readings(TWO))
        for where, says in shown.items():
            assert f"{tokens:,} of {room:,} tokens" in says, where
            assert zone in says, where
            assert f"turn {turns:,}" in says.lower(), where


def page_says(gw: Running, session: str) -> dict[str, str]:
    """Returns the header of the page and the summary of its window from a browser."""
    if not CHROMIUM or not BUILT.exists():
        pytest.skip("there is no Chromium here, or no page: make chromium web")
    with chromium() as browser, visit(browser, gw.url) as made:
        page = made.enter(gw.secret, "window", session)
        page.locator(".window-says").wait_for()
        page.locator(".gauge-line").wait_for()
        names = {"header": ".gauge-line", "window": ".window-says"}
        return {name: page.locator(where).inner_text() for name, where in names.items()}


def test_an_entry_that_answers_no_prompt_has_no_run(screens):
    with recto.open(session=THREE, **screens.settings) as session:
        session.append({"role": "user", "content": "Hello?"})
        assert session.report().run is None
        with pytest.raises(InputError, match=r"entry 1 answers no prompt"):
            session.report(run=1)
        headers = {"authorization": f"Bearer {screens.gw.secret}"}
        url = f"{screens.gw.url}/api/v1/session/context?session={THREE}&run=1"
        assert httpx2.get(url, headers=headers, timeout=60).status_code == 422
