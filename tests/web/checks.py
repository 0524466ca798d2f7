"""Checks for every view: each control has a name, text has enough contrast, nothing is wider than the screen."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

CONTROLS = (
    "button", "link", "textbox", "searchbox", "combobox", "spinbutton", "checkbox", "radio", "tab", "slider", "switch",
    "menuitem", "option", "meter", "img", "image", "dialog", "table", "region", "navigation", "log",
)  # fmt: skip
MIN_CONTRAST = 4.5
MIN_CONTRAST_LARGE = 3.0
CONTRASTS = """() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const known = new Map(), memoised = (key, make) => known.get(key) ?? known.set(key, make()).get(key);
  const rgba = colour => memoised(colour, () => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  });
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const behind = node => !node ? [255, 255, 255] : memoised(node, () =>
    over(rgba(getComputedStyle(node).backgroundColor), behind(node.parentElement)));
  const opaque = new Map(), seen = node => {
    if (!node) return 1;
    if (!opaque.has(node)) opaque.set(node, getComputedStyle(node).opacity * seen(node.parentElement));
    return opaque.get(node);
  };
  const light = colour => {
    const straight = part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
    const [r, g, b] = colour.map(part => straight(part / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ratio = (first, second) => {
    const [high, low] = [light(first), light(second)].sort((a, b) => b - a);
    return (high + .05) / (low + .05);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
    if (!text || !node.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    if (node.closest('[aria-disabled=true], [inert], .unseen, .skip, option')) continue;
    const style = getComputedStyle(node), ground = behind(node);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && +style.fontWeight >= 700);
    const [r, g, b, a] = rgba(style.color);
    found.push({text: text.slice(0, 60), large, ratio: ratio(over([r, g, b, a * seen(node)], ground), ground)});
  }
  return found;
}"""
"""Every visible text, with the contrast between it and its background."""


def unnamed_controls(page: Page) -> list[str]:
    """Controls, images and landmarks without an accessible name for screen reader users."""
    cdp = page.context.new_cdp_session(page)
    nodes: list[dict[str, Any]] = cdp.send("Accessibility.getFullAXTree")["nodes"]
    cdp.detach()
    found = []
    for node in nodes:
        role = node.get("role", {}).get("value", "")
        if node.get("ignored") or role not in CONTROLS:
            continue
        if not str(node.get("name", {}).get("value", "")).strip():
            found.append(f"{role} {node.get('properties', [])!r:.120}")
    return found


def low_contrast_texts(page: Page) -> list[str]:
    """Texts with too little contrast to their background."""
    texts = page.evaluate(CONTRASTS)
    assert len(texts) > 5, "the view shows text to measure"
    minimum = {True: MIN_CONTRAST_LARGE, False: MIN_CONTRAST}
    return [f"{text['ratio']:.2f} {text['text']}" for text in texts if text["ratio"] < minimum[text["large"]]]


def overflowing_elements(page: Page) -> list[str]:
    """Elements that make the page scroll sideways."""
    return page.evaluate(
        """() => document.scrollingElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]
           .filter(node => node.getBoundingClientRect().right > innerWidth + 1)
           .map(node => node.tagName + '.' + node.className).slice(0, 10)"""
    )
