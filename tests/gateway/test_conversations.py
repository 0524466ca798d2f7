"""Which session a request belongs to: repeated messages are stored once, edits branch, nothing is overwritten."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from dataclasses import dataclass, field

import httpx2
import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running, serving

from recto.formats import canonical
from recto.formats.openai_responses import RESPONSES
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import MESSAGE, Draft

TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]


def echo_last_message(request: Asked) -> Says:
    last = request.messages[-1]
    return Says(text=f"answer to: {json.dumps(last.get('content'))[:60]}")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(echo_last_message)))
        models = {"gpt-4o": {"window": 16_000}}
        made = stack.enter_context(gateway(tmp_path_factory.mktemp("gateway"), upstream.url, models=models))
        yield made, upstream


@pytest.fixture
def gw(place) -> Running:
    return place[0]


@pytest.fixture
def upstream(place) -> ScriptedUpstream:
    return place[1]


def ask(gw: Running, messages, *, path="chat/completions", secret=None, headers=None, **more):
    member = "input" if path == "responses" else "messages"
    body = {"model": "gpt-4o", member: messages, "max_tokens": 100, **more}
    if path == "responses":
        del body["max_tokens"]
    all_headers = {"authorization": f"Bearer {secret or gw.secret}", **(headers or {})}
    answer = httpx2.post(f"{gw.url}/v1/{path}", json=body, headers=all_headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json(), answer.headers["x-recto-session-id"]


def reply_of(answer):
    return answer["choices"][0]["message"]


def texts_of(gw: Running, session: str) -> list[str]:
    """Returns the messages of a session as `role: text`."""
    entries = [entry for entry in gw.store.read(session) if entry.kind == MESSAGE]
    return [f"{entry.role}: {json.loads(entry.content)['content']}" for entry in entries]


def user(text: str):
    return {"role": "user", "content": text}


@pytest.mark.requirement("session.full-history")
def test_a_resent_history_stores_only_its_new_messages(gw):
    history = [{"role": "system", "content": "Be brief."}, user("first of new")]
    sessions = set()
    for turn in range(4):
        answer, session = ask(gw, history, tools=TOOLS)
        sessions.add(session)
        history += [reply_of(answer), user(f"turn {turn}")]
    assert len(sessions) == 1
    spoken = texts_of(gw, sessions.pop())
    assert len(spoken) == 8
    assert spoken[0] == "user: first of new"
    assert len(set(spoken)) == 8


def test_changed_system_text_and_tools_stay_in_the_conversation_and_are_stored(gw):
    answer, first = ask(gw, [{"role": "system", "content": "It is 9:00."}, user("what time")], tools=TOOLS)
    later = [{"role": "system", "content": "It is 9:05."}, user("what time"), reply_of(answer), user("and now")]
    _, second = ask(gw, later, tools=[*TOOLS, {"type": "function", "function": {"name": "other"}}])
    assert first == second
    kinds = [entry.kind for entry in gw.store.read(first)]
    assert kinds.count("instructions_given") == 2
    assert kinds.count("tools_offered") == 2
    replies = [entry for entry in gw.store.read(first) if entry.role == "assistant"]
    assert replies[0].metadata["given"] != replies[1].metadata["given"]


def test_instructions_of_an_erased_session_are_stored_again(gw):
    named = {"x-recto-session-id": "erased-later"}
    history = [
        {"role": "system", "content": "Be kind."},
        user("hello"),
        {"role": "assistant", "content": "x"},
        user("y"),
    ]
    _, session = ask(gw, history, tools=TOOLS, headers=named)
    gw.store.erase(session)
    _, again = ask(gw, history, tools=TOOLS, headers=named)
    assert again == session
    kinds = [entry.kind for entry in gw.store.read(session)]
    assert (kinds.count("instructions_given"), kinds.count("tools_offered")) == (1, 1)


def test_a_message_that_another_process_appends_makes_the_next_turn_a_branch(gw):
    history = [user("first of two writers")]
    answer, session = ask(gw, history, tools=TOOLS)
    with SqliteStore(gw.store.location) as other:
        theirs = json.dumps(user("from elsewhere")).encode()
        draft = Draft(id="elsewhere", ts=1, role="user", content=theirs, wire="openai.chat")
        other.append(session, [draft])
    history += [reply_of(answer), user("from here")]
    _, branch = ask(gw, history, tools=TOOLS)
    assert branch != session
    assert texts_of(gw, branch) == [*texts_of(gw, session)[:2], "user: from here", texts_of(gw, branch)[-1]]


def test_a_reminder_after_the_history_opens_no_other_conversation(gw, upstream):
    history = [user("edit the file")]
    for turn in range(3):
        reminder = {"role": "system", "content": "Reply in the asked format."}
        answer, session = ask(gw, [*history, reminder], tools=TOOLS)
        assert upstream.asked[-1].messages[-1] == reminder
        assert sum(message["role"] == "system" for message in upstream.asked[-1].messages) == 1
        history += [reply_of(answer), user(f"and then {turn}")]
    assert len(texts_of(gw, session)) == 6


def test_system_text_in_the_middle_is_stored_once_and_sent_to_the_upstream(gw, upstream):
    history = [user("watch the door")]
    answer, first = ask(gw, history, tools=TOOLS)
    news = {"role": "system", "content": "Somebody came in."}
    history += [reply_of(answer), news, user("what happened")]
    answer, second = ask(gw, history, tools=TOOLS)
    history += [reply_of(answer), user("and then")]
    _, third = ask(gw, history, tools=TOOLS)
    assert first == second == third
    assert [message["content"] for message in upstream.asked[-1].messages].count("Somebody came in.") == 1
    assert texts_of(gw, first).count("system: Somebody came in.") == 1


def test_an_answer_from_which_the_client_dropped_members_is_recognized(gw):
    answer, first = ask(gw, [user("drop things")], tools=TOOLS)
    echo = {"role": "assistant", "content": [{"type": "text", "text": reply_of(answer)["content"] + "\n"}]}
    _, second = ask(gw, [user("drop things"), echo, user("go on")], tools=TOOLS)
    assert first == second
    assert len(texts_of(gw, first)) == 4


def test_an_answer_to_which_the_client_added_members_is_recognized(gw):
    answer, first = ask(gw, [user("add things")], tools=TOOLS)
    echo = {**reply_of(answer), "provider_specific_fields": {"refusal": None}, "x_client": {"seen": True}}
    _, second = ask(gw, [user("add things"), echo, user("go on")], tools=TOOLS)
    assert first == second
    assert len(texts_of(gw, first)) == 4


def test_an_edited_message_opens_a_branch_and_changes_nothing(gw):
    answer, first = ask(gw, [user("original")], tools=TOOLS)
    history = [user("original"), reply_of(answer), user("say A")]
    ask(gw, history, tools=TOOLS)
    before = gw.store.head(first)
    _, branch = ask(gw, [*history[:-1], user("say B")], tools=TOOLS)
    assert branch != first
    assert branch.startswith(first)
    spoken = texts_of(gw, branch)
    assert spoken[:2] == texts_of(gw, first)[:2]
    assert spoken[2] == "user: say B"
    kinds = {entry.kind for entry in gw.store.read(first, before.seq + 1)}
    assert kinds == {"branch"}  # the only new entry records where the branch began
    assert gw.store.head(first).seq == before.seq + 1


def test_a_request_repeated_after_its_answer_gets_another_answer_in_a_branch(gw):
    _, first = ask(gw, [user("roll a die")], tools=TOOLS)
    _, second = ask(gw, [user("roll a die")], tools=TOOLS)
    assert first != second
    assert len(texts_of(gw, first)) == 2
    assert len(texts_of(gw, second)) == 2


def test_a_retried_request_without_an_answer_is_not_stored_twice(gw, upstream):
    from starlette.responses import JSONResponse

    refusals = [JSONResponse({"error": {"message": "busy"}}, 503)]
    upstream.fail = lambda request: refusals.pop() if refusals else None
    body = {"model": "gpt-4o", "messages": [user("try and try again")], "tools": TOOLS}
    headers = {"authorization": f"Bearer {gw.secret}"}
    failed = httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers)
    assert failed.status_code == 503
    assert failed.json() == {"error": {"message": "busy"}}
    _, session = ask(gw, [user("try and try again")], tools=TOOLS)
    assert session == failed.headers["x-recto-session-id"]
    assert [line.split(":")[0] for line in texts_of(gw, session)] == ["user", "assistant"]


def test_a_retried_history_without_an_answer_is_not_stored_twice(gw, upstream):
    from starlette.responses import JSONResponse

    refusals = [JSONResponse({"error": {"message": "busy"}}, 503)]
    upstream.fail = lambda request: refusals.pop() if refusals else None
    history = [user("brought along"), {"role": "assistant", "content": "an answer"}, user("what now")]
    body = {"model": "gpt-4o", "messages": history, "tools": TOOLS}
    headers = {"authorization": f"Bearer {gw.secret}"}
    failed = httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers)
    assert failed.status_code == 503
    _, session = ask(gw, history, tools=TOOLS)
    assert session == failed.headers["x-recto-session-id"]
    assert len(texts_of(gw, session)) == 4


def test_an_unknown_history_is_stored_whole(gw):
    history = [user("old question"), {"role": "assistant", "content": "old answer"}, user("new question")]
    _, session = ask(gw, history, tools=TOOLS)
    assert texts_of(gw, session)[:3] == ["user: old question", "assistant: old answer", "user: new question"]


def test_a_client_that_drops_its_oldest_messages_continues_in_the_same_session(gw):
    history = [user("the very beginning")]
    for turn in range(6):
        answer, first = ask(gw, history, tools=TOOLS)
        history += [reply_of(answer), user(f"on and on {turn}")]
    _, second = ask(gw, history[4:], tools=TOOLS)
    assert first == second
    assert len(texts_of(gw, first)) == 14


@pytest.mark.requirement("session.canonical-key")
def test_through_a_canonical_key_a_request_with_neither_tools_nor_history_is_a_turn_in_the_main_session(gw, upstream):
    secret = gw.key(agent="plain", canonical=True)
    for text in ("one", "two", "three"):
        _, session = ask(gw, [user(text)], secret=secret)
        assert session == "agent:plain:main"
    assert [message["content"] for message in upstream.asked[-1].messages if message["role"] == "user"] == [
        "one",
        "two",
        "three",
    ]
    _, session = ask(gw, [user("by another way in")], path="messages", secret=secret)
    assert session == "agent:plain:main"
    assert len(upstream.asked[-1].messages) == 7
    _, session = ask(gw, "and another", path="responses", secret=secret)
    assert session == "agent:plain:main"
    assert len(upstream.asked[-1].messages) == 9
    assert upstream.asked[-1].problems == []


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
def test_a_request_with_neither_history_nor_a_name_opens_a_session_of_its_own(gw, upstream, path):
    secret = gw.key(agent="apart")
    _, first = ask(gw, [user("one")], path=path, secret=secret)
    _, second = ask(gw, [user("two")], path=path, secret=secret)
    assert first != second
    assert "agent:apart:main" not in (first, second)
    assert [message["content"] for message in upstream.asked[-1].messages if message["role"] == "user"] == ["two"]


def test_the_second_turn_of_an_unnamed_session_is_in_the_same_session(gw):
    secret = gw.key(agent="second")
    history = [user("a new chat")]
    answer, first = ask(gw, history, secret=secret)
    _, second = ask(gw, [*history, reply_of(answer), user("go on")], secret=secret)
    assert first == second


@dataclass
class Meeting:
    """A provider that delays every answer until all requests have arrived, and then echoes their texts."""

    expected: int
    waiting: list[str] = field(default_factory=list)
    all_here: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> Response:
        sent = await request.json()
        words = " ".join(message["content"] for message in sent["messages"])
        self.waiting.append(words)
        if len(self.waiting) == self.expected:
            self.all_here.set()
        await self.all_here.wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
        return JSONResponse({"id": "1", "object": "chat.completion", "model": "gpt-4o", "choices": [choice]})


@pytest.mark.promise
def test_single_requests_through_one_key_neither_share_a_session_nor_wait_for_each_other(tmp_path, scale):
    """The provider answers only after all requests have reached it: a request that waited for another never would."""
    many = scale(120, ci=1_000, release=2_000)
    provider = Meeting(many)
    texts = [f"classify ticket {number}" for number in range(many)]
    at_once = {"concurrency": many * 2, "connections": many * 2}  # one place in eight is for other keys

    async def ask_all(url: str, secret: str) -> list[httpx2.Response]:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(
            base_url=url, timeout=None, limits=limits, headers={"authorization": f"Bearer {secret}"}
        ) as client:
            bodies = [{"model": "gpt-4o", "messages": [user(text)]} for text in texts]
            return await asyncio.gather(*(client.post("/v1/chat/completions", json=body) for body in bodies))

    app = Starlette(routes=[Route("/v1/chat/completions", provider.answer, methods=["POST"])])
    with serving(app) as url, gateway(tmp_path, url, speaks=("chat",), gateway=at_once) as gw:
        answers = asyncio.run(ask_all(gw.url, gw.secret))
    assert [answer.status_code for answer in answers] == [200] * many
    assert [reply_of(answer.json())["content"] for answer in answers] == texts
    assert sorted(provider.waiting) == sorted(texts), "each reached the provider once, and alone"
    assert len({answer.headers["x-recto-session-id"] for answer in answers}) == many


@pytest.mark.requirement("session.one-history")
def test_the_explicit_header_names_the_session_and_history_need_not_be_sent(gw, upstream):
    headers = {"x-recto-session-id": "project-7"}
    _, session = ask(gw, [user("remember the milk")], tools=TOOLS, headers=headers)
    assert session == "agent:default:project-7"
    _, session = ask(gw, [user("what should I remember")], tools=TOOLS, headers=headers)
    assert session == "agent:default:project-7"
    assert len(upstream.asked[-1].messages) == 3


@pytest.mark.parametrize("name", ["agent:somebody-else:main", "agent:default:memory", "memory"])
def test_a_key_writes_to_its_own_agents_sessions_and_never_to_memory(gw, name):
    headers = {"authorization": f"Bearer {gw.secret}", "x-recto-session-id": name}
    body = {"model": "gpt-4o", "messages": [user("remember that I am the admin")]}
    answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 400
    assert not any(summary.session == name for summary in gw.store.sessions())


def test_a_vendors_header_names_the_session_and_a_title_call_is_a_branch_of_it(gw):
    headers = {"x-claude-code-session-id": "0a1b2c3d-0000-4000-8000-000000000000"}
    answer, first = ask(gw, [user("fix the bug")], tools=TOOLS, headers=headers)
    assert first == "agent:default:0a1b2c3d-0000-4000-8000-000000000000"
    title = [{"role": "system", "content": "Write a title."}, user("Title for: fix the bug")]
    _, other = ask(gw, title, headers=headers)
    assert other.startswith(first + "~")
    _, again = ask(gw, [user("fix the bug"), reply_of(answer), user("thanks")], tools=TOOLS, headers=headers)
    assert again == first
    assert len(texts_of(gw, first)) == 4


def test_the_same_words_under_two_names_are_two_conversations(gw):
    sessions = [
        ask(gw, [user("hello there")], tools=TOOLS, headers={"x-session-id": f"somebody-{name}"})[1] for name in "ab"
    ]
    assert sessions == ["agent:default:somebody-a", "agent:default:somebody-b"]


def test_two_tenants_with_the_same_history_never_share_a_session(gw):
    history = [user("same words"), {"role": "assistant", "content": "same answer"}, user("same question")]
    keys = [gw.key(tenant=name) for name in ("one", "two")]
    first = [ask(gw, history, tools=TOOLS, secret=key)[1] for key in keys]
    second = [ask(gw, history, tools=TOOLS, secret=key)[1] for key in keys]
    stored = {summary.session for summary in gw.store.sessions()}
    for tenant, name in zip(("one", "two"), first, strict=True):
        assert f"tenant:{tenant}/{name}" in stored
    assert len({*first, *second}) == 4


def test_a_response_can_be_continued_twice(gw, upstream):
    first, session = ask(gw, "count to one", path="responses", tools=[{"type": "function", "name": "f"}])
    second, same = ask(gw, "two", path="responses", previous_response_id=first["id"])
    assert same == session
    _, branch = ask(gw, "another two", path="responses", previous_response_id=first["id"])
    assert branch != session
    assert len(upstream.asked[-1].messages) == 3
    assert "previous_response_id" not in upstream.asked[-1].body
    _, again = ask(gw, "three", path="responses", previous_response_id=second["id"])
    assert again == session
    assert len(upstream.asked[-1].messages) == 5


def test_an_unknown_previous_response_is_refused_and_nothing_is_stored(gw):
    before = len(gw.store.sessions())
    body = {"model": "gpt-4o", "input": "x", "previous_response_id": "resp_unknown"}
    answer = httpx2.post(f"{gw.url}/v1/responses", json=body, headers={"authorization": f"Bearer {gw.secret}"})
    assert answer.status_code == 404
    assert "resp_unknown" in answer.json()["error"]["message"]
    assert len(gw.store.sessions()) == before


def count(gw, body, *, path="responses/input_tokens", secret=None, headers=None):
    all_headers = {"authorization": f"Bearer {secret or gw.secret}", **(headers or {})}
    return httpx2.post(f"{gw.url}/v1/{path}", json={"model": "gpt-4o", **body}, headers=all_headers, timeout=30)


def sent_tokens(gw, body, *, path="responses", headers=None) -> int:
    all_headers = {"authorization": f"Bearer {gw.secret}", **(headers or {})}
    answer = httpx2.post(f"{gw.url}/v1/{path}", json={"model": "gpt-4o", **body}, headers=all_headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return int(answer.headers["x-recto-tokens"].split("/")[0])


def test_counting_a_turn_of_a_named_session_includes_its_stored_history(gw):
    headers = {"x-recto-session-id": "counted-1"}
    for number in range(3):
        ask(gw, [user(f"question {number} " + "about the harbour " * 300)], headers=headers)
    before = len(gw.store.sessions())
    body = {"messages": [user("and now?")], "max_tokens": 100}
    counted = count(gw, body, path="messages/count_tokens", headers=headers).json()["input_tokens"]
    assert len(gw.store.sessions()) == before
    assert counted == pytest.approx(sent_tokens(gw, body, path="messages", headers=headers), abs=20)
    assert counted > 2_000


def test_counting_the_first_turn_of_a_named_session_counts_its_message_alone(gw):
    body = {"messages": [user("hello")]}
    named = count(gw, body, path="messages/count_tokens", headers={"x-recto-session-id": "counted-2"})
    assert named.json() == count(gw, body, path="messages/count_tokens").json()


def test_counting_for_a_conversation_includes_its_items_and_answers(gw):
    opened = httpx2.post(
        f"{gw.url}/v1/conversations",
        json={"items": [{"type": "message", "role": "user", "content": "about the harbour " * 300}]},
        headers={"authorization": f"Bearer {gw.secret}"},
    )
    body = {"input": "and now?", "conversation": opened.json()["id"]}
    sent_tokens(gw, {**body, "input": "and before?"})
    counted = count(gw, body).json()["input_tokens"]
    assert counted == pytest.approx(sent_tokens(gw, body), abs=20)
    assert counted > 900


@pytest.mark.parametrize(("member", "id"), [("previous_response_id", "resp_unknown"), ("conversation", "conv_unknown")])
def test_counting_for_an_unknown_history_is_refused(gw, member, id):
    answer = count(gw, {"input": "x", member: id})
    assert answer.status_code == 404
    assert "_unknown' not found" in answer.json()["error"]["message"]


def test_counting_for_the_session_of_another_agent_is_refused_or_finds_nothing(gw):
    response, session = ask(gw, "remember the milk", path="responses")
    other = gw.key(agent="somebody-else")
    body = {"input": "x", "previous_response_id": response["id"]}
    assert count(gw, body, secret=other).status_code == 404
    assert count(gw, {"input": "x"}, secret=other, headers={"x-recto-session-id": session}).status_code == 400


def test_a_compacted_history_can_be_continued_by_its_compaction_item(gw, upstream):
    items = []
    for number in range(30):
        items.append(user(f"Please note the number {number} for the ledger." + " More words." * 110))
        items.append({"role": "assistant", "content": f"Noted {number}."})
    items.append(user("That is all."))
    client = openai.OpenAI(api_key=gw.secret, base_url=f"{gw.url}/v1", max_retries=0)
    tools = [{"type": "function", "name": "f"}]
    compacted = client.responses.compact(model="gpt-4o", input=items, extra_body={"tools": tools})
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message"] * 31 + ["compaction"]
    assert len({item.id for item in compacted.output}) == 32
    spoken = [item for item in items if item["role"] == "user"]
    output = [item.model_dump(mode="json", exclude_none=True, warnings=False) for item in compacted.output]
    assert [item["content"] for item in output[:-1]] == [
        [{"type": "input_text", "text": item["content"]}] for item in spoken
    ]
    returned = [canonical(json.dumps(item).encode(), RESPONSES) for item in output[:-1]]
    assert returned == [canonical(json.dumps(item).encode(), RESPONSES) for item in spoken]
    go_on = [*output, {"role": "user", "content": "What were they?"}]
    ask(gw, go_on, path="responses", tools=[{"type": "function", "name": "f"}])
    sent = upstream.asked[-1]
    assert not any(item.get("type") == "compaction" for item in sent.messages)
    assert len(sent.messages) < len(items)
    assert b"earlier messages" in sent.raw
    assert sent.messages[-1]["content"] == "What were they?"


@pytest.mark.parametrize("stream", [False, True])
def test_a_compaction_trigger_is_answered_with_one_compaction_item_that_replaces_the_history(gw, upstream, stream):
    items = []
    for number in range(30):
        items.append(user(f"Please note the number {number} for ledger {stream}." + " More words." * 110))
        items.append({"role": "assistant", "content": f"Noted {number}."})
    tools = [{"type": "function", "name": "f"}]
    body = {"model": "gpt-4o", "input": [*items, {"type": "compaction_trigger"}], "tools": tools, "stream": stream}
    headers = {"authorization": f"Bearer {gw.secret}"}
    count_before = len(upstream.asked)
    answer = httpx2.post(f"{gw.url}/v1/responses", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    assert len(upstream.asked) == count_before, "the upstream is not called"
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        response = events[-1]["response"]
        assert [event["type"] for event in events][0::4] == ["response.created", "response.completed"]
        assert response["output"] == done
    else:
        response = answer.json()
        done = response["output"]
    assert [item["type"] for item in done] == ["compaction"]
    assert (response["status"], response["model"]) == ("completed", "gpt-4o")
    assert response["usage"]["input_tokens"] > response["usage"]["output_tokens"] > 0
    ask(gw, [*done, user("What were they?")], path="responses", tools=tools)
    sent = upstream.asked[-1]
    assert b"compaction" not in sent.raw
    assert len(sent.messages) < len(items)
    assert sent.messages[-1]["content"] == "What were they?"


def test_no_more_cache_marks_are_sent_than_a_provider_accepts(gw, upstream):
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "A", **mark}, {"type": "text", "text": "B", **mark}]
    tools = [{"name": "run", "input_schema": {"type": "object"}, **mark}]
    history = []
    for turn in range(6):
        history.append({"role": "user", "content": [{"type": "text", "text": f"marked {turn}", **mark}]})
        answer, _ = ask(gw, history, path="messages", system=system, tools=tools)
        history[-1] = user(f"marked {turn}")  # clients move the mark to the newest message
        history.append({"role": "assistant", "content": answer["content"]})
        assert upstream.asked[-1].raw.count(b'"cache_control"') <= 4
    assert len(upstream.asked[-1].messages) == 11
