"""Clients that rewrite their history stay in their session, and unrelated clients never share one."""

from __future__ import annotations

import json
from contextlib import ExitStack

import httpx2
import pytest
from starlette.responses import JSONResponse, Response
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.gateway.session_resolver import Openings
from recto.transcript.entries import MESSAGE

PATHS = ("chat/completions", "responses", "messages")
SCHEMA = {"type": "object", "properties": {}}
TOOLS = {
    "chat/completions": [{"type": "function", "function": {"name": "run", "parameters": SCHEMA}}],
    "responses": [{"type": "function", "name": "run", "parameters": SCHEMA}],
    "messages": [{"name": "run", "input_schema": SCHEMA}],
}
ENOUGH = "That is all: "


def scripted_reply(request: Asked) -> Says:
    """Returns a tool call if the request offers tools and its last message has no `stop`, else a unique text."""
    number = scripted_reply.count = getattr(scripted_reply, "count", 0) + 1
    last = json.dumps(request.messages[-1])
    if request.body.get("tools") and "stop" not in last:
        return Says(
            text=f"<think>let me see, step {number}</think> I look at file number {number} now.",
            calls=(("run", {"n": number}),),
        )
    return Says(text=f"<think>I ponder {number}</think> The answer with the number {number} is a good one.")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(scripted_reply)))
        yield stack.enter_context(gateway(tmp_path_factory.mktemp("gateway"), upstream.url)), upstream


@pytest.fixture
def gw(place) -> Running:
    return place[0]


@pytest.fixture
def upstream(place) -> ScriptedUpstream:
    return place[1]


