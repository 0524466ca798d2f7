"""A sample agent session in every wire format, and as text without tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import recto

FAILED = "Exit code 1\nE   KeyError: 'port'\n1 failed in 0.52s"
STEPS: tuple[tuple[str, str, dict[str, str], str], ...] = (
    (
        "I look at the parser first.",
        "Read",
        {"file_path": "/repo/src/parser.py"},
        "def port(config): return config['port']",
    ),
    ("Now I run the tests.", "Bash", {"command": "cd /repo && pytest tests"}, FAILED),
    (
        "The default port is missing.",
        "Edit",
        {"file_path": "/repo/src/parser.py", "old_string": "config['port']", "new_string": "config.get('port', 80)"},
        "The file /repo/src/parser.py has been updated.",
    ),
    ("I run them again.", "Bash", {"command": "cd /repo && pytest tests"}, FAILED),
    (
        "A second place reads it, so I move the default into its own file.",
        "Write",
        {"file_path": "/repo/src/defaults.py", "content": "PORT = 80\n"},
        "File created successfully at: /repo/src/defaults.py",
    ),
    (
        "The plugin is needed too.",
        "Bash",
        {"command": "pip install pytest-env"},
        "Successfully installed pytest-env-1.1",
    ),
    ("Once more.", "Bash", {"command": "cd /repo && pytest tests -q"}, "3 passed in 0.31s"),
    ("The old parser is unused.", "Bash", {"command": "rm src/old_parser.py"}, "done"),
)
"""What the assistant says, its tool, the arguments, and the result."""
REQUEST = "Fix the port lookup."
FORMATS = ("openai.chat", "anthropic.messages", "openai.responses", "google.gemini", "text")
MODELS = {"google.gemini": "gemini-2.5-pro", "anthropic.messages": "claude-sonnet-4-5"}


def worked(form: str, steps: Any = STEPS) -> recto.Session:
    """Returns an in-memory session with these steps."""
    session = recto.open("memory:", model=MODELS.get(form, "gpt-4o"), recall={"enabled": False})
    wire = "openai.chat" if form == "text" else form
    for message in messages(form, steps):
        session.append_all([message], wire=wire)
    return session


def messages(form: str, steps: Any = STEPS) -> Iterator[dict[str, Any]]:
    numbers = count(1)
    yield (
        {"role": "user", "parts": [{"text": REQUEST}]}
        if form == "google.gemini"
        else {"role": "user", "content": REQUEST}
    )
    for why, tool, arguments, result in steps:
        yield from _step(form, f"call_{next(numbers)}", why, tool, arguments, result)


def _step(form: str, id: str, why: str, tool: str, arguments: dict[str, str], result: str) -> list[dict[str, Any]]:
    match form:
        case "openai.chat":
            call = {"id": id, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
            return [
                {"role": "assistant", "content": why, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": id, "content": result},
            ]
        case "anthropic.messages":
            call = {"type": "tool_use", "id": id, "name": tool, "input": arguments}
            answer = {"type": "tool_result", "tool_use_id": id, "content": result}
            return [
                {"role": "assistant", "content": [{"type": "text", "text": why}, call]},
                {"role": "user", "content": [answer]},
            ]
        case "openai.responses":
            message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": why}]}
            call = {"type": "function_call", "call_id": id, "name": tool, "arguments": json.dumps(arguments)}
            return [message, call, {"type": "function_call_output", "call_id": id, "output": result}]
        case "google.gemini":
            call = {"functionCall": {"id": id, "name": tool, "args": arguments}}
            answer = {"functionResponse": {"id": id, "name": tool, "response": {"output": result}}}
            return [{"role": "model", "parts": [{"text": why}, call]}, {"role": "user", "parts": [answer]}]
        case _:
            code, _, output = (
                result.removeprefix("Exit code ").partition("\n") if "Exit code" in result else ("0", "", result)
            )
            return [
                {"role": "assistant", "content": f"THOUGHT: {why}\n\n```bash\n{as_shell(tool, arguments)}\n```"},
                {"role": "user", "content": f"<returncode>{code}</returncode>\n<output>\n{output}\n</output>"},
            ]


def as_shell(tool: str, arguments: dict[str, str]) -> str:
    """Returns the step as a command of an agent that has only a shell."""
    match tool:
        case "Read":
            return f"cat {arguments['file_path']}"
        case "Edit":
            return f"sed -i 's/a/b/' {arguments['file_path']}"
        case "Write":
            return f"cat > {arguments['file_path']} <<'EOF'\n{arguments['content']}EOF"
        case _:
            return arguments["command"]
