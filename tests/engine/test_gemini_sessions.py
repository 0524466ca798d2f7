"""Sessions in the Gemini format: recognised, bounded, valid, and returned unchanged."""

from __future__ import annotations

import json
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recto
from recto.errors import WindowOverflow
from recto.formats import detect, problems

GEMINI, MODEL = "google.gemini", "gemini-2.5-pro"


def user(text):
    return {"role": "user", "parts": [{"text": text}]}


def loop(steps, ids=True, start=0):
    """A task, and steps with two calls each and their results."""
    numbers = count(start)
    yield user("Read all of the files and keep every date in ISO form.")
    for _ in range(steps):
        calls = [({"id": f"c{next(numbers)}"} if ids else {}) | {"name": "read_file"} for _ in range(2)]
        parts = [{"functionCall": {**call, "args": {"path": f"{next(numbers)}.txt"}}} for call in calls]
        parts[0]["thoughtSignature"] = f"c2lnbmVk{next(numbers)}"
        yield {"role": "model", "parts": [{"text": "Next.", "thought": True}, *parts]}
        output = {"output": f"line {next(numbers)} of the file " * 60}
        yield {"role": "user", "parts": [{"functionResponse": {**call, "response": output}} for call in calls]}


def judged(messages):
    return problems([json.dumps(message).encode() for message in messages], GEMINI)


@pytest.mark.parametrize("role", ["user", "tool", "function"])
def test_a_response_of_every_role_that_the_sdk_writes_is_the_result_of_its_call(role):
    response = {"functionResponse": {"name": "weather", "response": {"output": "sunny"}}}
    contents = [
        user("What is the weather?"),
        {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]},
        {"role": role, "parts": [response]},
    ]
    with recto.open("memory:", model=MODEL) as session:
        assert {session.append(content).wire for content in contents} == {GEMINI}
        assert session.prompt().messages[-1]["parts"] == [response]
    assert list(recto.fit(contents, max_tokens=1_000, model=MODEL)) == contents
    assert judged(contents) == []


@pytest.mark.parametrize("ids", [True, False])
def test_a_session_stays_bounded_and_valid_and_keeps_every_content(ids):
    contents = list(loop(40, ids))
    with recto.open("memory:", model=MODEL, models={MODEL: {"window": 8_000, "max_output": 500}}) as session:
        for raw in contents:
            session.append(json.dumps(raw).encode())
            prompt = session.prompt()
            assert prompt.tokens <= 7_500
            assert judged(prompt.messages) == []
        prompt = session.prompt()
        assert prompt.built.wire == GEMINI
        assert prompt.messages[0] == contents[0]
        assert prompt.messages[-1] == contents[-1]
        assert len(prompt.messages) < len(contents)
        assert any("not shown" in str(message) or "evicted" in str(message) for message in prompt.messages)
        signed = [message for message in prompt.messages if message["role"] == "model"]
        assert signed
        assert all(message in contents for message in signed)  # a signature belongs to the part it came with
        stored = [json.loads(entry.content) for entry in session.read() if entry.kind == "message"]
        assert stored == contents


@pytest.mark.parametrize("ids", [True, False])
def test_a_shortened_result_names_the_call_that_it_answers(ids):
    with recto.open("memory:", model=MODEL, models={MODEL: {"window": 8_000, "max_output": 500}}) as session:
        session.append_all(loop(14, ids))
        messages = session.prompt().messages
    shortened = 0
    for message, behind in pairwise(messages):
        called = [part["functionCall"]["args"]["path"] for part in message["parts"] if "functionCall" in part]
        responses = [part["functionResponse"] for part in behind["parts"] if "functionResponse" in part]
        results = [response["response"]["output"] for response in responses]
        if called and "recto://" in results[0]:
            assert results[0].startswith(f"[read_file {called[0]}")
            shortened += 1
    assert shortened > 3


def test_plain_messages_are_sent_as_contents_and_system_text_apart():
    with recto.open("memory:", model=MODEL) as session:
        session.append({"role": "system", "content": "Be brief."})
        session.append({"role": "user", "content": "Hello?"})
        session.append({"role": "assistant", "content": "Yes?"})
        session.append(user("Who am I?"))
        prompt = session.prompt()
        assert prompt.messages == [
            user("Hello?"),
            {"role": "model", "parts": [{"text": "Yes?"}]},
            user("Who am I?"),
        ]
        assert prompt.system == "Be brief."


