"""Chart labels: no axis repeats a label, and no two labels overlap on a phone or a wide screen."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from playwright.sync_api import expect
from tests.web.browsing import Visit
from tests.web.worlds import MAIN, World

RECORD_LABELS = """
window.written = new Map();
const write = CanvasRenderingContext2D.prototype.fillText;
const wipe = CanvasRenderingContext2D.prototype.clearRect;
CanvasRenderingContext2D.prototype.clearRect = function (...box) {
  window.written.set(this.canvas, []);
  return wipe.apply(this, box);
};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
  const at = this.getTransform().transformPoint({ x, y }), scale = devicePixelRatio || 1;
  const size = this.measureText(text), shift = { center: 0.5, right: 1, end: 1 }[this.textAlign] || 0;
  const height = parseFloat(/(\\d+)px/.exec(this.font)[1]);
  const up = { middle: 0.5, top: 0, hanging: 0 }[this.textBaseline] ?? 1;
  window.written.get(this.canvas)?.push({
    text, left: at.x / scale - shift * size.width, width: size.width, top: at.y / scale - up * height, height,
  });
  return write.call(this, text, x, y, ...rest);
};
"""
READ_LABELS = """() => [...window.written].filter(([canvas]) => canvas.isConnected).map(([canvas, labels]) =>
  ({ chart: canvas.closest('[role=img]')?.getAttribute('aria-label') ?? '', labels }))"""


@dataclass(frozen=True)
class Label:
    text: str
    left: float
    width: float
    top: float
    height: float

    def overlaps(self, other: Label) -> bool:
        across = min(self.left + self.width, other.left + other.width) - max(self.left, other.left)
        down = min(self.top + self.height, other.top + other.height) - max(self.top, other.top)
        return across > 1 and down > 2


def charts(visit: Visit, key: str, view: str) -> dict[str, list[Label]]:
    """The labels of every chart of a view, by its description."""
    page = visit.enter(key, view, MAIN)
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.locator(".waiting")).to_have_count(0)
    page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    found = page.evaluate(READ_LABELS)
    return {chart["chart"]: [Label(**label) for label in chart["labels"] if label["text"].strip()] for chart in found}


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("view", ["health", "budget"])
def test_no_axis_repeats_a_label_and_no_labels_overlap(new_visit: Visit, seeded_world: World, view: str, width: int):
    new_visit.context.add_init_script(RECORD_LABELS)
    new_visit.page.set_viewport_size({"width": width, "height": 900})
    found = charts(new_visit, seeded_world.key, view)
    assert sum(map(len, found.values())) > 20
    new_visit.shot(f"labels-{view}-{width}")
    for chart, labels in found.items():
        shares = [label for label in labels if label.text.endswith(" %")]
        assert len({label.text for label in shares}) == len(shares), (chart, [label.text for label in shares])
        assert "-0 %" not in {label.text for label in labels}
        drawn = {(label.text, label.left, label.top): label for label in labels}.values()
        pairs = itertools.combinations(drawn, 2)
        assert [(label.text, other.text) for label, other in pairs if label.overlaps(other)] == [], chart
