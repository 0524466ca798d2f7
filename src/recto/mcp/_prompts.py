"""The prompts of the MCP server: a user picks them in a client to hand work over or to resume it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

from recto.errors import RequestRefused
from recto.mcp import queries
from recto.mcp.context import McpContext
from recto.mcp.result_text import clean

_SESSION = PromptArgument(
    name="session",
    description="The session, as the tool 'sessions' names it; without it, the usual one.",
    required=False,
)
PROMPTS: Final = (
    Prompt(
        name="handoff",
        title="Hand the work over",
        description="Has the state of the work written down, so that another agent, or a new session, can continue.",
        arguments=[_SESSION],
    ),
    Prompt(
        name="resume",
        title="Go on with the work",
        description="Shows the state of a session's work, and continues from there.",
        arguments=[_SESSION],
    ),
)
_HANDOFF = (
    "Hand this work over. Save its state with the tool 'checkpoint'{where}: the goal, what is done, what "
    "is being done and what is planned, what was decided and why, what is broken, what was learnt. Say only what is "
    "true now. Then tell me in a few sentences what the next one should do first."
)
_RESUME = (
    "Go on with this work{where}. Check first what has changed since, and look things up with the tools 'recall' and "
    "'read' before you ask me or do them again."
)
_NO_CHECKPOINT = "There is no checkpoint yet."


def get_prompt(context: McpContext, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
    """A prompt, with the state of the work quoted in it."""
    prompt = {prompt.name: prompt for prompt in PROMPTS}.get(name)
    if prompt is None or set(arguments) - {_SESSION.name}:
        raise RequestRefused(
            404, "not_found", "there is no such prompt: there are 'handoff' and 'resume', of a 'session'"
        )
    session = arguments.get(_SESSION.name, "")
    page = queries.resume_page(context, session) or _NO_CHECKPOINT
    where = f" (session '{clean(session)}')" if session else ""
    instruction = _HANDOFF if name == "handoff" else _RESUME
    text = f"{page}\n\n{instruction.format(where=where)}"
    message = PromptMessage(role="user", content=TextContent(type="text", text=text))
    return GetPromptResult(description=prompt.description, messages=[message])
