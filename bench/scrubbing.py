"""Measures how long the window view of a session takes to draw in Chromium, and how smoothly its slider moves.
The data are made-up sessions of 1,000 and 100,000 entries, which are compared with each other.

A script moves the slider once per frame, from one end of the session to the other and back; the page fetches the window
of the newest position as fast as it gets responses. Frames are the times between two callbacks of
`requestAnimationFrame`: what takes longer than a frame of the screen is seen as a stutter. A step is a single move to a
position that was not fetched before, until the page shows it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import figures, percentile, progress, row
from bench.screens import DRAWN, PAGE, SESSION, SETTINGS, TURNS, _browser, _end
from bench.turns import counted, exchanges, filled
from recto.config import load
from recto.gateway.client import GatewayAddress, connect_gateway

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

MOVES = 120
STEPS = 40
MOVE = """(moves) => new Promise(done => {
  const slider = document.querySelector('input[type=range]'), last = Number(slider.max), frames = [];
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  let before = performance.now(), count = 0;
  const frame = now => {
    frames.push(now - before);
    before = now;
    if (count++ === moves) return done(frames.slice(1));
    const share = Math.abs(1 - 2 * count / moves);
    set.call(slider, String(Math.max(1, Math.round(last * share))));
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""
"""Moves the slider once for each frame; returns the milliseconds of each frame."""
STEP = """(at) => new Promise(done => {
  const slider = document.querySelector('input[type=range]');
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  const begun = performance.now(), shown = () => Number(document.querySelector('[data-at]')?.dataset.at) === at;
  set.call(slider, String(at));
  slider.dispatchEvent(new Event('input', {bubbles: true}));
  const end = () => done(performance.now() - begun);
  const look = () => requestAnimationFrame(shown() ? end : look);
  look();
})"""
"""Moves the slider to an entry; returns the milliseconds until its window is shown."""


def run(quick: bool) -> list[dict]:
    sizes = (1_000, 5_000) if quick else (1_000, 100_000)
    drafts, following = counted(list(exchanges(60 if quick else 600))), list(exchanges(TURNS))
    if not (PAGE / "index.html").exists():
        return [row("scrubbing: not measured", 0, "", "the page is not built: make web")]
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return [row("scrubbing: not measured", 0, "", "there is no Chromium here: make chromium")]
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.db"
            list(filled(path, size - len(following) * 4, 1, drafts))
            _end(path, following)
            settings = load(environ={}, arguments={**SETTINGS, "store": str(path), "session": SESSION})
            with connect_gateway(settings) as gateway, _browser(program) as opened:
                rows += _measured(opened(), gateway, size)
            progress().print(f"{size:,} entries")
    return rows


def _measured(context: BrowserContext, gateway: GatewayAddress, size: int) -> list[dict]:
    page = context.new_page()
    page.goto(f"{gateway.url}/#/window?session={SESSION}&key={gateway.key}")
    drawn = float(page.wait_for_function(DRAWN, timeout=120_000).json_value())
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    last = int(page.locator("input[type=range]").get_attribute("max") or 1)
    frames = page.evaluate(MOVE, MOVES)
    steps = [page.evaluate(STEP, at) for at in (last * number // (STEPS + 1) for number in range(1, STEPS + 1))]
    values = {
        "first paint, ms": paint,
        "window drawn, ms": drawn,
        "frame p50, ms": percentile(frames, 0.5),
        "frame p95, ms": percentile(frames, 0.95),
        "longest frame, ms": max(frames),
        "step p50, ms": percentile(steps, 0.5),
        "step p95, ms": percentile(steps, 0.95),
    }
    context.close()
    return [figures(f"{size:,} entries", values, f"{MOVES} moves, {STEPS} steps", 0)]
