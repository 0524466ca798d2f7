"""Gemini's contents and URLs: names in either case, calls without ids, and history as clients resend it."""

from __future__ import annotations

import json

import pytest

from recto.formats import address_at, canonical, detect, problems, read
from recto.formats.gemini import GEMINI, message, request
from recto.formats.json_spans import parse
from recto.formats.message import media_in, with_placeholders


def raw(fields):
    return json.dumps(fields).encode()


def call(name, id="", **args):
    return {"functionCall": {**({"id": id} if id else {}), "name": name, "args": args}}


def result(name, text, id=""):
    return {"functionResponse": {**({"id": id} if id else {}), "name": name, "response": {"output": text}}}


QUESTION = {"parts": [{"text": "Read."}]}
CALLS = {"role": "model", "parts": [call("read", path="a"), call("read", path="b"), call("list")]}
RESULTS = {"role": "user", "parts": [result("read", "A"), result("read", "B"), result("list", "C")]}


def test_a_content_is_detected_and_read_in_either_case():
    content = {
        "role": "user",
        "parts": [
            {"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}},
            {"function_response": {"name": "read", "response": {"result": "words"}}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "files/1"}},
        ],
    }
    assert detect(raw(content)) == GEMINI.name
    found = read(raw(content), GEMINI.name)
    assert found.role == "tool"
    assert [part.kind for part in found.parts] == ["image", "result", "media"]
    assert (found.results[0].text, found.results[0].call_id) == ("words", "read#0")
    reply = {
        "role": "model",
        "parts": [{"text": "hm", "thought": True}, {"text": "Yes.", "thoughtSignature": "c" * 90}],
    }
    parts = read(raw(reply), GEMINI.name).parts
    assert [(part.kind, part.weight) for part in parts] == [("thinking", 0), ("text", 90)]


@pytest.mark.parametrize(
    ("response", "failed"),
    [({"output": "ok"}, False), ({"error": "no such file"}, True), ({"output": "1 row", "error": "none"}, False)],
)
def test_a_response_with_its_details_in_error_is_marked_as_failed(response, failed):
    content = {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": response}}]}
    assert read(raw(content), GEMINI.name).results[0].failed is failed


def test_calls_without_ids_are_paired_by_name_and_place():
    assert problems([raw(QUESTION), raw(CALLS), raw(RESULTS)], GEMINI.name) == []
    short = {**RESULTS, "parts": RESULTS["parts"][1:]}
    assert "call 'read#1' has no result" in "\n".join(problems([raw(QUESTION), raw(CALLS), raw(short)], GEMINI.name))
    made = [{"role": "user", "parts": [result("read", "A", f"read-17000000000{n}-x")]} for n in range(2)]
    assert read(raw(made[0]), GEMINI.name).results[0].call_id == "read#0"
    changed = json.loads(message.with_results(raw(RESULTS), {"read#1": "short"}))
    assert [part["functionResponse"]["response"]["output"] for part in changed["parts"]] == ["A", "short", "C"]
    answers = json.loads(message.only_answers(raw(RESULTS), {"read#1", "list#0"}))
    assert answers["parts"] == RESULTS["parts"][1:]


@pytest.mark.parametrize("own", ["", "other"])
def test_results_get_the_ids_of_their_calls(own):
    calls = {"role": "model", "parts": [call("read", "c1"), call("list", "c2"), call("read", "c3")]}
    results = {"role": "user", "parts": [result("read", "A", own), result("read", "B"), result("list", "C", "c2")]}
    _, _, linked = message.joined_history([raw(QUESTION), raw(calls), raw(results)])
    assert [part["functionResponse"]["id"] for part in json.loads(linked)["parts"]] == ["c1", "c3", "c2"]
    assert problems([raw(QUESTION), raw(calls), linked], GEMINI.name) == []
    fine = [raw(QUESTION), raw(CALLS), raw(RESULTS)]
    assert message.joined_history(fine) is fine


def test_chunks_sent_back_by_a_client_are_joined_into_the_streamed_content():
    signed = {**call("read", "c1"), "thoughtSignature": "c2ln"}
    whole = {"role": "model", "parts": [{"text": "hm, hm", "thought": True}, {"text": "Let me see."}, signed]}
    pieces = [{"text": "hm, ", "thought": True}, {"text": "hm", "thought": True}, {"text": "Let m"}, {"text": "e see."}]
    chunks = [raw({"role": "model", "parts": [part]}) for part in [*pieces, signed]]
    question, joined = message.joined_history([raw(QUESTION), *chunks])
    assert question == raw(QUESTION)
    assert json.loads(joined) == whole
    # Thoughts, signatures and chunk boundaries do not change the canonical form.
    bare = {"role": "model", "parts": [{"text": "Let "}, {"text": "me see."}, call("read", "c1")]}
    assert canonical(raw(bare), GEMINI.name) == canonical(joined, GEMINI.name)
    assert canonical(raw({**QUESTION, "role": "user"}), GEMINI.name) == canonical(raw(QUESTION), GEMINI.name)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"role": "assistant", "parts": [{"text": "x"}]}, "no role 'assistant'"),
        ({"role": "user"}, "no list of parts"),
        ({"role": "user", "parts": []}, "no list of parts"),
        ({"role": "user", "parts": ["x"]}, "no list of parts"),
        ({"role": "user", "parts": [call("read")]}, "only an assistant can call"),
        ({"role": "model", "parts": [result("read", "x")]}, "only a user or a tool"),
        ({"role": "model", "parts": [{"functionCall": {"args": {}}}]}, "an id that is no text"),
        ({"role": "model", "parts": [call("a", "c"), call("b", "c")]}, "two of its calls have one id"),
        ({"role": "model", "parts": [{"functionCall": 3}]}, "no object"),
    ],
)
def test_contents_that_gemini_refuses_are_named(content, why):
    assert why in message.defect(content)


