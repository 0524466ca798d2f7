"""Markdown as GitHub and the site both read it. What comes from the code is text here, and never markup of its own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

_SPAN = re.compile(r"(`[^`]*`)")
_ADDRESS = re.compile(r"(https?://[^\s,;)]+)")
_SLUG = re.compile(r"[^\w\- ]")


def page(title: str, about: str, *parts: str) -> str:
    """A whole page, with a word on where it comes from."""
    made = "Made of the code by `tools/make_reference.py`; do not edit."
    return "\n\n".join([f"# {title}", f"<!-- {made} -->", about, *(part for part in parts if part)]) + "\n"


def prose(text: str) -> str:
    """A docstring as paragraphs; what is in backticks stays code, and nothing else becomes markup."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text).strip())
    return "\n\n".join(_plain(" ".join(one.split())) for one in paragraphs)


def cell(text: str) -> str:
    """The same in a table, on one line."""
    return prose(text).replace("\n\n", " ").replace("|", "\\|")


def code(text: object) -> str:
    """Text in backticks; empty text stays empty."""
    shown = " ".join(str(text).split())
    return f"`{shown}`" if shown else ""


def code_cell(text: object) -> str:
    """The same in a table."""
    return code(text).replace("|", "\\|")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells; empty where there are no rows."""
    lines = [_row(row) for row in rows]
    return "\n".join([_row(header), _row(["---"] * len(header)), *lines]) if lines else ""


def fence(language: str, text: str) -> str:
    """Lines as they are."""
    return f"```{language}\n{text.strip(chr(10))}\n```"


def link(text: str, page_name: str, heading: str = "") -> str:
    """A link to a page, or to a heading of it."""
    return f"[{text}]({page_name}{f'#{slug(heading)}' if heading else ''})"


def slug(heading: str) -> str:
    """What GitHub makes of a heading for links to it."""
    return _SLUG.sub("", heading.lower()).replace(" ", "-")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(text: str) -> str:
    return "".join(part if part.startswith("`") else _escaped(part) for part in _SPAN.split(text))


def _escaped(text: str) -> str:
    """Angle brackets and asterisks as they are; addresses as code, for they are examples and lead nowhere."""
    parts = _ADDRESS.split(text)
    return "".join(
        f"`{part}`" if place % 2 else re.sub(r"([<*\[\]])", r"\\\1", part) for place, part in enumerate(parts)
    )
