"""What every view is held to: each control has a name, text can be read, nothing is wider than the screen."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

CONTROLS = (
    "button", "link", "textbox", "searchbox", "combobox", "spinbutton", "checkbox", "radio", "tab", "slider", "switch",
    "menuitem", "option", "meter", "img", "image", "dialog", "table", "region", "navigation", "log",
)  # fmt: skip
LEAST = 4.5
LEAST_LARGE = 3.0
CONTRASTS = """() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const known = new Map(), kept = (key, make) => known.get(key) ?? known.set(key, make()).get(key);
  const rgba = colour => kept(colour, () => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  });
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const behind = node => !node ? [255, 255, 255] : kept(node, () =>
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
  const ratio = (one, two) => {
    const [high, low] = [light(one), light(two)].sort((a, b) => b - a);
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
"""Each text that is seen, with the contrast between it and what is painted behind it."""


def unnamed(page: Page) -> list[str]:
    """Controls, pictures and landmarks that somebody who hears the page cannot tell apart."""
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


def faint(page: Page) -> list[str]:
    """Texts that are too close in brightness to what is behind them."""
    told = page.evaluate(CONTRASTS)
    assert len(told) > 5, "there is text to look at"
    least = {True: LEAST_LARGE, False: LEAST}
    return [f"{one['ratio']:.2f} {one['text']}" for one in told if one["ratio"] < least[one["large"]]]


def too_wide(page: Page) -> list[str]:
    """What makes the page scroll sideways."""
    return page.evaluate(
        """() => document.scrollingElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]
           .filter(node => node.getBoundingClientRect().right > innerWidth + 1)
           .map(node => node.tagName + '.' + node.className).slice(0, 10)"""
    )
