"""Text protocols: commands written as text, and their outputs, are recognised by their form."""

from __future__ import annotations

import pytest

from recto.context.facts.types import MessageViewReader, command_in, exit_status, looks_like_output, shortened_output
from recto.formats.message import Message, Part


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("Look around first.\n\n```bash\nls -la src\n```", "ls -la src"),
        ("Two blocks:\n```python\nprint(1)\n```\nand\n```sh\nmake test\n```", "make test"),
        ("<execute_bash>git status</execute_bash>", "git status"),
        ("Thought: search\nAction: search_file[config.py]", "search_file[config.py]"),
        (
            "Calling tools:\n[{'id': 'c1', 'function': {'name': 'look_up', 'arguments': {'shelf': 'A'}}}]",
            "[{'id': 'c1', 'function': {'name': 'look_up', 'arguments': {'shelf': 'A'}}}]",
        ),
        ("Thought: I look.\n<code>\nprint(look_up('a'))\n</code>", "print(look_up('a'))"),
        ("I am calling tools: none.", ""),
        ("The answer is 42.", ""),
        ("```json\n{}\n```", ""),
    ],
)
def test_the_command_of_a_message_is_its_last_block(text, command):
    assert command_in(text) == command


@pytest.mark.parametrize(
    ("text", "is_output"),
    [
        ("<returncode>0</returncode>\n<output>\nREADME.md\n</output>", True),
        ("Observation: no file of that name", True),
        ("Exit code: 1\nTraceback", True),
        ("Error:\nno such shelf\nNow let's retry: take care not to repeat previous errors!", True),
        ("Call id: c1\nError:\nno such shelf", True),
        ("Error: the page is blank, please look.", False),
        ("```\nREADME.md\n```", True),
        ("Output of the command:\n```\nREADME.md\n```", True),
        ("Please always provide EXACTLY ONE action in triple backticks, found 2 actions.", True),
        ("Never push to main without my approval.", False),
        ("Here is my config, please fix it:\n```\na: 1\n```\nIt fails at line 1.", False),
        ("", False),
    ],
)
def test_an_output_is_recognised_by_its_form(text, is_output):
    assert looks_like_output(text) == is_output


def test_a_shortened_output_keeps_its_exit_status_and_tags():
    output = "<returncode>2</returncode>\n<output>\n" + "line\n" * 100 + "</output>"
    assert exit_status(output) == "2"
    assert shortened_output(output, "[100 lines]") == "<returncode>2</returncode>\n<output>[100 lines]</output>"
    assert shortened_output("plain text", "[100 lines]") == "[100 lines]"


def views(*pairs):
    reader = MessageViewReader()
    return [
        reader.view(seq, Message(role=role, parts=(Part(kind="text", text=text),)))
        for seq, (role, text) in enumerate(pairs, 1)
    ]


def test_a_command_is_a_call_and_its_output_a_tool_result():
    _, call, result, question = views(
        ("user", "Fix the build."),
        ("assistant", "```bash\nmake\n```"),
        ("user", "```\nmake: *** No rule\n```"),
        ("user", "Stop here."),
    )
    assert call.calls[0].tool == "bash"
    assert "make" in call.calls[0].arguments
    assert (result.role, result.calls) == ("tool", call.calls)
    assert (question.role, question.calls) == ("user", ())


def test_a_fenced_message_without_a_preceding_command_belongs_to_the_user():
    assert views(("assistant", "What is the error?"), ("user", "```\nmake: *** No rule\n```"))[1].role == "user"
