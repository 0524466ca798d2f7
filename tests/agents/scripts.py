"""The scripted model: reads one part of a long ledger in each step, then answers.

The shell tool and the name of its argument are taken from the tools in the request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.gateway.upstream import Asked, Says

ANSWER = "All parts are read, and the ledger is complete."
TASK = "Read every part of the ledger, one after the other, and tell me when it is complete."
QUESTION = "What is the harbour crane called?"
FACT = "the harbour crane is called Ottilie"
FACT_IN = 3
"""The part that contains it."""
SUBTASK = "Look whether the archive of the lighthouse holds anything."
REPORT = "The archive of the lighthouse is empty."
_SHELLS = ("bash", "Bash", "exec_command", "shell_command", "shell", "run_shell_command")


def output_of(part: int, lines: int) -> str:
    """The exact output of the command of a step."""
    first = f"Part {part}: {FACT if part == FACT_IN else f'nothing new in row {part * 7919}'}."
    return "\n".join(
        (first, *(f"part {part}, line {line:05d}: the tide came in and went out" for line in range(1, lines + 1)))
    )


def command_for(part: int, lines: int) -> str:
    first = output_of(part, 0)
    return f"echo '{first}'; seq -f 'part {part}, line %05.0f: the tide came in and went out' 1 {lines}"


@dataclass
class Script:
    """A model with scripted answers."""

    steps: int
    lines: int
    submits: bool = False
    """Whether the agent ends with a command instead of an answer."""
    delegates: bool = False
    """Whether a sub-agent is started after the last step."""
    answers: int = 0
    side_answers: int = 0
    """Answers to side calls."""

    @property
    def turns(self) -> int:
        """Number of answers for the whole task."""
        return self.steps + self.delegates + 1

    def __call__(self, request: Asked) -> Says:
        shell = shell_in(request.body)
        if shell is None or is_side_call(request.body):
            self.side_answers += 1
            return Says(REPORT)
        self.answers += 1
        if self.answers <= self.steps:
            return Says(self.words(self.answers), (_call(shell, command_for(self.answers, self.lines)),))
        if self.answers < self.turns:
            arguments = {"description": "Look into the archive", "prompt": SUBTASK, "run_in_background": False}
            return Says("I send somebody to the archive.", (("Agent", arguments),))
        if self.submits:
            command = f"printf 'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\\n%s' '{ANSWER}'"
            return Says("I hand in the answer.", (_call(shell, command),))
        return Says(ANSWER)

    @staticmethod
    def words(part: int) -> str:
        return f"Step {part}: I read part {part} of the ledger."


def shell_in(body: dict[str, Any]) -> dict[str, Any] | None:
    """The shell tool of a request in any format, or None."""
    listed = [
        declaration for tool in body.get("tools") or () for declaration in tool.get("functionDeclarations", (tool,))
    ]
    offered = [tool.get("function", tool) for tool in listed]
    return next((tool for tool in offered if tool.get("name") in _SHELLS), None)


def is_side_call(body: dict[str, Any]) -> bool:
    """Whether a request is a side call: without a shell tool, such as for a title, or of the sub-agent."""
    messages = body.get("messages") or body.get("input") or body.get("contents") or ()
    first = next((message for message in messages if message.get("role") == "user"), None)
    return shell_in(body) is None or SUBTASK in json.dumps(first)


def _call(tool: dict[str, Any], command: str) -> tuple[str, dict[str, Any]]:
    schema = tool.get("parameters") or tool.get("parametersJsonSchema") or tool.get("input_schema") or {}
    properties = schema.get("properties", {})
    name = "cmd" if "cmd" in properties else "command"
    takes_list = properties.get(name, {}).get("type") == "array"
    optional = {"description": "Reads a part", "is_background": False}
    needed = {field: value for field, value in optional.items() if field in schema.get("required", ())}
    return tool["name"], {name: ["bash", "-lc", command] if takes_list else command, **needed}
