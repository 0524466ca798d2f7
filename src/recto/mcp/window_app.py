"""The window as an MCP app: a `ui://` page that hosts with the Apps extension draw beside a context report.

The page is one file without data. The host hands it the result of the tool `context_report`; what only the page needs,
the blocks of the prompt with the beginnings of their texts, is in the `_meta` of the result, which hosts do not show to
the model. The page puts text into the document as text, never as HTML, and requests nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from mcp_types import ClientCapabilities, Resource, TextResourceContents

from recto.engine.window import Window
from recto.engine.window_view import EntrySpan, PromptBlock, window_view
from recto.mcp.result_text import clean

EXTENSION: Final = "io.modelcontextprotocol/ui"
URI: Final = "ui://recto/window.html"
MIME_TYPE: Final = "text/html;profile=mcp-app"
DRAWING: Final = "recto/window"
"""Member of the `_meta` of a result: what the page draws besides the result."""
TOOL_META: Final[Mapping[str, Any]] = {"ui": {"resourceUri": URI}}
"""The `_meta` of the tool whose result the page draws."""
_PAGE_META: Final[Mapping[str, Any]] = {"ui": {"csp": {}, "prefersBorder": True}}
"""No domain is allowed: hosts block every request of the page."""
_MAX_BLOCKS: Final = 80
_MAX_SPANS: Final = 300
_MAX_TEXT: Final = 160
"""Characters of a block's text."""


def draws_apps(capabilities: ClientCapabilities | None) -> bool:
    """Whether a client draws such pages."""
    settings = (capabilities.extensions or {}).get(EXTENSION) if capabilities else None
    kinds = settings.get("mimeTypes") if settings else None
    return isinstance(kinds, list | tuple) and MIME_TYPE in kinds


def resource() -> Resource:
    """The page in the list of resources."""
    return Resource(uri=URI, name="window", title="The window", mime_type=MIME_TYPE, _meta=dict(_PAGE_META))


def contents() -> TextResourceContents:
    """The page itself."""
    return TextResourceContents(uri=URI, mime_type=MIME_TYPE, text=_page(), _meta=dict(_PAGE_META))


def drawing(window: Window) -> dict[str, Any]:
    """What the page draws of a window besides its report; bounded."""
    view = window_view(window)
    blocks = view.blocks[-_MAX_BLOCKS:]
    return {
        "blocks": [_block(block) for block in blocks],
        "more": view.more + len(view.blocks) - len(blocks),
        "spans": [_span(span) for span in view.spans[-_MAX_SPANS:]],
    }


def _block(block: PromptBlock) -> dict[str, Any]:
    text = clean(block.text)[:_MAX_TEXT]
    return {
        "what": block.what,
        "role": block.role,
        "seq": block.seq,
        "tokens": block.tokens,
        "reason": block.reason,
        "text": text,
    }


def _span(span: EntrySpan) -> list[int | str]:
    return [span.first, span.last, span.place]


@cache
def _page() -> str:
    return Path(__file__).with_name("window_app.html").read_text(encoding="utf-8")
