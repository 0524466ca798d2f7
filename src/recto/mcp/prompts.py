"""The prompts of the MCP server: what a person picks in a client to hand work over, and to go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

from recto.errors import RequestRefused
from recto.mcp import queries
from recto.mcp.context import McpContext
from recto.mcp.results import plain

_SESSION = PromptArgument(
    name="session",
    description="The session, as the tool 'sessions' names it; without it, the usual one.",
    required=False,
)
PROMPTS: Final = (
    Prompt(
        name="handoff",
        title="Hand the work over",
        description="Has the state of the work written down, so that somebody else, or a new session, can go on.",
        arguments=[_SESSION],
    ),
    Prompt(
        name="resume",
        title="Go on with the work",
        description="Tells where the work of a session stands, and goes on from there.",
        arguments=[_SESSION],
    ),
)
_HANDOFF = (
    "Hand this work over. Write down where it stands with the tool 'checkpoint'{where}: the goal, what is done, what "
    "is being done and what is planned, what was decided and why, what is broken, what was learnt. Say only what is "
    "true now. Then tell me in a few sentences what the next one should do first."
)
_RESUME = (
    "Go on with this work{where}. Check first what has changed since, and look things up with the tools 'recall' and "
    "'read' before you ask me or do them again."
)
_NONE = "There is no checkpoint yet."


def given(desk: McpContext, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
    """A prompt, with where the work stands quoted in it."""
    found = {one.name: one for one in PROMPTS}.get(name)
    if found is None or set(arguments) - {_SESSION.name}:
        raise RequestRefused(
            404, "not_found", "there is no such prompt: there are 'handoff' and 'resume', of a 'session'"
        )
    session = arguments.get(_SESSION.name, "")
    page = queries.standing(desk, session) or _NONE
    where = f" (session '{plain(session)}')" if session else ""
    asks = _HANDOFF if name == "handoff" else _RESUME
    text = f"{page}\n\n{asks.format(where=where)}"
    message = PromptMessage(role="user", content=TextContent(type="text", text=text))
    return GetPromptResult(description=found.description, messages=[message])
