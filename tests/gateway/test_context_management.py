"""Context management that clients request from a provider: the gateway serves it for upstreams that do not know it."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager

import anthropic
import httpx2
import openai
import pytest
from starlette.responses import JSONResponse
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.config import load
from recto.errors import SettingsError
from recto.gateway.upstreams.http import make_upstreams
from recto.transcript.entries import Entry

EDITS_BETA, COMPACT_BETA, OTHER_BETA = "context-management-2025-06-27", "compact-2026-01-12", "files-api-2025-04-14"
MEMORY = {"type": "memory_20250818", "name": "memory"}
READ_FILE = {"name": "read_file", "input_schema": {"type": "object"}}
MODELS = {"gpt-4o": {"window": 64_000}, "claude-model": {"window": 200_000}}


def refuse_unknown(request: Asked) -> JSONResponse | None:
    """Refuse members, tools and betas that only the provider's own servers know."""
    unknown = [word for word in ("context_management", "compaction", "memory_20250818") if word in request.raw.decode()]
    unknown += [beta for beta in (EDITS_BETA, COMPACT_BETA) if beta in request.headers.get("anthropic-beta", "")]
    error = {"type": "invalid_request_error", "message": f"Extra inputs are not permitted: {unknown}"}
    return JSONResponse({"type": "error", "error": error}, 400) if unknown else None


@contextmanager
def place(folder, *, fail=refuse_unknown, answer=None, speaks=("chat", "responses", "messages"), **options):
    with ExitStack() as stack:
        upstream = ScriptedUpstream(answer or (lambda request: Says(f"Answer {len(upstream.asked)}.")), fail=fail)
        stack.enter_context(running(upstream))
        main = {"url": f"{upstream.url}/v1", "speaks": list(speaks), "key": "sk-upstream", **options}
        yield stack.enter_context(gateway(folder, models=MODELS, gateway={"upstreams": {"main": main}})), upstream


@contextmanager
def openai_client(gw: Running):
    with openai.OpenAI(base_url=f"{gw.url}/v1", api_key=gw.secret, max_retries=0) as client:
        yield client


@contextmanager
def anthropic_client(gw: Running):
    with anthropic.Anthropic(base_url=gw.url, api_key=gw.secret, max_retries=0) as client:
        yield client


def sessions(gw: Running) -> int:
    return len(stored_names(gw))


def stored_names(gw: Running) -> list[str]:
    return [summary.session for summary in gw.store.sessions() if "agent:" in summary.session]


def stored_messages(gw: Running) -> list[Entry]:
    (name,) = stored_names(gw)
    return [entry for entry in gw.store.read(name) if entry.kind == "message"]


def long_question(number: int) -> str:
    return f"Note the number {number} for the ledger." + " More words for it." * 120


def responses_turn(client, items, stream):
    arguments = {
        "model": "gpt-4o",
        "input": items,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
        "context_management": [{"type": "compaction", "compact_threshold": 4_000}],
    }
    if not stream:
        response = client.responses.create(**arguments)
        return response, [item.to_dict() for item in response.output]
    with client.responses.stream(**arguments) as events:
        numbers = [(event.sequence_number, getattr(event, "output_index", None)) for event in events]
        response = events.get_final_response()
    assert [number for number, _ in numbers] == list(range(len(numbers)))
    places = [place for _, place in numbers if place is not None]
    assert places == sorted(places)
    return response, [item.to_dict() for item in response.output]


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_threshold_is_answered_after_a_compaction_item(tmp_path, stream, drops):
    with place(tmp_path) as (gw, upstream), openai_client(gw) as client:
        items, seen = [], []
        for number in range(24):
            items.append({"role": "user", "content": long_question(number)})
            _, output = responses_turn(client, items, stream)
            assert [item["type"] for item in output][-1] == "message"
            seen.append([item["type"] for item in output])
            if drops and output[0]["type"] == "compaction":
                items = []
            items += output
        assert ["message"] in seen
        assert 2 <= seen.count(["compaction", "message"]) < 12
        assert sessions(gw) == 1
        prompts = [len(request.raw) for request in upstream.asked]
        assert max(prompts) < 24 * len(long_question(0))
        stored = stored_messages(gw)
        assert [entry.role for entry in stored] == ["user", "assistant"] * 24
        assert all("compaction" not in entry.content.decode() for entry in stored)
        assert json.loads(stored[0].content)["content"] == long_question(0)


