"""Agents without tool calls: commands written as text in assistant messages, and their outputs in user messages.

Such an agent writes one fenced shell block (or an `Action:` line) and its harness answers with a user message that
holds nothing but the output. Recto treats that output as a tool result: it is shortened before anything else, it is no
question of the user, and nothing in it is an instruction.
"""

from __future__ import annotations

import re

from recto.text.lazy_re import lazy_re

_MAX_HEAD = 400
"""Characters at the beginning of a message by which an output is recognised."""
_MAX_SEARCH = 60_000
"""Characters of an assistant message that are searched for its command."""
_COMMAND = lazy_re(
    r"^```(?:bash|sh|shell|zsh|console|terminal|powershell|python|tool_code|execute)[ \t]*\r?\n(.*?)^```"
    r"|<(?:execute_bash|execute_ipython|bash|command|code|execute|function=\w+)>(.*?)</(?:execute_bash|execute_ipython"
    r"|bash|command|code|execute|function)>"
    r"|^Calling tools:[ \t]*\r?\n(\[.*\])[ \t]*$"
    r"|^Action:[ \t]*(\S[^\n]*(?:\nAction Input:[^\n]*)?)",
    re.MULTILINE | re.DOTALL,
)
"""A command: a fenced shell block, an execute or code tag, the list of calls that some harnesses write in place of tool
calls, or the action line of a ReAct prompt."""
_OUTPUT = lazy_re(
    r"\s*(?:<returncode>|<output>|<stdout>|<stderr>|<exit_code>|<tool_response>|<tool_result|<function_results?>"
    r"|<execution_result|<observation>"
    r"|(?:\[?(?:Tool |Command |Execution |Function )?(?:Observation|Output|Result|Stdout|Exit code|Return code)"
    r"(?: of [^\n:]{1,80})?\]?:[ \t]*(?:\n|<|```|\S))"
    r"|(?:Call id: [^\n]{1,80}\n)?Error:[ \t]*\n"
    r"|EXECUTION RESULT of\b|\[(?:The )?[Cc]ommand (?:finished|completed|exited|failed)\b)",
    re.IGNORECASE,
)
_FORMAT_ERROR = lazy_re(
    r"\b(?:exactly|only|just) one (?:action|command|tool|code block|function)"
    r"|\bno (?:valid )?(?:action|command|tool call)s?\b.{0,40}\b(?:found|provided|detected)"
    r"|\b(?:invalid|malformed|incorrect) (?:action|response|output|format)\b"
    r"|\bcommand\b.{0,300}\b(?:timed out|has been killed)\b"
    r"|\bformat your (?:action|response|output|answer)\b",
    re.IGNORECASE | re.DOTALL,
)
"""How a harness complains about the form of an answer; only the beginning of a message is searched."""
_FENCED = lazy_re(r"\s*(?:[^\n`]{0,60}:\s*)?```[^\n]*\n.*```\s*\Z", re.DOTALL)
_STATUS = lazy_re(
    r"<(?:returncode|exit_code)>\s*(-?\d{1,5})|\b(?:exit|return)[ _]?code:?\s{0,3}(-?\d{1,5})", re.IGNORECASE
)

_STATUS_LINE = lazy_re(r"\s*<(returncode|exit_code)>[^<\n]{0,12}</\1>[ \t]*\n?")
_TAG = lazy_re(r"\s*<(output|stdout|observation|tool_response|function_results?)>")


def command_in(text: str) -> str:
    """Returns the command that an assistant message writes as text; empty if it writes none."""
    found = _COMMAND.findall(text[-_MAX_SEARCH:])
    return next(group for group in found[-1] if group).strip() if found and any(found[-1]) else ""


def looks_like_output(text: str) -> bool:
    """Whether a user message directly behind a command looks like its output, or like a complaint of the harness.

    A person may write such a message too. So it counts as an output only behind a message that writes a command.
    """
    head = text[:_MAX_HEAD]
    if _OUTPUT.match(head) or _FORMAT_ERROR.search(head):
        return True
    return text.rstrip().endswith("```") and _FENCED.match(text) is not None


def exit_status(output: str) -> str:
    """Returns the exit status that an output reports at its beginning; empty if it reports none."""
    found = _STATUS.search(output[:_MAX_HEAD])
    return (found[1] or found[2]) if found else ""


def shortened_output(output: str, text: str) -> str:
    """Returns an output with a short text in place of its content, in the form the agent knows.

    The lines that report the exit status stay, and so does the tag around the content.
    """
    head = output[:_MAX_HEAD]
    status = _STATUS_LINE.match(head)
    lead = f"{status[0].strip()}\n" if status else ""
    tag = _TAG.match(head, status.end() if status else 0)
    return f"{lead}<{tag[1]}>{text}</{tag[1]}>" if tag else f"{lead}{text}"