def test_media_become_text_parts():
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    content = raw({"role": "user", "parts": [image, {"text": "Look."}, {"file_data": {"mime_type": "audio/mp3"}}]})
    assert [item.kind for item in media_in(content)] == ["image", "audio"]
    assert json.loads(with_placeholders(content, {0: "[an image]"}))["parts"][:2] == [
        {"text": "[an image]"},
        {"text": "Look."},
    ]


@pytest.mark.parametrize(
    "body",
    [
        '{"contents": []}',
        "{}",
        ' {\n "contents" : [ {"role":"model","parts":[{"text":"\\"stream\\": 1"}]} ] , "a": 1 }',
        '{"model": "models/other", "contents": [], "stream": false}',
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_body_round_trips_through_its_address(body, stream):
    method = "streamGenerateContent" if stream else "generateContent"
    _, address = address_at(f"/v1beta/models/gemini-3-pro:{method}", "alt=sse&key=rk-1&x=%C3%A4")
    assert address.query == "alt=sse&key=rk-1&x=%C3%A4"
    enclosed = request.enclose(address, body.encode())
    fields = parse(enclosed.decode())
    assert (fields["model"], fields["stream"]) == ("gemini-3-pro", stream)
    path, query, out = request.upstream_address(enclosed, address.query)
    assert path == f"/v1beta/models/gemini-3-pro:{method}"
    assert query == ("x=%C3%A4&alt=sse" if stream else "x=%C3%A4")
    expected = {key: value for key, value in json.loads(body).items() if key not in ("model", "stream")}
    assert json.loads(out) == expected
    if "model" not in json.loads(body):
        assert out == body.lstrip().encode()


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff{", b'{"model":', b'{"stream": 1, ]', b"null"])
def test_an_invalid_body_is_left_to_the_parser(body):
    _, address = address_at("/v1/models/m:generateContent", "")
    assert isinstance(request.enclose(address, body), bytes)
    assert address_at("/v1/models", "") is None
    assert address_at("/v1/chat/completions", "") is None
