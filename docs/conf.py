"""How the pages of this folder become a site, by Sphinx: `make docs`.

The pages are plain Markdown and stay readable where no site is built. The menu is made of `index.md`: its headings are
the headings of the menu, and the links in the lists below them are its lines. It knows no page by name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_HERE = Path(__file__).parent
_VERSION = (_HERE.parent / "src" / "recto" / "version.py").read_text(encoding="utf-8")

project = "Recto"
version = release = re.findall(r'^__version__ = "(.+)"', _VERSION, re.MULTILINE)[0]
html_title = "Recto"
html_short_title = "Recto"
extensions = ["myst_parser"]
exclude_patterns = ["site"]
nitpicky = True

myst_heading_anchors = 4
"""Links such as `settings.md#window` lead to headings down to this level, as they do on GitHub."""

html_theme = "furo"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["offline.js"]
html_logo = html_favicon = "../web/src/icon.svg"
"""The same as on the page that the gateway serves."""
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {
        "color-brand-primary": "#1f4fc4",
        "color-brand-content": "#1f4fc4",
        "color-brand-visited": "#5b3fa8",
        "color-background-secondary": "#f6f5f1",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8fb0ff",
        "color-brand-content": "#8fb0ff",
        "color-brand-visited": "#b9a4f2",
        "color-background-primary": "#14161a",
        "color-background-secondary": "#1c1f25",
    },
}
pygments_style = "github-light"
pygments_dark_style = "github-dark"

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_UPWARDS = re.compile(r"\]\(((?:\.\./)+[^)#:]+\.md)(?:#[^)]*)?\)")
_LINE = re.compile(r"^ *- \[[^\]]+\]\(([^)#:]+)\.md\)", re.MULTILINE)


def _menu(page: str) -> str:
    """The menu in Sphinx's own words, made of a page of headings and lists of links."""
    _, *parts = _HEADING.split(page)
    sections = zip(parts[::2], parts[1::2], strict=True)
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n" + "\n".join(lines) + "\n```\n"
        for heading, text in sections
        if (lines := _LINE.findall(text))
    )


def _leave_docs(page: str, text: str) -> str:
    """Links to Markdown beside this folder lead to the file as it is: it is no page of the site."""

    def as_file(link: re.Match[str]) -> str:
        target = (_HERE / page).parent.joinpath(link[1]).resolve()
        outside = target.is_file() and not target.is_relative_to(_HERE)
        return f"](path:{link[1]})" if outside else link[0]

    return _UPWARDS.sub(as_file, text)


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _leave_docs(page, source[0]) + (_menu(source[0]) if page == "index" else "")


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx asks for."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