def test_a_response_with_a_compaction_can_be_continued_by_its_id(tmp_path):
    with place(tmp_path) as (gw, upstream), openai_client(gw) as client:
        previous, compactions = None, 0
        for number in range(12):
            more = {"previous_response_id": previous} if previous else {}
            response = client.responses.create(
                model="gpt-4o",
                input=long_question(number),
                context_management=[{"type": "compaction", "compact_threshold": 2_000}],
                **more,
            )
            previous, compactions = response.id, compactions + (response.output[0].type == "compaction")
        assert compactions
        assert sessions(gw) == 1
        assert len(upstream.asked) == 12


def test_an_unknown_edit_type_is_refused_by_name_and_nothing_is_stored(tmp_path):
    with place(tmp_path) as (gw, upstream), openai_client(gw) as client, anthropic_client(gw) as other:
        with pytest.raises(openai.BadRequestError, match="dream_2027"):
            client.responses.create(model="gpt-4o", input="x", context_management=[{"type": "dream_2027"}])
        edits = {"edits": [{"type": "dream_2027"}]}
        with pytest.raises(anthropic.BadRequestError, match=r"dream_2027.*upstreams\.main\.context_management"):
            other.beta.messages.create(
                model="claude-model", max_tokens=9, messages=[user("x")], context_management=edits
            )
        assert not upstream.asked
        assert not sessions(gw)


def user(text):
    return {"role": "user", "content": text}


def tool_history(count: int, words: int = 200) -> list[dict]:
    messages = [user("Read the files.")]
    for number in range(count):
        call = {
            "type": "tool_use",
            "id": f"toolu_{number}",
            "name": "read_file",
            "input": {"path": f"file{number}.txt"},
        }
        if number % 3 == 2:
            call = {**call, "name": "search", "input": {"query": f"query {number}"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"content {number} " * words}
        messages += [{"role": "assistant", "content": [call]}, user([result])]
    return messages


def ask_anthropic(client, messages, stream, edits, tools=(READ_FILE, {**READ_FILE, "name": "search"}), **more):
    arguments = {
        "model": "claude-model",
        "max_tokens": 200,
        "messages": messages,
        "tools": list(tools),
        "betas": [EDITS_BETA, OTHER_BETA],
        "context_management": {"edits": edits},
        **more,
    }
    if not stream:
        return client.beta.messages.create(**arguments)
    with client.beta.messages.stream(**arguments) as events:
        for _ in events:
            pass
        return events.get_final_message()


def results(request: Asked) -> dict[str, str]:
    blocks = [
        block for message in request.messages if isinstance(message["content"], list) for block in message["content"]
    ]
    return {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}


def inputs(request: Asked) -> dict[str, dict]:
    blocks = [
        block for message in request.messages if isinstance(message["content"], list) for block in message["content"]
    ]
    return {block["id"]: block["input"] for block in blocks if block["type"] == "tool_use"}


@pytest.mark.parametrize("stream", [False, True])
def test_old_tool_results_are_cleared_from_the_prompt_and_stay_in_the_transcript(tmp_path, stream):
    with place(tmp_path) as (gw, upstream), anthropic_client(gw) as client:
        history = tool_history(8)
        edit = {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": 2_000},
            "keep": {"type": "tool_uses", "value": 2},
            "exclude_tools": ["search"],
            "clear_tool_inputs": True,
        }
        reply = ask_anthropic(client, history, stream, [edit])
        sent = upstream.asked[-1]
        assert sent.headers["anthropic-beta"] == OTHER_BETA
        found = results(sent)
        cleared = [id for id, content in found.items() if "cleared" in content]
        assert cleared == ["toolu_0", "toolu_1", "toolu_3", "toolu_4"]
        assert "recto://" in found["toolu_0"]
        assert [id for id, input in inputs(sent).items() if not input] == cleared
        (applied,) = reply.context_management.applied_edits
        assert (applied.type, applied.cleared_tool_uses) == ("clear_tool_uses_20250919", 4)
        assert 4 * 400 < applied.cleared_input_tokens < 4 * 1_000
        stored = stored_messages(gw)
        assert sum(entry.content.decode().count("content 0 content 0") > 0 for entry in stored) == 1
        assert b"clear_tool_uses_20250919" in stored[-1].meta
        history += [{"role": "assistant", "content": [block.to_dict() for block in reply.content]}, user("Go on.")]
        ask_anthropic(client, history, stream, [edit])
        assert sessions(gw) == 1


@pytest.mark.parametrize(
    "edit",
    [
        {"type": "clear_tool_uses_20250919"},
        {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 8}},
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": 2},
            "clear_at_least": {"type": "input_tokens", "value": 50_000},
        },
        {"type": "clear_thinking_20251015", "keep": "all"},
    ],
)
def test_an_edit_that_is_not_due_changes_nothing_and_reports_nothing(tmp_path, edit):
    with place(tmp_path) as (gw, upstream), anthropic_client(gw) as client:
        history = tool_history(8)
        reply = ask_anthropic(client, history, False, [edit])
        assert upstream.asked[-1].messages == history
        assert reply.context_management.applied_edits == []


