"""The resources of the MCP server: the list of sessions, and of each a report and the transcript in pages.

The name of a session stands percent-encoded in an address: it holds `:` and may hold `/`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote, unquote

from mcp_types import ListResourcesResult, Resource, ResourceTemplate, TextResourceContents

from recto.errors import RequestRefused
from recto.mcp import params, queries, tools
from recto.mcp.context import McpContext
from recto.mcp.results import plain
from recto.transcript.entries import MAX_SEQ
from recto.transcript.session_keys import session_in

SESSIONS: Final = "recto://sessions"
_SESSION: Final = "recto://session/"
_JSON, _TEXT = "application/json", "text/plain"
_PAGE = 50
_LONGEST = 2_000
"""Characters of an address."""
TEMPLATES: Final = (
    ResourceTemplate(
        name="sessions",
        title="Sessions",
        uri_template=f"{SESSIONS}{{?after}}",
        description="The sessions whose history is kept here, after the one with a name.",
        mime_type=_JSON,
    ),
    ResourceTemplate(
        name="report",
        title="Context report",
        uri_template=f"{_SESSION}{{name}}/report",
        description="What the next prompt of a session would be made of, and what has left it.",
        mime_type=_JSON,
    ),
    ResourceTemplate(
        name="transcript",
        title="Transcript",
        uri_template=f"{_SESSION}{{name}}/transcript{{?after}}",
        description="A page of a session's transcript, quoted, from the entry after a number.",
        mime_type=_TEXT,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    session: str
    part: str
    after: str


def listed(desk: McpContext, cursor: str) -> ListResourcesResult:
    """The list of sessions, and of so many of them a report and a transcript."""
    found = desk.listed(cursor, _PAGE + 1)
    names = [session_in(one.session) for one in found[:_PAGE]]
    first = [_resource(SESSIONS, "sessions", "Sessions", _JSON)] if not cursor else []
    each = [
        _resource(f"{_SESSION}{quote(name, safe='')}/{part}", f"{part} of {name}", f"{title} of {name}", kind)
        for name in names
        for part, title, kind in (("report", "Context report", _JSON), ("transcript", "Transcript", _TEXT))
    ]
    return ListResourcesResult(resources=[*first, *each], next_cursor=names[-1] if len(found) > _PAGE else None)


def _resource(uri: str, name: str, title: str, kind: str) -> Resource:
    return Resource(uri=uri, name=plain(name), title=plain(title), mime_type=kind)


def read(desk: McpContext, uri: str) -> TextResourceContents:
    """What is at an address."""
    at = _address(uri)
    if at.part == "sessions":
        page = queries.sessions(desk, params.SessionsParams(after=at.after))
        return _json(uri, tools.plain(tools.BY_NAME["sessions"], page))
    if at.part == "report":
        report = queries.context_report(desk, params.ReportParams(session=at.session))
        return _json(uri, tools.plain(tools.BY_NAME["context_report"], report))
    after = at.after or "0"
    if not (after.isascii() and after.isdigit() and int(after[:20]) <= MAX_SEQ):
        raise _not_there()
    text, following = queries.transcript(desk, at.session, int(after))
    more = (
        ""
        if following is None
        else f"\nThe next page: {_SESSION}{quote(at.session, safe='')}/transcript?after={following}"
    )
    return TextResourceContents(uri=uri, mime_type=_TEXT, text=text + more)


def _json(uri: str, value: Mapping[str, object]) -> TextResourceContents:
    return TextResourceContents(uri=uri, mime_type=_JSON, text=json.dumps(value, ensure_ascii=False))


def _address(uri: str) -> _Address:
    """An address taken apart: the name may be encoded or not, for it is whatever stands before the last part."""
    path, _, query = uri[:_LONGEST].partition("?")
    try:
        after = parse_qs(query, max_num_fields=5).get("after", [""])[0]
    except ValueError:
        raise _not_there() from None
    if path == SESSIONS:
        return _Address(session="", part="sessions", after=after)
    name, _, part = path.removeprefix(_SESSION).rpartition("/")
    if len(uri) > _LONGEST or not path.startswith(_SESSION) or part not in ("report", "transcript") or not name:
        raise _not_there()
    return _Address(session=unquote(name), part=part, after=after)


def _not_there() -> RequestRefused:
    return RequestRefused(404, "not_found", f"there is no such resource; {SESSIONS} lists the sessions there are")
