"""The window as an MCP app, and trace context, with a real client in this process and a host in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from mcp.client import Client
from mcp.client.extension import advertise
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.mcp.serving import MAIN, SyncClient, opened
from tests.web.browsing import CHROMIUM, chromium

from recto.config import load
from recto.config.factory import open_store
from recto.engine.session import Session
from recto.health.exporters.opentelemetry import Telemetry
from recto.mcp import window_app
from recto.mcp.context import McpContext
from recto.mcp.server import make_server
from recto.transcript.session_keys import TenantStore

HOSTILE = "<img src=x onerror=alert(1)> <script>document.title = 'owned'</script> </body> kestrel"
APPS = advertise(window_app.EXTENSION, {"mimeTypes": [window_app.MIME_TYPE]})


@contextmanager
def app_client(path: Path, telemetry: Telemetry | None = None, **options: Any) -> Iterator[SyncClient]:
    """A client of a server in this process."""
    store = open_store(load(environ={}, arguments={"store": str(path)}))

    @contextmanager
    def use(name: str) -> Iterator[Session]:
        with opened(path, session=name) as session:
            if telemetry is not None:
                session.health.watch(telemetry)
            yield session

    context = McpContext(store=TenantStore(store, ""), use=use, default_session=MAIN)
    connection = Client(make_server(lambda _: context), **options)
    with (
        closing(store),
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(connection) as client,
    ):
        yield SyncClient(portal, client, path)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("app") / "transcript.db"
    with opened(path, window={"keep_recent_tokens": 400}) as session:
        session.append({"role": "user", "content": f"We deploy to the host kestrel. {HOSTILE}"})
        for number in range(8):
            session.append({"role": "assistant", "content": f"Step {number} is done. {'It took a while. ' * 300}"})
            session.append({"role": "user", "content": f"Go on with step {number + 1}. {HOSTILE}"})
        assert session.compact()
    return path


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_host_that_supports_apps_finds_the_page_and_gets_its_data(store, mode):
    with app_client(store, extensions=[APPS], mode=mode) as client:
        tools = {tool.name: tool for tool in client.request("list_tools").tools}
        assert tools["context_report"].meta == {"ui": {"resourceUri": window_app.URI}}
        assert tools["recall"].meta is None
        if mode == "auto":  # before 2026-07-28 a server has no place to say so
            assert window_app.EXTENSION in client.client.server_capabilities.extensions
        listed = next(item for item in client.request("list_resources").resources if item.uri == window_app.URI)
        page = client.request("read_resource", window_app.URI).contents[0]
        assert listed.mime_type == page.mime_type == window_app.MIME_TYPE
        assert page.meta["ui"]["csp"] == {}
        answer = client.tool("context_report")
    drawn = answer.meta[window_app.DRAWING]
    assert any(block["what"] == "message" for block in drawn["blocks"])
    assert {place for _, _, place in drawn["spans"]} & {"evicted", "summarized"}
    assert sum(block["tokens"] for block in drawn["blocks"]) > 0
    assert HOSTILE not in answer.content[0].text
    assert len(json.dumps(drawn)) < 40_000


def test_a_client_without_apps_gets_the_report_as_before(store):
    with app_client(store) as client:
        answer = client.tool("context_report")
    assert window_app.DRAWING not in (answer.meta or {})
    assert answer.structured_content["session"] == MAIN


HOST = """<!doctype html><title>host</title><iframe sandbox="allow-scripts" style="width:800px;height:900px"></iframe>
<script>
const frame = document.querySelector('iframe'), heard = [];
addEventListener('message', event => {
  const message = event.data;
  heard.push(message);
  if (message.method === 'ui/initialize') frame.contentWindow.postMessage({jsonrpc: '2.0', id: message.id, result: {
    protocolVersion: '2026-01-26', hostInfo: {name: 'host', version: '1'}, hostCapabilities: {},
    hostContext: {theme: 'dark'}}}, '*');
  if (message.method === 'ui/notifications/initialized') frame.contentWindow.postMessage(
    {jsonrpc: '2.0', method: 'ui/notifications/tool-result', params: RESULT}, '*');
});
frame.srcdoc = PAGE;
</script>"""


def test_the_page_draws_the_window_runs_no_transcript_text_and_sends_no_requests(store):
    if not CHROMIUM:
        pytest.skip("there is no Chromium here: make chromium")
    with app_client(store, extensions=[APPS]) as client:
        result = client.tool("context_report")
        page = client.read(window_app.URI)
    params = json.dumps({"structuredContent": result.structured_content, "_meta": result.meta})
    host = HOST.replace("RESULT", params.replace("<", "\\u003c")).replace(
        "PAGE", json.dumps(page).replace("<", "\\u003c")
    )
    requests: list[str] = []
    with chromium() as browser:
        tab = browser.new_page()
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("dialog", lambda dialog: pytest.fail(dialog.message))
        tab.set_content(host)
        frame = tab.frame_locator("iframe")
        frame.get_by_text("The prompt, block by block").wait_for()
        text = frame.locator("body").inner_text()
        assert HOSTILE[:40] in text
        assert f"{MAIN}:" in text
        assert "evicted" in text
        assert frame.locator("img, #rest script").count() == 0
        assert frame.locator("html").get_attribute("data-theme") == "dark"
        assert tab.evaluate("heard.map(message => message.method)")[:2] == [
            "ui/initialize",
            "ui/notifications/initialized",
        ]
        assert tab.evaluate("heard.some(message => message.method === 'ui/notifications/size-changed')")
        folder = Path(__file__).parent.parent.parent / "build" / "screens" / "mcp"
        folder.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=str(folder / "window_app.png"))
    assert [url for url in requests if not url.startswith(("about:", "data:"))] == []


def test_spans_of_a_tool_call_belong_to_the_trace_that_the_client_names(store):
    exporter, tracers, meters = InMemorySpanExporter(), TracerProvider(), MeterProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with app_client(store, Telemetry(tracers=tracers, meters=meters)) as client:
        meta = {"traceparent": f"00-{trace}-{span}-01"}
        answer = client.request("call_tool", "recall", {"query": "kestrel"}, meta=meta)
        assert not answer.is_error
    found = next(span for span in exporter.get_finished_spans() if span.name == "retrieval recto.session")
    assert f"{found.context.trace_id:032x}" == trace
    assert f"{found.parent.span_id:016x}" == span
    meters.shutdown()
