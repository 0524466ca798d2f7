"""The resources of the MCP server: the list of sessions, for each session a report and the transcript in pages, and the
page that draws the window.

Session names are percent-encoded in a URI: they contain `:` and may contain `/`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote, unquote

from mcp_types import ListResourcesResult, Resource, ResourceTemplate, TextResourceContents

from recto.engine.views.codec import to_builtins
from recto.errors import RequestRefused
from recto.mcp import params, queries, window_app
from recto.mcp.context import McpContext
from recto.mcp.result_text import clean
from recto.transcript.entries import MAX_SEQ
from recto.transcript.session_keys import session_in

SESSIONS: Final = "recto://sessions"
_SESSION: Final = "recto://session/"
_JSON, _TEXT = "application/json", "text/plain"
_PAGE = 50
_MAX_URI = 2_000
"""Characters of a URI."""
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
class _ParsedUri:
    session: str
    part: str
    after: str


def list_resources(context: McpContext, cursor: str) -> ListResourcesResult:
    """The list of sessions, and a report and a transcript for each session of a page."""
    summaries = context.list_sessions(cursor, _PAGE + 1)
    names = [session_in(summary.session) for summary in summaries[:_PAGE]]
    first = [_resource(SESSIONS, "sessions", "Sessions", _JSON), window_app.resource()] if not cursor else []
    each = [
        _resource(f"{_SESSION}{quote(name, safe='')}/{part}", f"{part} of {name}", f"{title} of {name}", kind)
        for name in names
        for part, title, kind in (("report", "Context report", _JSON), ("transcript", "Transcript", _TEXT))
    ]
    return ListResourcesResult(resources=[*first, *each], next_cursor=names[-1] if len(summaries) > _PAGE else None)


def _resource(uri: str, name: str, title: str, kind: str) -> Resource:
    return Resource(uri=uri, name=clean(name), title=clean(title), mime_type=kind)


def read_resource(context: McpContext, uri: str) -> TextResourceContents:
    """The contents of a resource."""
    if uri == window_app.URI:
        return window_app.contents()
    at = _parse(uri)
    if at.part == "sessions":
        page = queries.sessions(context, params.SessionsParams(after=at.after))
        return _json(uri, page)
    if at.part == "report":
        report = queries.context_report(context, params.ReportParams(session=at.session))
        return _json(uri, report)
    after = at.after or "0"
    if not (after.isascii() and after.isdigit() and int(after[:20]) <= MAX_SEQ):
        raise _not_found()
    text, next_after = queries.transcript(context, at.session, int(after))
    more = (
        ""
        if next_after is None
        else f"\nThe next page: {_SESSION}{quote(at.session, safe='')}/transcript?after={next_after}"
    )
    return TextResourceContents(uri=uri, mime_type=_TEXT, text=text + more)


def _json(uri: str, result: object) -> TextResourceContents:
    text = json.dumps(to_builtins(result), ensure_ascii=False)
    return TextResourceContents(uri=uri, mime_type=_JSON, text=text)


def _parse(uri: str) -> _ParsedUri:
    """Split a URI. The session name is everything before the last part, percent-encoded or not."""
    path, _, query = uri[:_MAX_URI].partition("?")
    try:
        after = parse_qs(query, max_num_fields=5).get("after", [""])[0]
    except ValueError:
        raise _not_found() from None
    if path == SESSIONS:
        return _ParsedUri(session="", part="sessions", after=after)
    name, _, part = path.removeprefix(_SESSION).rpartition("/")
    if len(uri) > _MAX_URI or not path.startswith(_SESSION) or part not in ("report", "transcript") or not name:
        raise _not_found()
    return _ParsedUri(session=unquote(name), part=part, after=after)


def _not_found() -> RequestRefused:
    return RequestRefused(404, "not_found", f"there is no such resource; {SESSIONS} lists the sessions there are")
