"""A real Chromium that is watched: what it asks, what it complains of, what opens, and whether anything ran.

Whatever would be asked of another machine goes to a proxy of ours that answers nothing and writes it down. What the
browser asks its maker by itself gets nowhere there either, and is left out of what is told.
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
"""Milliseconds that anything may take to be seen."""
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
"""A browser that asks for nothing by itself."""
_OF_THE_BROWSER = re.compile(r"^\w+ (?:https?://)?(?:[\w-]+\.)*(?:google|googleapis|gvt1)\.com[:/]")
LISTENING = """
addEventListener('securitypolicyviolation', told =>
  console.error('policy: ' + told.effectiveDirective + ' ' + told.blockedURI + ' ' + told.sample));
"""

expect.set_options(timeout=DEADLINE)


class Outside(socketserver.ThreadingTCPServer):
    """Stands for everything that is not this machine: a proxy that writes down what it is asked for, and hangs up."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self._asked: list[str] = []

    @property
    def asked(self) -> list[str]:
        """What was asked for, without what Chromium asks by itself."""
        return [one for one in self._asked if not _OF_THE_BROWSER.search(one)]

    def forget(self) -> None:
        self._asked.clear()

    def note(self, line: bytes) -> None:
        self._asked.append(line.decode(errors="replace").strip())

    @property
    def proxy(self) -> ProxySettings:
        return {"server": f"http://127.0.0.1:{self.server_address[1]}", "bypass": "127.0.0.1"}


class _Asked(socketserver.StreamRequestHandler):
    timeout = 5
    server: Outside

    def handle(self) -> None:
        self.server.note(self.rfile.readline(4_096))


@contextmanager
def outside() -> Iterator[Outside]:
    with Outside() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join(10)


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser, with a folder of its own."""
    with outside() as nowhere, tempfile.TemporaryDirectory(prefix="recto-chromium-") as folder:
        arguments = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        around = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=arguments, env=around, proxy=nowhere.proxy, headless=True
            )
            yield browser
            browser.close()


@dataclass
class Visit:
    """One visit to one gateway, and everything that was seen on it."""

    url: str
    context: BrowserContext
    page: Page
    elsewhere: Outside
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    name: str = ""
    """What pictures of it are named after."""
    expected: tuple[str, ...] = ()
    """Complaints of the browser that belong to what a test does: a refused key is one."""

    def listen(self) -> None:
        self.context.add_init_script(LISTENING)
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.context.on("console", self._told)
        self.context.on("weberror", lambda error: self.complaints.append(f"error: {error.error}"))
        self.context.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def _told(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def enter(self, key: str, view: str = "chat", session: str = "", **given: object) -> Page:
        """Logs in by the address, at a view."""
        query = "&".join(
            f"{name}={value}" for name, value in {"session": session, **given, "key": key}.items() if value
        )
        self.page.goto(f"{self.url}/#/{view}?{query}")
        expect(self.page.get_by_role("banner")).to_be_visible()
        return self.page

    def view(self, title: str) -> Page:
        """Goes to a view by the menu."""
        self.page.get_by_role("navigation", name="Views").get_by_role("link", name=title, exact=True).click()
        expect(self.page.get_by_role("heading", level=1, name=title, exact=True)).to_be_visible()
        return self.page

    def shot(self, name: str) -> None:
        """A picture for people."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENS / f"{name}.png")

    def asked_elsewhere(self) -> list[str]:
        """Requests of the page to anybody but its gateway."""
        own = urlsplit(self.url).netloc
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme in ("http", "https", "ws") and urlsplit(url).netloc != own
        ]

    def end(self) -> None:
        """Nothing may have left, complained or opened; and nothing is expected any more."""
        told = (self.asked_elsewhere(), self.elsewhere.asked, self.unexpected(), self.dialogs)
        self.forget()
        self.expected = ()
        assert not any(told), told

    def forget(self) -> None:
        """For a control that is meant to do all of this: what was seen so far is as if it had not been."""
        self.requests.clear()
        self.complaints.clear()
        self.dialogs.clear()
        self.elsewhere.forget()

    def unexpected(self) -> list[str]:
        """What the browser complained of, and nobody expected."""
        return [one for one in self.complaints if not any(words in one for words in self.expected)]


@contextmanager
def visit(browser: Browser, url: str, **more: Any) -> Iterator[Visit]:
    """A visit without cookies or storage of others. At its end nothing may have left, complained, opened or run."""
    with outside() as elsewhere:
        usual = {"viewport": WIDE, "reduced_motion": "reduce", "proxy": elsewhere.proxy}
        context = browser.new_context(**{**usual, **more})
        context.set_default_timeout(DEADLINE)
        made = Visit(url, context, context.new_page(), elsewhere)
        made.listen()
        try:
            yield made
            assert made.page.evaluate("window.ran") is None
        finally:
            context.close()
        made.end()
