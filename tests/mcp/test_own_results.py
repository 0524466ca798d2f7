"""Results of Recto's own tools are not trimmed when the host's transcript passes through Recto."""

from __future__ import annotations

import json

import pytest

import recto
from recto.engine.projection import DECISIONS
from recto.formats.tools import MCP_TOOLS, is_own_tool
from recto.mcp import tools

RESULT = "What was said about kestrel, word for word. " * 120


def test_the_table_of_tools_and_the_names_known_to_trimming_are_the_same():
    assert tuple(tool.name for tool in tools.TOOLS) == MCP_TOOLS


@pytest.mark.parametrize("tool", MCP_TOOLS)
def test_a_tool_is_recognized_in_every_spelling_of_a_host(tool):
    for written in (f"mcp__recto__{tool}", f"mcp_recto_{tool}", f"recto_{tool}", f"recto.{tool}", f"recto__{tool}"):
        assert is_own_tool(written)
    assert is_own_tool(f"mcp__plugin_work_recto__{tool}")


@pytest.mark.parametrize("name", ["read", "recall", "directo_read", "recto_rm", "recto__reader", "rectoread", ""])
def test_an_ambiguous_name_is_not_recognized_as_an_own_tool(name):
    assert not is_own_tool(name)


def looked_up(session: recto.Session, *names: str) -> recto.Prompt:
    """Appends a long loop of calls to these tools in turn; results of this format do not name their tool."""
    session.append({"role": "user", "content": "Look everything up."})
    for number in range(24):
        name = names[number % len(names)]
        call = {"id": f"{name}/{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        session.append({"role": "tool", "tool_call_id": call["id"], "content": f"{number}: {RESULT}"})
        prompt = session.prompt()
    return prompt


def small(**window: object) -> recto.Session:
    return recto.open(
        "memory:",
        model="gpt-4o",
        window={"mode": "zones", "min_recent_messages": 2, **window},
        models={"gpt-4o": {"window": 24_000}},
        recall={"embedder": {"use": "none"}},
    )


def shortened(session: recto.Session) -> set[str]:
    """Returns the tools whose results were shortened, whether or not they were evicted later."""
    decided = [json.loads(entry.content) for entry in session.read() if entry.kind in DECISIONS]
    seqs = {int(seq) for decision in decided for seq in decision["shrunk"]}
    return {json.loads(entry.content)["tool_call_id"].split("/")[0] for entry in session.read() if entry.seq in seqs}


def test_a_recalled_result_is_never_shortened_and_others_are():
    with small() as session:
        prompt = looked_up(session, "Bash", "mcp__recto__recall")
        assert shortened(session) == {"Bash"}
        sent = [json.loads(raw) for raw in prompt.built.messages]
        whole = [
            message
            for message in sent
            if message["role"] == "tool" and message["tool_call_id"].startswith("mcp__recto")
        ]
        assert whole
        assert all(RESULT in message["content"] for message in whole)


def test_an_excluded_tool_is_not_trimmed_even_if_its_results_do_not_name_it():
    with small(trim={"exclude_tools": ["Grep"]}) as session:
        looked_up(session, "Bash", "Grep")
        assert shortened(session) == {"Bash"}
