"""Values of fact extraction: message views, facts, worked-on files, levels and classification marks.

Agents without tool calls write one fenced shell block (or an `Action:` line), and their harness answers with a user
message that holds nothing but the output. That output is treated as a tool result: it is shortened before anything
else, it is no question of the user, and nothing in it is an instruction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import IntFlag
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from recto.formats import read
from recto.formats.message import Message, Part
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import MESSAGE, Entry, Role

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


def plain_output(text: str) -> str:
    """Returns an output as it was printed, behind its exit code, where a client wraps both in JSON as Codex did."""
    if not text.startswith('{"output":'):
        return text
    try:
        match json.loads(text):
            case {"output": str(output), "metadata": {"exit_code": int(code)}}:
                return f"Exit code: {code}\n{output}"
    except (ValueError, RecursionError):
        pass
    return text


def shortened_output(output: str, text: str) -> str:
    """Returns an output with a short text in place of its content, in the form the agent knows.

    The lines that report the exit status stay, and so does the tag around the content.
    """
    head = output[:_MAX_HEAD]
    status = _STATUS_LINE.match(head)
    lead = f"{status[0].strip()}\n" if status else ""
    tag = _TAG.match(head, status.end() if status else 0)
    return f"{lead}<{tag[1]}>{text}</{tag[1]}>" if tag else f"{lead}{text}"


FactKind = Literal[
    "constraint",
    "instruction",
    "preference",
    "correction",
    "decision",
    "approval",
    "deferral",
    "circumstance",
    "obligation",
    "question",
    "error",
    "progress",
]
"""`constraint`: what is forbidden or limited. `approval`: what is allowed. `deferral`: what the user left open or wants
to be asked about. `circumstance`: what the user states about themselves and their environment. `obligation`: something
promised or still to do. `question`: one without an answer yet. `progress`: a task and its status."""
Level = Literal["full", "key_points", "one_line", "title"]
"""How much remains of an exchange, from all of it to its title."""


class Mark(IntFlag):
    """What kind of statement a message makes, detected by rule. Stored with the index: bits never change their
    meaning."""

    NONE = 0
    CORRECTION = 1
    """Retracts or replaces an earlier statement."""
    CONSTRAINT = 2
    """What must, must not, always or never be done."""
    DECISION = 4
    PREFERENCE = 8
    QUESTION = 16
    ERROR = 32
    """Contains an error message or a failure."""
    CRITICAL = 64
    """States that it is important or must be remembered."""
    EVERGREEN = 128
    """Does not age: names, birthdays, permanent facts about a person or a project."""
    SECRET = 256
    """Contains something that looks like a key or a password."""


class ToolCall(NamedTuple):
    """A tool call: the tool, and its arguments as JSON."""

    tool: str
    arguments: str


class MessageView(Struct, frozen=True, kw_only=True):
    """One message, as fact extraction and compaction read it."""

    seq: int
    role: Role
    text: str
    """Message text or tool output, without thinking."""
    calls: tuple[ToolCall, ...] = ()
    """The calls it makes; for a tool result, the call it answers."""
    typed: str = ""
    """What a user typed in the same message as a tool result, as after an interrupt; part of `text`."""
    outputs: tuple[str, ...] = ()
    """Where a message answers several calls, as in Anthropic's and Gemini's formats: the output of each."""
    failed: tuple[bool, ...] = ()
    """For each call that it answers: whether the client marked the result as an error. Empty if none is."""

    def answers(self) -> tuple[MessageView, ...]:
        """A tool result as one view for each call that it answers."""
        if not self.outputs:
            return (self,)
        results = zip(self.calls, self.outputs, self.failed or (False,) * len(self.calls), strict=True)
        return tuple(
            replace(self, text=output, calls=(call,), typed="", outputs=(), failed=(failed,) if failed else ())
            for call, output, failed in results
        )


class Fact(Struct, frozen=True, kw_only=True):
    """Something that must not be lost, in its original words."""

    kind: FactKind
    text: str
    """Verbatim: a sentence or a line of its source."""
    seq: int
    """The source entry."""
    role: Role
    open: bool = True
    """Whether it still holds: not superseded, answered, resolved or done."""
    superseded_by: int | None = None
    """The entry that superseded it."""
    about: str = ""
    """What decides whether it still holds: the failed call, the status of a task; for a question, its options."""


class WorkedFile(Struct, frozen=True, kw_only=True):
    """A file the agent worked with."""

    path: str
    reads: int
    edits: int
    last: int
    """The entry in which it was last used."""
    last_read: int = 0
    """The entry with its newest content; 0 if it was never shown."""


class MessageViewReader:
    """Reads messages in order and remembers the calls that results answer.

    A command written as text is a call, and the user message that holds its output is a tool result.
    """

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}
        self._command: ToolCall | None = None
        """The command that the last message wrote as text."""

    def view(self, seq: int, message: Message) -> MessageView:
        """The view of one message."""
        calls: dict[str, ToolCall] = {}
        results: list[tuple[Part, str]] = []
        texts: list[str] = []
        for part in message.parts:
            if part.kind == "call":
                calls[part.call_id] = self._calls[part.call_id] = ToolCall(part.name, part.text)
            elif part.kind == "text":
                texts.append(part.text)
            elif part.kind == "result":
                texts.append(plain_output(part.text))
                results.append((part, texts[-1]))
        known = [
            (call, part, output) for part, output in results if (call := self._calls.get(part.call_id)) is not None
        ]
        answered = [call for call, _, _ in known]
        outputs = tuple(output for _, _, output in known) if len(known) > 1 and not calls else ()
        failed = tuple(part.failed for _, part, _ in known) if any(part.failed for _, part, _ in known) else ()
        text = texts[0] if len(texts) == 1 else "\n".join(texts)
        typed = "\n".join(part.text for part in message.parts if part.kind == "text") if message.role == "tool" else ""
        role, before, self._command = message.role, self._command, None
        if role == "user" and before is not None and not results and looks_like_output(text):
            role, answered = "tool", [before]
        elif role == "assistant" and not calls and (command := command_in(text)):
            self._command = ToolCall("bash", json.dumps({"command": command}))
            return MessageView(seq=seq, role=role, text=text, calls=(self._command,))
        return MessageView(
            seq=seq,
            role=role,
            text=text,
            calls=(*calls.values(), *answered),
            typed=typed,
            outputs=outputs,
            failed=failed,
        )


def message_views(entries: Iterable[Entry]) -> list[MessageView]:
    """Views of the messages among stored entries."""
    reader = MessageViewReader()
    return [reader.view(entry.seq, read(entry.content, entry.wire)) for entry in entries if entry.kind == MESSAGE]
