"""Models behind endpoints, called over real HTTP: every response becomes an answer or a `ModelFailed`."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from serving import (
    SLOW,
    Answer,
    Handler,
    Server,
    all_answers_are_through,
    cut,
    free_address,
    never,
    raw,
    serving,
    status,
)

from recto.context.compaction.protocols import ModelReply, ModelRequest
from recto.errors import ModelFailed, SettingsError
from recto.models.chat import ChatChoice, chat_model_for, http
from recto.models.chat.http import HostedModel
from recto.testing import ScriptedModel

KEY = "sk-very-secret-0123456789"
ASK = ModelRequest(system="Be brief.", text="What is 6 x 7?", max_tokens=50, seconds=10)
BOTH = pytest.mark.parametrize("use", ["openai", "anthropic"])


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    with serving(monkeypatch) as server:
        yield server


def make(server: Server, use: str, **more: object) -> HostedModel:
    model = chat_model_for(ChatChoice(**({"use": use, "url": server.url, "model": "m", "key": KEY} | more)))
    assert isinstance(model, HostedModel)
    model.endpoint.wait = lambda seconds: None
    return model


def says(use: str, content: object = "42", ending: object = None, **more: object) -> Answer:
    """Returns a valid response of a provider."""
    if use == "openai":
        choice = {"index": 0, "finish_reason": ending or "stop", "message": {"role": "assistant", "content": content}}
        usage = {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23}
        body = {"object": "chat.completion", "choices": [choice], "usage": usage}
    else:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        usage = {"input_tokens": 5, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 8, "output_tokens": 3}
        body = {"type": "message", "content": parts, "stop_reason": ending or "end_turn", "usage": usage}
    return raw(json.dumps(body | more).encode())


def refuses(code: int, message: str) -> Answer:
    return raw(json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode(), code)


def failure(model: HostedModel, request: ModelRequest = ASK) -> str:
    with pytest.raises(ModelFailed) as failed:
        model.complete(request)
    return failed.value.detail


@BOTH
def test_an_answer_is_read_with_its_counts_and_its_ending(server, use):
    server.answers = [says(use)]
    model = make(server, use, context=4096)
    assert model.complete(ASK) == ModelReply(text="42", ending="stop", prompt_tokens=20, answer_tokens=3)
    assert (model.name, model.window) == ("m", 4096)
    model.close()
    assert model.complete(ASK).text == "42"
    model.close()


def test_openai_gets_a_valid_request(server):
    server.answers = [says("openai")]
    model = make(server, "openai")
    model.complete(ASK)
    model.complete(replace(ASK, system=""))
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 6 x 7?"}
    usual = {"model": "m", "max_tokens": 50, "temperature": 0, "stream": False}
    assert server.asked == [{**usual, "messages": [system, user]}, {**usual, "messages": [user]}]
    assert server.paths[0] == "/v1/chat/completions"
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    model.close()


def test_anthropic_gets_a_valid_request(server):
    server.answers = [says("anthropic")]
    model = make(server, "anthropic")
    model.complete(ASK)
    model.complete(replace(ASK, system=""))
    usual = {"model": "m", "max_tokens": 50, "temperature": 0, "messages": [{"role": "user", "content": ASK.text}]}
    assert server.asked == [{**usual, "system": "Be brief."}, usual]
    assert server.paths[0] == "/v1/v1/messages"
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in headers
    model.close()


def test_anthropic_has_its_own_default_address():
    model = chat_model_for(ChatChoice(use="anthropic", model="m", key=KEY))
    assert isinstance(model, HostedModel)
    assert model.endpoint.url == "https://api.anthropic.com"


@BOTH
def test_any_text_can_be_sent(server, use):
    server.answers = [says(use)]
    model = make(server, use)
    model.complete(replace(ASK, system="\ud800", text="a\ud800b\x00"))
    assert server.asked[0]["messages"][-1]["content"] == "a�b\x00"
    model.close()


@pytest.mark.parametrize(
    ("use", "content", "ending", "expected"),
    [
        ("openai", "  42\n", "length", ("42", "length")),
        ("openai", "42", "tool_calls", ("42", "unknown")),
        ("openai", "42", ["stop"], ("42", "unknown")),
        ("openai", [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}], "stop", ("42", "stop")),
        ("openai", "<think>\nsix by seven\n</think>\n\n42", "stop", ("42", "stop")),
        ("openai", " <think>a</think><think>b</think> 42 <think>c</think>", "stop", ("42 <think>c</think>", "stop")),
        ("openai", "4\ud8002", "stop", ("4�2", "stop")),
        ("anthropic", "42", "max_tokens", ("42", "length")),
        ("anthropic", "42", "model_context_window_exceeded", ("42", "length")),
        ("anthropic", "42", "stop_sequence", ("42", "stop")),
        ("anthropic", "42", "pause_turn", ("42", "unknown")),
        (
            "anthropic",
            [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "4"}, {"type": "text", "text": "2"}],
            "end_turn",
            ("42", "stop"),
        ),
    ],
)
def test_every_form_of_a_valid_answer_is_read(server, use, content, ending, expected):
    server.answers = [says(use, content, ending)]
    model = make(server, use)
    reply = model.complete(ASK)
    assert (reply.text, reply.ending) == expected
    model.close()


@pytest.mark.parametrize(
    ("use", "answer", "detail"),
    [
        ("openai", says("openai", None), "no text in the answer"),
        ("openai", says("openai", ""), "its answer is empty"),
        ("openai", says("openai", " \n"), "its answer is empty"),
        ("openai", says("openai", "", "length"), "ran out of room"),
        ("openai", says("openai", "<think>and then", "length"), "ran out of room"),
        ("openai", says("openai", "<think>all of it</think>"), "its answer is empty"),
        ("openai", says("openai", []), "its answer is empty"),
        ("openai", says("openai", [{"type": "text", "text": 42}, "42"]), "its answer is empty"),
        ("openai", says("openai", 42), "no text in the answer"),
        ("openai", says("openai", "42", "content_filter"), "it would not answer"),
        ("openai", says("openai", choices=[{"message": {"content": None, "refusal": "No."}}]), "it would not answer"),
        ("openai", says("openai", choices=[]), "no message under 'choices'"),
        ("openai", says("openai", choices={}), "no message under 'choices'"),
        ("openai", says("openai", choices=["42"]), "no message under 'choices'"),
        ("openai", says("openai", choices=[{"message": "42"}]), "no message under 'choices'"),
        ("openai", raw(b'{"error": {"message": "no credit"}}'), "no message under 'choices' (no credit)"),
        ("anthropic", says("anthropic", "I cannot", "refusal"), "it would not answer"),
        ("anthropic", says("anthropic", []), "its answer is empty"),
        ("anthropic", says("anthropic", None), "no text in the answer"),
        ("anthropic", says("anthropic", [{"type": "tool_use", "name": "x"}]), "its answer is empty"),
        ("anthropic", raw(b'{"type": "error", "error": {"message": "no credit"}}'), "no 'content' (no credit)"),
    ],
)
def test_a_response_without_an_answer_is_refused_with_a_plain_message(server, use, answer, detail):
    server.answers = [answer]
    model = make(server, use)
    assert detail in failure(model)
    assert len(server.asked) == 1
    model.close()


@BOTH
def test_a_response_that_is_not_json_is_refused(server, use):
    model = make(server, use)
    for content in (b"<html><body>Welcome</body></html>", b"", b"[" * 200_000, b"\xff\xfe{", b"9" * 5000):
        server.answers = [raw(content)]
        assert failure(model) == "the answer is not JSON"
    model.close()


@BOTH
def test_json_of_another_shape_is_refused(server, use):
    model = make(server, use)
    for content in (b"[]", b"null", b"{}", b'"text"', b"1e999"):
        server.answers = [raw(content)]
        assert "the answer has no" in failure(model)
    model.close()


@BOTH
def test_invalid_token_counts_are_ignored(server, use):
    model = make(server, use)
    for usage in (None, [], "many", {"prompt_tokens": -1, "input_tokens": True, "output_tokens": 1e9}):
        server.answers = [says(use, usage=usage)]
        assert model.complete(ASK) == ModelReply(text="42", ending="stop")
    model.close()


@BOTH
def test_an_endless_response_is_cut_off(server, use, monkeypatch):
    monkeypatch.setattr(http, "ANSWER_MOST", 100_000)
    server.answers = [raw(b" " * 1_000_000)]
    model = make(server, use)
    assert "longer than 100,000 bytes" in failure(model)
    model.close()


@BOTH
def test_many_thoughts_are_skipped_in_linear_time(server, use):
    server.answers = [says(use, "<think></think>" * 300_000 + "42")]
    model = make(server, use)
    assert model.complete(ASK).text == "42"
    model.close()


@BOTH
def test_retryable_errors_are_retried(server, use):
    model = make(server, use)
    for code in (408, 429, 500, 503, 529):
        server.asked.clear()
        server.answers = [status(code, Retry_After="1"), says(use)]
        assert model.complete(ASK).text == "42"
        server.answers = [status(code)]
        assert failure(model) == f"it answered {code}"
        assert len(server.asked) == 2 + 3
    model.close()


@BOTH
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refuses(401, f"Incorrect key {KEY}"), "401: the key is missing"),
        (refuses(403, f"Not for {KEY}"), "403: the key is missing"),
        (refuses(404, f"no model for {KEY}\x1b[2J"), "it answered 404 (no model for … "),
        (refuses(400, "prompt is too long: 9 tokens > 8 maximum"), "prompt is too long: 9 tokens > 8 maximum"),
        (raw(b"<html>Not here</html>", 404), "it answered 404"),
        (status(302, Location="http://127.0.0.1:1/"), "a redirect, which is not followed"),
    ],
)
def test_a_refusal_is_reported_without_the_key_and_not_retried(server, use, answer, expected):
    server.answers = [answer]
    model = make(server, use)
    detail = failure(model)
    assert expected in detail
    assert KEY not in detail
    assert "\x1b" not in detail
    assert len(server.asked) == 1
    model.close()


@BOTH
def test_a_dropped_connection_is_retried(server, use):
    server.answers = [cut, says(use)]
    model = make(server, use)
    assert model.complete(ASK).text == "42"
    server.answers = [cut]
    assert "the connection failed" in failure(model)
    model.close()


def test_an_unreachable_address_is_explained():
    model = chat_model_for(ChatChoice(use="openai", url=free_address(), model="m", seconds=0.2))
    assert isinstance(model, HostedModel)
    assert "the connection failed (ConnectError)" in failure(model)
    model.close()


@BOTH
@pytest.mark.parametrize("slow", SLOW)
def test_a_call_waits_no_longer_than_the_request_or_the_setting_allows(server, use, slow):
    server.answers = [slow, slow, says(use)]
    model = make(server, use)
    assert failure(model, replace(ASK, seconds=0.2)) == "no answer within 0.2 s"
    model.seconds = 0.3
    assert failure(model) == "no answer within 0.3 s"
    server.over.set()
    model.seconds = 10
    assert model.complete(ASK).text == "42"
    model.close()
    all_answers_are_through()


@BOTH
def test_the_time_limit_covers_both_attempts_and_the_error_states_it(server, use):
    server.answers = [refuses(400, "temperature is not supported"), never]
    model = make(server, use)
    model.seconds = 0.3
    assert failure(model) == "no answer within 0.3 s"
    server.over.set()
    model.close()
    all_answers_are_through()


@BOTH
@pytest.mark.parametrize("slow", SLOW)
def test_a_cancelled_call_stops_waiting_for_its_answer(server, use, slow):
    cancelled = threading.Event()

    def late(handler: Handler, body: dict) -> None:
        cancelled.set()
        slow(handler, body)

    server.answers = [late]
    model = make(server, use, seconds=250)
    with pytest.raises(ModelFailed, match="no longer wanted"):
        model.complete(replace(ASK, seconds=250), cancelled)
    server.over.set()
    model.close()
    all_answers_are_through()


@BOTH
def test_a_cancelled_request_is_not_sent(server, use):
    cancelled = threading.Event()
    cancelled.set()
    model = make(server, use)
    with pytest.raises(ModelFailed, match="no longer wanted"):
        model.complete(ASK, cancelled)
    assert server.asked == []


def test_cancelling_ends_the_wait_before_a_retry(server):
    cancelled, waits = threading.Event(), []
    model = make(server, "openai")

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            cancelled.set()

    model.endpoint.wait = wait
    server.answers = [status(429, Retry_After="5"), says("openai")]
    with pytest.raises(ModelFailed, match="no longer wanted"):
        model.complete(ASK, cancelled)
    assert len(server.asked) == 1
    assert len(waits) == 3
    assert max(waits) <= 0.05
    model.close()


def test_a_refused_limit_parameter_is_renamed_for_all_later_requests(server):
    no = refuses(400, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.")
    server.answers = [no, says("openai")]
    model = make(server, "openai")
    assert model.complete(ASK).text == "42"
    assert model.complete(ASK).text == "42"
    limits = [{name: body[name] for name in body if name.startswith("max_")} for body in server.asked]
    assert limits == [{"max_tokens": 50}, {"max_completion_tokens": 50}, {"max_completion_tokens": 50}]
    model.close()


@BOTH
def test_a_refused_temperature_is_left_out(server, use):
    server.answers = [refuses(400, "'temperature' does not support 0 with this model."), says(use)]
    model = make(server, use)
    assert model.complete(ASK).text == "42"
    assert ["temperature" in body for body in server.asked] == [True, False]
    model.close()


def test_a_limit_refused_under_both_names_is_reported_and_not_remembered(server):
    server.answers = [refuses(400, "max_tokens is too large: 50")]
    model = make(server, "openai")
    assert "max_tokens is too large" in failure(model)
    server.answers = [says("openai")]
    model.complete(ASK)
    assert ["max_tokens" in body for body in server.asked] == [True, False, True]
    model.close()


@BOTH
def test_the_key_is_in_no_log_and_no_repr_of_the_model(server, use, caplog):
    caplog.set_level(logging.DEBUG)
    server.answers = [says(use), status(500)]
    model = make(server, use)
    model.complete(ASK)
    failure(model)
    assert caplog.text
    assert KEY not in caplog.text + repr(model) + repr(ChatChoice(use=use, key=KEY))
    model.close()


def test_threads_share_a_model(server):
    server.answers = [lambda handler, body: says("openai", body["messages"][-1]["content"])(handler, body)]
    model, found = make(server, "openai"), {}

    def ask(number: int) -> None:
        found[number] = model.complete(replace(ASK, text=str(number))).text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: str(number) for number in range(8)}
    model.close()


@pytest.mark.parametrize(
    ("choice", "key"),
    [
        ({"use": "opnai"}, "compress.model.use"),
        ({"use": "openai", "model": "m"}, "compress.model.url"),
        ({"use": "openai", "model": "m", "url": "http://user:secret@host/v1"}, "compress.model.url"),
        ({"use": "openai", "url": "http://host/v1"}, "compress.model.model"),
        ({"use": "anthropic"}, "compress.model.model"),
        ({"use": "anthropic", "model": "m", "key": "a\nb"}, "compress.model.key"),
        ({"use": "openai", "seconds": 0}, "compress.model.seconds"),
        ({"use": "openai", "seconds": float("nan")}, "compress.model.seconds"),
        ({"use": "embedded", "context": -1}, "compress.model.context"),
    ],
)
def test_an_invalid_choice_names_the_setting(choice, key):
    with pytest.raises(SettingsError) as refused:
        chat_model_for(ChatChoice(**choice))
    assert refused.value.key == key
    assert "secret" not in str(refused.value)


def test_the_default_choice_is_no_model():
    assert chat_model_for(ChatChoice()) is None


@pytest.mark.parametrize(("use", "package"), [("openai", "httpx2"), ("anthropic", "httpx2"), ("embedded", "xllamacpp")])
def test_a_missing_package_is_named_with_its_install_command(monkeypatch, use, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("recto.models.chat.find_spec", {}.get)
    with pytest.raises(SettingsError, match=f"needs the package {package}; install it with: pip install"):
        chat_model_for(ChatChoice(use=use, url="http://127.0.0.1:1/v1", model="m"))


def test_choosing_a_model_imports_nothing_heavy():
    check = (
        "from recto.models.chat import *; import sys\n"
        "chat_model_for(ChatChoice(use='openai', url='http://127.0.0.1:1', model='m'))\n"
        "print([name for name in ('numpy', 'xllamacpp', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_scripted_model_answers_in_order_and_records_its_requests():
    cancelled = threading.Event()
    cut_off = ModelReply(text="4", ending="length")
    model = ScriptedModel(["42", ModelFailed("x", "late"), lambda request: request.text, lambda request: cut_off])
    assert model.complete(ASK, cancelled) == ModelReply(text="42", ending="stop")
    with pytest.raises(ModelFailed, match="late"):
        model.complete(ASK)
    assert model.complete(replace(ASK, text="other")).text == "other"
    assert model.complete(ASK) is cut_off
    with pytest.raises(ModelFailed, match="script ends before request 5"):
        model.complete(ASK)
    cancelled.set()
    with pytest.raises(ModelFailed, match="no longer wanted"):
        model.complete(ASK, cancelled)
    assert [request.text for request in model.requests] == [*[ASK.text] * 2, "other", *[ASK.text] * 3]
    model.close()