def test_fit_keeps_calls_with_their_results():
    contents = list(loop(60, ids=False))
    fitted = recto.fit(contents, max_tokens=6_000, model=MODEL)
    assert judged(fitted) == []
    assert contents[0] in fitted
    assert fitted[-1] is contents[-1]
    assert len(fitted) < len(contents)
    assert {detect(json.dumps(message).encode()) for message in fitted} == {GEMINI}


def test_images_are_counted_and_old_ones_are_replaced_beyond_the_provider_limit():
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    image = {"inlineData": {"mimeType": "image/png", "data": pixel}}
    contents = []
    for number in range(11):
        contents += [
            {"role": "user", "parts": [image] * 300},
            {"role": "model", "parts": [{"text": f"Seen {number}."}]},
        ]
    with recto.open("memory:", model=MODEL) as session:
        assert session.count(contents[0]) == 300 * 258 + session.count({"role": "user", "parts": []})
        session.append_all([*contents, user("And?")])
        prompt = session.prompt()
        shown = [part for message in prompt.messages for part in message["parts"] if "inlineData" in part]
        assert len(shown) <= 3_000
        assert judged(prompt.messages) == []


@st.composite
def tool_loops(draw):
    """Steps of parallel calls, with ids or without, and results without ids, in one content or in several."""
    contents, numbers = [user("Read all of the files.")], count()
    for _ in range(draw(st.integers(1, 8))):
        has_ids = draw(st.booleans())
        names = draw(st.lists(st.sampled_from(["read", "list"]), min_size=1, max_size=4))
        calls = [({"id": f"c{next(numbers)}"} if has_ids else {}) | {"name": name, "args": {}} for name in names]
        contents.append({"role": "model", "parts": [{"functionCall": call} for call in calls]})
        order = sorted(range(len(names)), key=lambda place: names[place]) if draw(st.booleans()) else range(len(names))
        results = [
            {"name": names[place], "response": {"output": f"result {len(contents)}.{place}. " + "words " * 40}}
            for place in order
        ]
        cut = draw(st.integers(0, len(results) - 1))
        contents += [
            {"role": "user", "parts": [{"functionResponse": result} for result in part]}
            for part in (results[:cut], results[cut:])
            if part
        ]
        if draw(st.booleans()):
            contents += [
                {"role": "model", "parts": [{"text": f"Done {len(contents)}."}]},
                user(f"Go on {len(contents)}."),
            ]
    return contents


def paired(messages):
    """Maps each result to its call as the provider does: by id, else by name and order."""
    found, waiting = {}, []
    for message in messages:
        if called := [part["functionCall"] for part in message["parts"] if "functionCall" in part]:
            waiting = [(call["name"], call.get("id")) for call in called]
        for result in (part["functionResponse"] for part in message["parts"] if "functionResponse" in part):
            fits = [call for call in waiting if call[1] and call[1] == result.get("id")]
            fits = fits or [call for call in waiting if call[0] == result["name"]]
            assert fits, f"a result without its call: {result}"
            waiting.remove(fits[0])
            found[result["response"]["output"]] = fits[0][1]
    return found


@settings(max_examples=60, deadline=None)
@given(tool_loops(), st.integers(300, 2_500))
def test_results_without_ids_stay_with_their_calls(said, tokens):
    expected = paired(said)
    try:
        kept = recto.fit(said, max_tokens=tokens, model=MODEL, keep_turns=1)
    except WindowOverflow:
        kept = []
    assert not kept or judged(kept) == []
    assert all(one in said for one in kept if any("functionResponse" in part for part in one["parts"]))
    with recto.open("memory:", model=MODEL, models={MODEL: {"window": 3_000, "max_output": 200}}) as session:
        for one in said:
            session.append(one)
        prompt = session.prompt()
        assert judged(prompt.messages) == []
        shown = {output: call for output, call in paired(prompt.messages).items() if output in expected}
        assert shown.items() <= expected.items(), "a result was given to another call"
        results = [
            part["functionResponse"] for one in prompt.messages for part in one["parts"] if "functionResponse" in part
        ]
        assert not any("interrupted" in str(result["response"]) for result in results), "a result was lost"
