"""Calls everything of an MCP server with the SDK before 2.0; run by the Python of an environment of its own.

`older_client.py stdio COMMAND ARGUMENT…` or `older_client.py http URL KEY`; prints all results as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version

import httpx
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


@asynccontextmanager
async def connected(kind, *arguments):
    if kind == "stdio":
        process = StdioServerParameters(command=arguments[0], args=list(arguments[1:]), env=dict(os.environ))
        async with stdio_client(process) as streams:
            yield streams
        return
    url, key = arguments
    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams[:2]


async def collect_answers(session):
    shook = await session.initialize()
    answers = {"sdk": version("mcp"), "protocol": shook.protocolVersion, "server": shook.serverInfo.name}
    answers["tools"] = {
        tool.name: [tool.annotations.readOnlyHint, tool.annotations.destructiveHint, bool(tool.outputSchema)]
        for tool in (await session.list_tools()).tools
    }

    async def tool(name, **arguments):
        result = await session.call_tool(name, arguments)  # the client validates the result against the tool's schema
        assert result.structuredContent is not None or result.isError, name
        return {"error": result.isError, "text": result.content[0].text, "structured": result.structuredContent}

    called = {"sessions": await tool("sessions"), "recall": await tool("recall", query="which port does kestrel use")}
    called["read"] = await tool("read", pointer=called["recall"]["structured"]["hits"][0]["pointer"])
    called["note"] = await tool("note", text="asked by an older client", kind="misc")
    called["judge"] = await tool(
        "judge", pointer=called["recall"]["structured"]["hits"][0]["pointer"], verdict="helpful"
    )
    called["pin"] = await tool("pin", entries=[1])
    called["unpin"] = await tool("unpin", entries=[1])
    called["checkpoint"] = await tool("checkpoint", goal="the older client is served")
    called["resume"] = await tool("resume")
    called["context_report"] = await tool("context_report")
    called["decisions"] = await tool("decisions")
    called["restore"] = await tool("restore", decision=1)
    answers["called"] = called
    listed = await session.list_resources()
    answers["resources"] = {
        str(resource.uri): (await session.read_resource(resource.uri)).contents[0].text for resource in listed.resources
    }
    answers["templates"] = [
        template.uriTemplate for template in (await session.list_resource_templates()).resourceTemplates
    ]
    page = AnyUrl("recto://session/agent%3Adefault%3Amain/transcript?after=1")
    answers["page"] = (await session.read_resource(page)).contents[0].text
    answers["prompts"] = {
        prompt.name: (await session.get_prompt(prompt.name, {})).messages[0].content.text
        for prompt in (await session.list_prompts()).prompts
    }
    try:
        await session.read_resource(AnyUrl("recto://session/nobody/report"))
    except McpError as error:
        answers["refused"] = error.error.message
    return answers


async def main(kind, *arguments):
    async with connected(kind, *arguments) as streams, ClientSession(*streams) as session:
        print(json.dumps(await collect_answers(session)))


asyncio.run(main(*sys.argv[1:]))