def ask(gw: Running, messages, path="chat/completions", *, secret=None, headers=None, **more):
    body = {"model": "gpt-4o", "input" if path == "responses" else "messages": messages, **more}
    body |= {} if path == "responses" else {"max_tokens": more.get("max_tokens", 500)}
    all_headers = {"authorization": f"Bearer {secret or gw.secret}", **(headers or {})}
    answer = httpx2.post(f"{gw.url}/v1/{path}", json=body, headers=all_headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json(), answer.headers["x-recto-session-id"]


def user(text: str):
    return {"role": "user", "content": text}


def stored(gw: Running, session: str, role: str = "") -> list[str]:
    entries = [entry for entry in gw.store.read(session) if entry.kind == MESSAGE]
    return [entry.content.decode() for entry in entries if not role or entry.role == role]


def references(output: list[dict]) -> list[dict]:
    """Returns the references that the Vercel AI SDK sends for the items of an earlier response."""
    return [{"type": "item_reference", "id": item["id"]} for item in output]


def vercel(gw: Running, first: str, steps: int, secret: str = "") -> list[str]:
    """Runs an agent loop with the requests of the Vercel AI SDK's default. Returns the session of each request."""
    items: list[dict] = [{"role": "user", "content": [{"type": "input_text", "text": first}]}]
    sessions = []
    for step in range(steps):
        answer, session = ask(gw, items, "responses", tools=TOOLS["responses"], secret=secret or None)
        sessions.append(session)
        items += references(answer["output"])
        for item in answer["output"]:
            if item["type"] == "function_call":
                output = f"result of {first} {step}" if step < steps - 2 else "stop"
                items.append({"type": "function_call_output", "call_id": item["call_id"], "output": output})
        if answer["output"][-1]["type"] != "function_call":
            items.append({"role": "user", "content": [{"type": "input_text", "text": f"and then {step}?"}]})
    return sessions


def test_item_references_of_the_vercel_ai_sdk_stay_in_one_session(gw, upstream):
    before = len(upstream.asked)
    sessions = vercel(gw, "look around", 11)
    assert (len(sessions), len(set(sessions))) == (11, 1)
    assert not any(request.problems for request in upstream.asked[before:])
    assert not any(b"item_reference" in request.raw for request in upstream.asked[before:])
    assert len(upstream.asked[-1].messages) == len(stored(gw, sessions[0])) - 1
    assert len(stored(gw, sessions[0], "assistant")) == 21


def test_item_references_are_resolved_by_another_gateway_on_the_same_store(tmp_path, upstream):
    items: list[dict] = [user("hello")]
    sessions, keys = [], []
    for number in range(3):
        with gateway(tmp_path, upstream.url) as gw:
            keys.append(gw.secret)
            answer, session = ask(gw, items, "responses", secret=keys[0])
            sessions.append(session)
            if not number:  # another client begins with the same words
                assert ask(gw, items, "responses", secret=keys[0])[1] != session
        items += [*references(answer["output"]), user(f"more {number}")]
    assert len(set(sessions)) == 1


def test_conversations_that_begin_alike_resolve_their_own_references(gw):
    histories = [[user("hi")], [user("hi")]]
    sessions: list[list[str]] = [[], []]
    for step in range(4):
        for who in (0, 1):
            answer, session = ask(gw, histories[who], "responses")
            sessions[who].append(session)
            histories[who] += [*references(answer["output"]), user(f"and {step}")]
    assert [len(set(found)) for found in sessions] == [1, 1]
    assert sessions[0][0] != sessions[1][0]


def test_a_reference_to_an_item_of_another_tenant_or_agent_is_passed_on_as_any_unknown_one(gw, upstream):
    answer, _ = ask(gw, [user("a secret of mine")], "responses")
    for secret in (gw.key(tenant="other"), gw.key(agent="other")):
        ask(gw, [user("hi"), *references(answer["output"]), user("what was it?")], "responses", secret=secret)
        assert b"secret of mine" not in upstream.asked[-1].raw
        assert b"item_reference" in upstream.asked[-1].raw


STEPS = 14
CLEARED = "[cleared]"


def think_stripped(message: dict) -> dict:
    """Removes the reasoning of open models, as many clients do."""
    if isinstance(message.get("content"), str):
        return {**message, "content": message["content"].rpartition("</think>")[2].strip()}
    return {
        **message,
        "content": [
            {**part, "text": part["text"].rpartition("</think>")[2].strip()} if "text" in part else part
            for part in message["content"]
        ],
    }


def wrapped(message: dict) -> dict:
    if isinstance(message.get("content"), str):
        return {**message, "content": f"(step done)\n\n**{message['content']}**"}
    return {
        **message,
        "content": [{**part, "text": f"* {part['text']} *"} if "text" in part else part for part in message["content"]],
    }


def text_dropped(message: dict) -> dict:
    """Removes the text of a message with calls."""
    if message.get("tool_calls"):
        return {**message, "content": None}
    if isinstance(message.get("content"), list) and any(part["type"] == "tool_use" for part in message["content"]):
        return {**message, "content": [part for part in message["content"] if part["type"] == "tool_use"]}
    return message


def unchanged(message: dict) -> dict:
    return message


def spoken(answer: dict, path: str) -> list[dict]:
    """Returns the messages that a client appends to its history for an answer."""
    if path == "chat/completions":
        return [answer["choices"][0]["message"]]
    if path == "messages":
        return [{"role": "assistant", "content": answer["content"]}]
    return answer["output"]


def results(messages: list[dict], path: str, output: str) -> list[dict]:
    """Returns the results of the calls in an answer, or the next question if it has none."""
    if path == "chat/completions":
        calls = [call["id"] for call in messages[-1].get("tool_calls") or []]
        return [{"role": "tool", "tool_call_id": id, "content": output} for id in calls] or [user(output)]
    if path == "messages":
        calls = [part["id"] for part in messages[-1]["content"] if part["type"] == "tool_use"]
        blocks = [{"type": "tool_result", "tool_use_id": id, "content": output} for id in calls]
        return [{"role": "user", "content": blocks}] if blocks else [user(output)]
    calls = [item["call_id"] for item in messages if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": id, "output": output} for id in calls] or [user(output)]


def cleared(messages: list[dict], keep: int) -> list[dict]:
    """Clears all tool results but the last ones."""
    places = [place for place, message in enumerate(messages) if _is_result(message)]
    shown: list[dict] = []
    for place, message in enumerate(messages):
        if place not in places[:-keep]:
            shown.append(message)
        elif message.get("role") == "tool":
            shown.append({**message, "content": CLEARED})
        elif message.get("role") == "user":
            shown.append({**message, "content": [{**part, "content": CLEARED} for part in message["content"]]})
        else:
            shown.append({**message, "output": CLEARED})
    return shown


def _is_result(message: dict) -> bool:
    content = message.get("content")
    blocks = isinstance(content, list) and content and content[0].get("type") == "tool_result"
    return message.get("role") == "tool" or message.get("type") == "function_call_output" or bool(blocks)


def steps(gw: Running, path: str, first: str, rewrite, *, clear: bool = False, tools: bool = True, count: int = STEPS):
    """Runs an agent that rewrites its history at every step. Yields the session of each request."""
    history: list[dict] = [user(first)]
    for step in range(count):
        sent = cleared(history, 2) if clear else history
        more = {"tools": TOOLS[path]} if tools else {}
        answer, session = ask(gw, sent, path, **more)
        yield session
        new_messages = spoken(answer, path)
        output = f"result {step} of {first}: " + "a long listing of many files " * 5
        now = [rewrite(message) if "role" in message else message for message in new_messages]
        history += [*now, *results(new_messages, path, output)]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("rewrite", "clear"),
    [(think_stripped, False), (wrapped, False), (text_dropped, False), (unchanged, True), (think_stripped, True)],
)
def test_an_agent_that_rewrites_its_history_stays_in_one_session(gw, path, rewrite, clear):
    sessions = list(steps(gw, path, f"{path} {rewrite.__name__} {clear}", rewrite, clear=clear))
    assert (len(sessions), len(set(sessions))) == (STEPS, 1)
    results_stored = [text for text in stored(gw, sessions[0]) if "a long listing" in text]
    assert len(results_stored) == STEPS - 1, "every result is stored once, as it was before it was cleared"
    assert not any(CLEARED in text for text in stored(gw, sessions[0]))


class Unaligned(Openings):
    """Finds no session, so nothing is aligned."""

    def sessions(self, store, opening, lineage):
        return ()


def test_without_the_alignment_every_step_would_be_a_session_of_its_own(tmp_path, upstream):
    with gateway(tmp_path, upstream.url) as gw:
        gw.gateway.turns.resolver._openings = Unaligned()
        assert len(set(steps(gw, "chat/completions", "a control", think_stripped))) == STEPS
        assert len(set(steps(gw, "chat/completions", "a control", unchanged, clear=True))) > 5


@pytest.mark.parametrize("path", PATHS)
def test_a_chat_without_tools_that_rewrites_its_history_stays_in_one_session(gw, path):
    sessions = list(steps(gw, path, f"chat {path}", think_stripped, tools=False))
    assert (len(sessions), len(set(sessions))) == (STEPS, 1)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("rewrite", "tools"), [(think_stripped, False), (think_stripped, True), (text_dropped, True)])
