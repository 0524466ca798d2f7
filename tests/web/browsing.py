"""A real Chromium under observation: its requests, console errors and dialogs, and whether injected code ran.

Every request to another machine goes to a local proxy that records it and closes the connection. Requests that
Chromium sends to Google on its own end there too, and are filtered out of the record.
"""

from __future__ import annotations

import os
import re
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, ProxySettings, expect, sync_playwright

ROOT = Path(__file__).parent.parent.parent
SCREENS = ROOT / "build" / "screens" / "web"
BUILT = ROOT / "src" / "recto" / "web" / "index.html"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), "")
DEADLINE = 20_000
"""Milliseconds until an expected element must be visible."""
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
)
"""Switches that stop the browser from sending requests of its own."""
_CHROMIUM_OWN_REQUEST = re.compile(r"^\w+ (?:https?://)?(?:[\w-]+\.)*(?:google|googleapis|gvt1)\.com[:/]")
REPORT_POLICY_VIOLATIONS = """
addEventListener('securitypolicyviolation', violation =>
  console.error('policy: ' + violation.effectiveDirective + ' ' + violation.blockedURI + ' ' + violation.sample));
"""

expect.set_options(timeout=DEADLINE)


class OutboundProxy(socketserver.ThreadingTCPServer):
    """A proxy in place of every other machine: records each request line and closes the connection."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self._requests: list[str] = []

    @property
    def requests(self) -> list[str]:
        """The recorded request lines, without those that Chromium sends on its own."""
        return [line for line in self._requests if not _CHROMIUM_OWN_REQUEST.search(line)]

    def clear(self) -> None:
        self._requests.clear()

    def record(self, line: bytes) -> None:
        self._requests.append(line.decode(errors="replace").strip())

    @property
    def settings(self) -> ProxySettings:
        return {"server": f"http://127.0.0.1:{self.server_address[1]}", "bypass": "127.0.0.1"}


class _ProxyHandler(socketserver.StreamRequestHandler):
    timeout = 5
    server: OutboundProxy

    def handle(self) -> None:
        self.server.record(self.rfile.readline(4_096))


@contextmanager
def outbound_proxy() -> Iterator[OutboundProxy]:
    with OutboundProxy() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join(10)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Starts one browser with a home folder of its own."""
    with outbound_proxy() as outbound, tempfile.TemporaryDirectory(prefix="recto-chromium-") as folder:
        arguments = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        around = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=arguments, env=around, proxy=outbound.settings, headless=True
            )
            yield browser
            browser.close()


@dataclass
class Visit:
    """One visit to one gateway, and everything the browser reported during it."""

    url: str
    context: BrowserContext
    page: Page
    outbound: OutboundProxy
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    name: str = ""
    """Part of the file names of its screenshots."""
    expected: tuple[str, ...] = ()
    """Parts of console messages that the test provokes, such as the 401 for a wrong key."""

    def listen(self) -> None:
        self.context.add_init_script(REPORT_POLICY_VIOLATIONS)
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.context.on("console", self._record_console)
        self.context.on("weberror", lambda error: self.complaints.append(f"error: {error.error}"))
        self.context.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def _record_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def enter(self, key: str, view: str = "chat", session: str = "", **parameters: object) -> Page:
        """Logs in with the key in the URL, and opens a view."""
        query = "&".join(
            f"{name}={value}" for name, value in {"session": session, **parameters, "key": key}.items() if value
        )
        self.page.goto(f"{self.url}/#/{view}?{query}")
        expect(self.page.get_by_role("banner")).to_be_visible()
        return self.page

    def view(self, title: str) -> Page:
        """Opens a view from the menu."""
        self.page.get_by_role("navigation", name="Views").get_by_role("link", name=title, exact=True).click()
        expect(self.page.get_by_role("heading", level=1, name=title, exact=True)).to_be_visible()
        return self.page

    def shot(self, name: str) -> None:
        """Saves a screenshot for reviewers."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENS / f"{name}.png")

    def external_requests(self) -> list[str]:
        """Requests of the page to any host but its gateway."""
        own = urlsplit(self.url).netloc
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme in ("http", "https", "ws") and urlsplit(url).netloc != own
        ]

    def assert_clean(self) -> None:
        """Asserts that there was no external request, unexpected complaint or dialog; then resets the record."""
        findings = (self.external_requests(), self.outbound.requests, self.unexpected_complaints(), self.dialogs)
        self.clear()
        self.expected = ()
        assert not any(findings), findings

    def clear(self) -> None:
        """Discards the record, for a control test that provokes violations on purpose."""
        self.requests.clear()
        self.complaints.clear()
        self.dialogs.clear()
        self.outbound.clear()

    def unexpected_complaints(self) -> list[str]:
        """Console errors and warnings that the test did not expect."""
        return [line for line in self.complaints if not any(words in line for words in self.expected)]


@contextmanager
def visit(browser: Browser, url: str, **more: Any) -> Iterator[Visit]:
    """Opens a visit with its own cookies and storage; at its end, asserts that it stayed clean and nothing ran."""
    with outbound_proxy() as outbound:
        defaults = {"viewport": WIDE, "reduced_motion": "reduce", "proxy": outbound.settings}
        context = browser.new_context(**{**defaults, **more})
        context.set_default_timeout(DEADLINE)
        made = Visit(url, context, context.new_page(), outbound)
        made.listen()
        try:
            yield made
            assert made.page.evaluate("window.ran") is None
        finally:
            context.close()
        made.assert_clean()
