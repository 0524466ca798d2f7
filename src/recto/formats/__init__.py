"""Wire formats: parsing, editing, validating and converting provider JSON. Untouched bytes go out as they came in.

`FORMATS` lists the formats; each is one object with everything in which providers differ (see `recto.formats.format`).
The functions here take the name of a format, as entries carry it in their `wire` column.
"""

from __future__ import annotations

from recto.formats.canonical import canonical, fingerprint
from recto.formats.format import Format
from recto.formats.registry import (
    DEFAULT_FORMAT,
    FORMATS,
    address_at,
    detect,
    entry_text,
    format_at,
    format_named,
    format_of_client,
    format_of_provider,
    own_format,
    passed_at,
    problems,
    read,
    read_reply,
)
from recto.formats.request_body import Body, open_body, render, reopen_body
from recto.formats.response import ProviderReply, Usage

__all__ = [
    "DEFAULT_FORMAT",
    "FORMATS",
    "Body",
    "Format",
    "ProviderReply",
    "Usage",
    "address_at",
    "canonical",
    "detect",
    "entry_text",
    "fingerprint",
    "format_at",
    "format_named",
    "format_of_client",
    "format_of_provider",
    "open_body",
    "own_format",
    "passed_at",
    "problems",
    "read",
    "read_reply",
    "render",
    "reopen_body",
]