def test_clients_that_begin_alike_and_rewrite_their_history_never_share_a_session(gw, path, tools, rewrite):
    agents = [steps(gw, path, f"begin {path} {tools} {rewrite.__name__}", rewrite, tools=tools, count=4) for _ in "abc"]
    sessions = list(zip(*agents, strict=True))  # in turn
    per_agent = [set(found) for found in zip(*sessions, strict=True)]
    assert not per_agent[0] & per_agent[1]
    assert not per_agent[1] & per_agent[2]
    assert not per_agent[0] & per_agent[2]
    assert [len(found) for found in per_agent] == [1, 1, 1]


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_that_is_not_derived_from_the_stored_one_is_another_conversation(gw, path):
    first = user(f"who are you, {path}?")
    answer, session = ask(gw, [first], path)
    other = {"role": "assistant", "content": "I am somebody else altogether, and never said that."}
    _, foreign = ask(gw, [first, other, user("go on")], path)
    assert foreign != session
    history = [first, *spoken(answer, path), user("go on")]
    assert ask(gw, history, path)[1] == session
    edited = user("another question before")
    _, branch = ask(gw, [edited, *history[1:]], path)
    assert branch != session


def test_a_result_that_became_longer_is_an_edit_and_opens_a_branch(gw):
    history = [user("an edited result")]
    answer, session = ask(gw, history, tools=TOOLS["chat/completions"])
    history += [reply := answer["choices"][0]["message"], *results([reply], "chat/completions", "short")]
    answer, _ = ask(gw, history, tools=TOOLS["chat/completions"])
    longer = {**history[-1], "content": "something else, and longer"}
    more = [*history[:-1], longer, answer["choices"][0]["message"], user("stop")]
    _, branch = ask(gw, more, tools=TOOLS["chat/completions"])
    assert branch != session