@pytest.mark.parametrize("stream", [False, True])
def test_the_thinking_of_older_turns_is_cleared(tmp_path, stream):
    thinking = {"type": "thinking", "thinking": "I wonder about it. " * 40, "signature": "c2lnbmVk"}
    history = []
    for number in range(4):
        answer = {"role": "assistant", "content": [thinking, {"type": "text", "text": f"Answer {number}."}]}
        history += [user(f"Question {number}?"), answer]
    history.append(user("And now?"))
    edit = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}}
    with place(tmp_path) as (gw, upstream), anthropic_client(gw) as client:
        more = {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 2_000}
        reply = ask_anthropic(client, history, stream, [edit], **more)
        thought = ["thinking" in json.dumps(message) for message in upstream.asked[-1].messages]
        assert thought == [False, False, False, False, False, True, False, True, False]
        (applied,) = reply.context_management.applied_edits
        assert applied.cleared_thinking_turns == 2
        assert applied.cleared_input_tokens > 100


@pytest.mark.parametrize(("model", "stays"), [("claude-model-4-8", True), ("claude-model-5-2", False)])
def test_thinking_that_is_bound_to_an_edited_message_is_not_sent(tmp_path, model, stays):
    thinking = {"type": "thinking", "thinking": "I wonder.", "signature": "c2lnbmVk"}
    history = tool_history(5)
    history[-2]["content"].insert(0, thinking)
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 2}}
    with place(tmp_path) as (gw, upstream), anthropic_client(gw) as client:
        ask_anthropic(client, history, False, [edit], model=model)
        assert b"cleared" in upstream.asked[-1].raw
        assert (b"I wonder" in upstream.asked[-1].raw) is stays


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_over_the_trigger_is_answered_after_a_compaction_block(tmp_path, stream, drops):
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 5_000}}
    with place(tmp_path) as (gw, upstream), anthropic_client(gw) as client:
        messages, kinds = [], []
        for number in range(24):
            messages.append(user(long_question(number)))
            reply = ask_anthropic(client, messages, stream, [edit], betas=[EDITS_BETA, COMPACT_BETA])
            kinds.append([block.type for block in reply.content])
            if kinds[-1][0] == "compaction":
                assert reply.content[0].content
                messages = [] if drops else messages
            messages.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
        assert 2 <= kinds.count(["compaction", "text"]) < 12
        assert sessions(gw) == 1
        assert "anthropic-beta" not in upstream.asked[-1].headers
        stored = stored_messages(gw)
        assert [entry.role for entry in stored] == ["user", "assistant"] * 24


@pytest.mark.parametrize("stream", [False, True])
def test_a_paused_compaction_is_the_whole_response_and_the_conversation_continues_after_it(tmp_path, stream):
    edit = {
        "type": "compact_20260112",
        "trigger": {"type": "input_tokens", "value": 5_000},
        "pause_after_compaction": True,
    }
    with place(tmp_path) as (gw, upstream), anthropic_client(gw) as client:
        messages = [user(long_question(0))]
        for number in range(1, 30):
            messages += [{"role": "assistant", "content": f"Noted {number}."}, user(long_question(number))]
        reply = ask_anthropic(client, messages, stream, [edit])
        assert reply.stop_reason == "compaction"
        assert [block.type for block in reply.content] == ["compaction"]
        assert not upstream.asked
        compacted = [{"role": "assistant", "content": [block.to_dict() for block in reply.content]}]
        reply = ask_anthropic(client, compacted, stream, [edit])  # its question is not answered yet
        assert [block.type for block in reply.content] == ["text"]
        assert upstream.asked[-1].messages[-1]["content"] == long_question(29)
        compacted += [{"role": "assistant", "content": reply.content[0].text}, user("What were they?")]
        ask_anthropic(client, compacted, stream, [edit])
        assert upstream.asked[-1].messages[-1]["content"] == "What were they?"
        assert sessions(gw) == 1


