"""Measures how long the screens wait: every read of the inspection API, and the web page in a real Chromium.
The data are made-up sessions of 1,000, 10,000 and 100,000 entries, which are compared with each other.

A session is filled in batches, as an import does it, and then takes its last turns one by one, so that there are
decisions to show. Requests go over a real socket to a gateway in this process; sizes are those of the response. The
browser starts each time with an empty cache. If Chromium is missing or the page was not built, a row says so.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2

from bench.measure import figures, percentile, progress, row
from bench.turns import MODEL, counted, exchanges, filled
from recto import open as open_session
from recto.config import load
from recto.gateway.client import GatewayAddress, connect_gateway
from recto.gateway.inspection.operations import OPERATIONS, PREFIX, Operation

SESSION = "agent:bench:0"
PAGE = Path(str(files("recto"))) / "web"
TURNS = 12
"""Taken one by one at the end of each session."""
SETTINGS: dict[str, Any] = {
    "model": MODEL,
    "models": {MODEL: {"window": 32_000, "max_input": 32_000, "max_output": 1_000}},
    "recall": {"embedder": {"use": "none"}},
}
QUERIES = {"query": "which file does the rounding error come from", "seq": 1, "version": 1}
VIEWS = ("window", "chat", "transcript", "recall", "decisions", "compare", "budget", "memory", "health")
DRAWN = """() => {
  const main = document.querySelector('main h1');
  return main && !document.querySelector('main .waiting') ? performance.now() : 0;
}"""
"""When a view has all that it waits for; 0 before."""


@dataclass(slots=True)
class Read:
    """How long an answer took, each time, and how long it is."""

    seconds: list[float]
    size: int


def run(quick: bool) -> list[dict]:
    sizes, rounds = ((1_000, 5_000), 3) if quick else ((1_000, 10_000, 100_000), 9)
    drafts, following = counted(list(exchanges(60 if quick else 600))), list(exchanges(TURNS))
    reads: dict[str, dict[int, Read]] = {}
    painted: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.db"
            list(filled(path, size - len(following) * 4, 1, drafts))
            _end(path, following)
            settings = load(environ={}, arguments={**SETTINGS, "store": str(path), "session": SESSION})
            with connect_gateway(settings) as gateway:
                for name, read in _reads(gateway, rounds):
                    reads.setdefault(name, {})[size] = read
                painted += _painted(gateway, size, 3 if quick else 5)
            progress().print(f"{size:,} entries")
    return [*_sizes_of_the_page(), *painted, *_rows(reads, sizes)]


def _end(path: Path, following: list[list[dict]]) -> None:
    """The last turns, a checkpoint, and memory that waits."""
    with open_session(path, session=SESSION, **SETTINGS) as session:
        for question, *rest in following:
            session.append(question)
            session.prompt()
            session.append_all(rest)
        session.checkpoint(goal="Mend the rounding")
        session.note("learnings", "Amounts are in cents.")
        session.memory.propose("preference", "I prefer amounts in cents.")


def _reads(gateway: GatewayAddress, rounds: int) -> Iterator[tuple[str, Read]]:
    headers = {"authorization": f"Bearer {gateway.key}"}
    with httpx2.Client(base_url=gateway.url, headers=headers, timeout=600, trust_env=False) as client:
        last = client.get(f"{PREFIX}/session", params={"session": SESSION}).json()["entries"]
        for one in OPERATIONS:
            if one.right == "read":
                yield f"{one.method} {one.path}", _read(client, one, last, rounds)


def _read(client: httpx2.Client, one: Operation, last: int, rounds: int) -> Read:
    usual = {**QUERIES, "session": SESSION, "first": max(last - 60, 1), "second": last}
    query = {name: usual[name] for name, kind in one.query.items() if kind.required}
    body = None if one.body is None else {name: usual[name] for name, kind in one.body.items() if kind.required}
    took, size = [], 0
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = client.request(one.method, PREFIX + one.path, params=query, json=body)
        took.append(time.perf_counter() - begun)
        answer.raise_for_status()
        size = len(answer.content)
    return Read(took, size)


def _rows(reads: dict[str, dict[int, Read]], sizes: tuple[int, ...]) -> list[dict]:
    rows = []
    for name, by_size in reads.items():
        values: dict[str, float] = {}
        for size in sizes:
            values[f"ms at {size:,}"] = percentile(by_size[size].seconds, 0.5) * 1e3
        for size in sizes:
            values[f"KB at {size:,}"] = by_size[size].size / 1e3
        slowest = max(by_size[sizes[-1]].seconds) * 1e3
        rows.append(figures(name, values, f"slowest of {len(by_size[sizes[-1]].seconds)}: {slowest:,.0f} ms", 1))
    return rows


def _sizes_of_the_page() -> list[dict]:
    """What the browser has to fetch before there is anything to see."""
    named = (("document", "index.html"), ("script", "app.js"), ("style", "style.css"))
    if not (PAGE / "index.html").exists():
        return [row("the page: not measured", 0, "", "it is not built: make web")]
    rows = []
    for what, name in named:
        raw = (PAGE / name).read_bytes()
        note = f"sent as it is; {len(gzip.compress(raw)) / 1e3:,.1f} KB if it were packed"
        rows.append(row(f"{what} of the page", len(raw) / 1e3, "KB", note, 1))
    return rows


def _painted(gateway: GatewayAddress, size: int, rounds: int) -> list[dict]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if not (PAGE / "index.html").exists():
        return []
    if program is None:
        return [row("first paint: not measured", 0, "", "there is no Chromium here: make chromium")]
    with _browser(program) as opened:
        label = f"at {size:,} entries"
        rows = [_first_paint(opened, gateway, rounds)] if size == 1_000 else []
        drawn = {view: percentile([_drawn(opened, gateway, view) for _ in range(rounds)], 0.5) for view in VIEWS}
    return [*rows, figures(f"a view drawn, ms, {label}", drawn, f"p50 of {rounds}, from a cold start of the page", 0)]


@contextmanager
def _browser(program: str) -> Iterator[Callable[[], Any]]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only where there is a browser

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=sandbox, headless=True)
        yield lambda: browser.new_context(viewport={"width": 1280, "height": 800})
        browser.close()


def _first_paint(opened: Callable[[], Any], gateway: GatewayAddress, rounds: int) -> dict:
    """Of the way in: it needs no answer of the API."""
    times = []
    for _ in range(rounds):
        context = opened()
        page = context.new_page()
        page.goto(gateway.url)
        page.get_by_role("heading", level=1).wait_for()
        found = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        page.wait_for_function(found)
        times.append(page.evaluate(found))
        context.close()
    return row("first paint of the page", percentile(times, 0.5), "ms", f"p50 of {rounds}, nothing kept", 0)


def _drawn(opened: Callable[[], Any], gateway: GatewayAddress, view: str) -> float:
    context = opened()
    page = context.new_page()
    page.goto(f"{gateway.url}/#/{view}?session={SESSION}&key={gateway.key}")
    took = float(page.wait_for_function(DRAWN, timeout=120_000).json_value())
    context.close()
    return took