def reminded(text: str, *reminders: str) -> dict:
    """Returns a message as coding agents send it: their own reminders followed by the user's text."""
    blocks = [f"<system-reminder>\n{reminder}\n</system-reminder>" for reminder in reminders]
    return {"role": "user", "content": [{"type": "text", "text": block} for block in (*blocks, text)]}


@pytest.mark.parametrize("path", ["chat/completions", "messages"])
@pytest.mark.parametrize("reminders", [("skills: none",), ()])
@pytest.mark.parametrize("restarted", [False, True])
def test_an_agent_that_resumes_with_other_reminders_stays_in_its_session(
    tmp_path, upstream, path, reminders, restarted
):
    """As qwen-code does: on resuming, the date is no longer in the first message."""
    with gateway(tmp_path, upstream.url) as gw:
        answer, session = ask(gw, [reminded("fix it", "skills: none", "today is Monday")], path, tools=TOOLS[path])
        new_messages = spoken(answer, path)
        rest = [*new_messages, *results(new_messages, path, "stop"), user("go on")]
        if not restarted:
            assert ask(gw, [reminded("fix it", *reminders), *rest], path, tools=TOOLS[path])[1] == session
        secret = gw.secret
    if restarted:
        with gateway(tmp_path, upstream.url) as gw:
            resumed = [reminded("fix it", *reminders), *rest]
            assert ask(gw, resumed, path, secret=secret, tools=TOOLS[path])[1] == session
            assert [text for text in stored(gw, session, "user") if "fix it" in text and "Monday" not in text] == []


def test_a_message_with_changed_text_next_to_its_reminders_is_an_edit(gw):
    answer, session = ask(gw, [reminded("fix it", "one", "two")], tools=TOOLS["chat/completions"])
    rest = [*(new_messages := spoken(answer, "chat/completions")), *results(new_messages, "chat/completions", "stop")]
    _, other = ask(gw, [reminded("break it", "one"), *rest], tools=TOOLS["chat/completions"])
    assert other != session
    _, open_ended = ask(
        gw, [reminded("fix it <system-reminder> or not", "one"), *rest], tools=TOOLS["chat/completions"]
    )
    assert open_ended != session


TITLES = [
    "You are a title generator. You output ONLY a thread title.",
    "Analyze if this message indicates a new conversation topic. If it does, extract a 2-3 word title.",
    "Summarize this coding conversation in under 50 characters.",
]


def system(text: str, path: str) -> dict:
    return {"instructions": text} if path == "responses" else {"system": text} if path == "messages" else {}


def with_system(messages: list[dict], text: str, path: str) -> list[dict]:
    return [{"role": "system", "content": text}, *messages] if path == "chat/completions" else messages


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", TITLES)
def test_a_title_call_that_comes_first_leaves_the_name_to_the_conversation(gw, path, text):
    name = f"session-{abs(hash((path, text)))}"
    headers = {"x-session-id": name}
    title = with_system([user("fix the bug")], text, path)
    _, aside = ask(gw, title, path, headers=headers, **system(text, path))
    answer, session = ask(gw, [user("fix the bug")], path, headers=headers, tools=TOOLS[path])
    assert session == f"agent:default:{name}"
    assert aside.startswith(f"{session}~")
    history = [user("fix the bug"), *spoken(answer, path), *results(spoken(answer, path), path, "done")]
    assert ask(gw, history, path, headers=headers, tools=TOOLS[path])[1] == session