@pytest.mark.parametrize("speaks", [("messages",), ("chat",), ("responses",)])
def test_the_memory_tool_is_an_ordinary_tool_for_an_upstream_that_does_not_know_it(tmp_path, speaks):
    def answer(arguments):
        call = {"command": "view", "path": "/memories"}
        return Says("", (("memory", call),)) if len(upstream.asked) == 1 else Says("Nothing is there.")

    with place(tmp_path, answer=answer, speaks=speaks) as (gw, upstream), anthropic_client(gw) as client:
        messages = [user("What do you remember?")]
        arguments = {"model": "gpt-4o", "max_tokens": 200, "tools": [MEMORY, READ_FILE], "betas": [EDITS_BETA]}
        reply = client.beta.messages.create(messages=messages, **arguments)
        (call,) = [block for block in reply.content if block.type == "tool_use"]
        assert (call.name, call.input) == ("memory", {"command": "view", "path": "/memories"})
        tools = upstream.asked[-1].body["tools"]
        assert [tool.get("name") or tool["function"]["name"] for tool in tools] == ["memory", "read_file"]
        if speaks == ("messages",):
            schema = tools[0]["input_schema"]
            commands = {"view", "create", "str_replace", "insert", "delete", "rename"}
            assert set(schema["properties"]["command"]["enum"]) == commands
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "No files."}
        messages += [{"role": "assistant", "content": [block.to_dict() for block in reply.content]}, user([result])]
        client.beta.messages.create(messages=messages, **arguments)
        assert sessions(gw) == 1


def test_edits_are_served_for_an_upstream_of_another_format_even_in_pass_mode(tmp_path):
    with place(tmp_path, speaks=("chat",), context_management="pass") as (gw, upstream), anthropic_client(gw) as client:
        edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 2}}
        reply = ask_anthropic(client, tool_history(6), False, [edit], model="gpt-4o")
        (applied,) = reply.context_management.applied_edits
        assert applied.cleared_tool_uses == 3
        assert upstream.asked[-1].raw.count(b"cleared") == 3


def test_pass_mode_forwards_every_edit_to_the_upstream(tmp_path):
    setting = {"context_management": "pass", "fail": lambda request: None}
    with place(tmp_path, **setting) as (gw, upstream), anthropic_client(gw) as client, openai_client(gw) as other:
        edit = {"type": "dream_2027", "depth": 3}
        ask_anthropic(client, tool_history(6), False, [edit], tools=[MEMORY])
        sent = upstream.asked[-1]
        assert sent.body["context_management"] == {"edits": [edit]}
        assert sent.body["tools"] == [MEMORY]
        assert sent.headers["anthropic-beta"] == f"{EDITS_BETA},{OTHER_BETA}"
        management = [{"type": "compaction", "compact_threshold": 1_000}]
        other.responses.create(model="gpt-4o", input="x", context_management=management)
        assert upstream.asked[-1].body["context_management"] == management


def test_off_mode_drops_all_edits_including_unknown_ones(tmp_path):
    with place(tmp_path, context_management="off") as (gw, upstream), anthropic_client(gw) as client:
        edits = [
            {"type": "dream_2027"},
            {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}},
        ]
        history = tool_history(6)
        reply = ask_anthropic(client, history, False, edits, tools=[MEMORY])
        assert upstream.asked[-1].messages == history
        assert reply.context_management is None


def test_the_default_mode_is_pass_for_anthropic_and_serve_for_every_other_upstream():
    def mode(url, **more):
        settings = load(environ={}, arguments={"gateway": {"upstreams": {"one": {"url": url, "key": "k", **more}}}})
        return make_upstreams(settings, lambda: None).by_name["one"].context_management

    assert mode("https://api.anthropic.com") == "pass"
    assert mode("https://api.openai.com/v1") == "serve"
    assert mode("http://127.0.0.1:8000/v1") == "serve"
    assert mode("http://127.0.0.1:8000/v1", context_management="off") == "off"
    with pytest.raises(SettingsError, match="pass, serve, off"):
        mode("http://127.0.0.1:8000/v1", context_management="sometimes")


def test_a_compaction_block_of_another_tenant_is_not_found(tmp_path):
    with place(tmp_path) as (gw, upstream):
        block = {"type": "compaction", "content": "s", "encrypted_content": "recto:cmp_0123"}
        body = {
            "model": "claude-model",
            "max_tokens": 9,
            "messages": [{"role": "assistant", "content": [block]}, user("x")],
        }
        answer = httpx2.post(f"{gw.url}/v1/messages", json=body, headers={"x-api-key": gw.secret})
        assert answer.status_code == 404
        assert not upstream.asked