def test_a_title_call_without_a_name_is_no_part_of_the_conversation(gw):
    _, aside = ask(gw, with_system([user("fix a bug of mine")], TITLES[0], "chat/completions"))
    _, session = ask(gw, [user("fix a bug of mine")], tools=TOOLS["chat/completions"])
    assert not session.startswith(aside)


def test_a_request_that_only_checks_the_key_leaves_the_name_to_the_conversation(gw):
    headers = {"x-claude-code-session-id": "quota-00000000"}
    ask(gw, [user("quota")], "messages", headers=headers, max_tokens=1)
    _, session = ask(gw, [user("hello")], "messages", headers=headers, tools=TOOLS["messages"])
    assert session == "agent:default:quota-00000000"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("named", [True, False])
def test_a_summary_of_a_conversation_is_a_branch_and_the_conversation_continues_in_its_session(gw, path, named):
    headers = {"x-session-id": f"summed-up-{path.replace('/', '-')}"} if named else {}
    first = user(f"a long task {path} {named}")
    answer, session = ask(gw, [first], path, headers=headers, tools=TOOLS[path])
    history = [first, *spoken(answer, path), *results(spoken(answer, path), path, "stop: done")]
    answer, _ = ask(gw, history, path, headers=headers, tools=TOOLS[path])
    history += spoken(answer, path)
    asks = [*history, user("Provide a detailed summary of our conversation above.")]
    text = "You are a helpful assistant tasked with summarizing conversations."
    _, aside = ask(gw, with_system(asks, text, path), path, headers=headers, **system(text, path))
    assert aside != session
    assert ask(gw, [*history, user("stop and go on")], path, headers=headers, tools=TOOLS[path])[1] == session


def test_a_conversation_that_began_like_a_side_call_stays_in_its_session(gw):
    first = [{"role": "system", "content": "You write titles for books."}, user("a book about bees")]
    answer, session = ask(gw, first, max_tokens=16)
    assert ask(gw, [*first, answer["choices"][0]["message"], user("shorter")], max_tokens=16)[1] == session


def test_an_agent_that_drops_its_tools_for_the_last_answer_stays_in_its_session(gw):
    first = [{"role": "system", "content": "You work."}, user("a task without an end")]
    answer, session = ask(gw, first, tools=TOOLS["chat/completions"])
    history = [
        *first,
        reply := answer["choices"][0]["message"],
        *results([reply], "chat/completions", "a summary of the chat"),
    ]
    assert ask(gw, history)[1] == session


def test_a_user_who_requests_a_summary_in_a_chat_without_tools_stays_in_the_session(gw):
    answer, session = ask(gw, [user("let us talk")])
    history = [user("let us talk"), answer["choices"][0]["message"], user("Summarize our conversation, please.")]
    assert ask(gw, history)[1] == session


def choices(texts: list[str]) -> dict:
    return [
        {"index": place, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for place, text in enumerate(texts)
    ]


def in_choices(request: Asked):
    """Responds with as many choices as the request asks for."""
    wanted = request.body.get("n") or 1
    number = len(request.messages)
    texts = [f"choice {place} at step {number} of {request.messages[0]['content']}" for place in range(wanted)]
    head = {"id": f"chatcmpl-{number}", "created": 1, "model": "gpt-4o"}
    if not request.body.get("stream"):
        return JSONResponse({**head, "object": "chat.completion", "choices": choices(texts)})
    deltas = [[{"index": place, "delta": {"role": "assistant", "content": text}}] for place, text in enumerate(texts)]
    deltas += [[{"index": place, "delta": {}, "finish_reason": "stop"}] for place in range(wanted)]
    chunks = [{**head, "object": "chat.completion.chunk", "choices": delta} for delta in deltas]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return Response(body, media_type="text/event-stream")


def sampled(gw: Running, messages: list[dict], **more) -> str:
    """Requests several choices. Returns the session."""
    body = {"model": "gpt-4o", "messages": messages, **more}
    headers = {"authorization": f"Bearer {gw.secret}"}
    answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    assert "choice 1" in answer.text
    return answer.headers["x-recto-session-id"]


def choice(place: int, step: int, first: str) -> dict:
    return {"role": "assistant", "content": f"choice {place} at step {step} of {first}"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_continues_another_of_several_choices_stays_in_the_session(tmp_path, stream):
    upstream = ScriptedUpstream(scripted_reply)
    upstream.fail = in_choices
    with running(upstream), gateway(tmp_path, upstream.url) as gw:
        history = [user("one of three")]
        sessions = []
        for step in range(4):
            sessions.append(sampled(gw, history, n=3, stream=stream))
            history += [choice((step + 1) % 3, len(history), "one of three"), user(f"next {step}")]
        sessions.append(sampled(gw, history, n=2))
        assert len(set(sessions)) == 1
        sent = [(message["role"], message["content"]) for message in upstream.asked[-1].messages]
        assert sent == [(message["role"], message["content"]) for message in history]
        stranger = [user("one of three"), choice(7, 1, "one of three"), user("next 0")]
        assert sampled(gw, stranger, n=2) not in sessions


def test_two_clients_that_continue_different_choices_get_separate_sessions(tmp_path):
    upstream = ScriptedUpstream(scripted_reply)
    upstream.fail = in_choices
    with running(upstream), gateway(tmp_path, upstream.url) as gw:
        first = sampled(gw, [user("parting")], n=3)
        second = sampled(gw, [user("parting"), choice(1, 1, "parting"), user("go on")], n=2)
        third = sampled(gw, [user("parting"), choice(2, 1, "parting"), user("go on")], n=2)
        assert second == first
        assert third.startswith(f"{first}~")
        sent = [message["content"] for message in upstream.asked[-1].messages]
        assert sent == ["parting", "choice 2 at step 1 of parting", "go on"]


SUMMARY = """<analysis>nobody needs to see this</analysis>
<summary>
1. The user wants the parser of the invoice importer to accept dates without a year.
2. The file importer/dates.py was changed, and tests/test_dates.py has two new cases.
3. What remains is the changelog, and a look at the performance of the regular expression.
</summary>"""


def compacted(gw: Running, path: str, name: str, upstream: ScriptedUpstream) -> tuple[str, list[dict]]:
    """Runs a conversation whose client requests a summary. Returns its session and the new history."""
    history = [user(name)]
    for step in range(3):
        answer, session = ask(gw, history, path)
        history += [*spoken(answer, path), user(f"more of {name} {step}")]
    history[-1] = user("Create a handoff summary for another model that goes on with this task.")
    summary = SUMMARY.replace("invoice", name)
    upstream.answer = lambda request: Says(text=summary)
    _, summarized_session = ask(gw, history, path)
    upstream.answer = scripted_reply
    summary_text = summary.partition("<summary>")[2].partition("</summary>")[0].strip()
    again = f"This session is continued from an earlier one.\n\nSummary:\n{summary_text}\n\nPlease go on."
    assert summarized_session == session
    return session, [user(again)]


@pytest.mark.parametrize("path", PATHS)
def test_a_compaction_of_the_client_links_to_the_session_it_came_from(gw, upstream, path):
    source, history = compacted(gw, path, f"compacting {path}", upstream)
    answer, session = ask(gw, history, path, tools=TOOLS[path])
    assert session.startswith(f"{source}~")
    linked = next(entry for entry in gw.store.read(session) if entry.kind == "branch")
    assert json.loads(linked.content)["from"] == source
    assert len(stored(gw, session)) == len(spoken(answer, path)) + 1, "nothing of the source is copied"
    history += [*spoken(answer, path), *results(spoken(answer, path), path, "stop")]
    assert ask(gw, history, path, tools=TOOLS[path])[1] == session


def test_a_message_that_only_resembles_a_summary_or_comes_from_a_stranger_links_to_nothing(gw, upstream):
    path = "chat/completions"
    source, history = compacted(gw, path, "compacting alone", upstream)
    alike = user(history[0]["content"].replace("importer", "exporter").replace("remains", "is left"))
    assert "~" not in ask(gw, [alike], path)[1]
    for secret in (gw.key(tenant="other"), gw.key(agent="other")):
        assert "~" not in ask(gw, history, path, secret=secret)[1]
    assert ask(gw, history, path)[1].startswith(f"{source}~")
