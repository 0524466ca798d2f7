"""Limits are read from model lists and overflow errors, and from nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.tokens.limits import MAX_LIMIT, MIN_LIMIT, ModelLimits, limits_in_error, limits_in_model, models_in_list

WINDOWS = [
    ("This model's maximum context length is 128000 tokens. However, your messages resulted in 130001.", 128000),
    ("This endpoint's maximum context length is 131,072 tokens. However, you requested about 140000.", 131072),
    ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length", 200000),
    ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 500", 4096),
    ("Please reduce the length of the messages. Current length is 42328 while limit is 40000", 40000),
    ("the request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", 8192),
    ("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", 8192),
    ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32768),
    ("Requested tokens (2060) exceed context window of 2048 tokens", 2048),
]
INPUTS = [
    ("prompt is too long: 213462 tokens > 200000 maximum", 200000),
    ("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", 1048576),
    ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280000.", 272000),
    ("Range of input: maximum input length is 30720 tokens", 30720),
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131072),
    ("input too long: 9000 input tokens, limit is 8192", 8192),
]


@pytest.mark.parametrize(("message", "window"), WINDOWS)
def test_a_window_is_read_from_an_overflow_error(message, window):
    assert limits_in_error(message) == ModelLimits(window=window)
    assert limits_in_error({"error": {"message": message, "type": "invalid_request_error"}}) == ModelLimits(
        window=window
    )
    assert limits_in_error({"message": message}) == ModelLimits(window=window)


@pytest.mark.parametrize(("message", "most"), INPUTS)
def test_an_input_limit_is_read_from_an_overflow_error(message, most):
    assert limits_in_error(message) == ModelLimits(max_input=most)


def test_llama_cpp_tells_its_window_beside_the_message():
    error = {"type": "exceed_context_size_error", "n_prompt_tokens": 14429, "n_ctx": 8192, "message": "too long"}
    assert limits_in_error({"error": error}) == ModelLimits(window=8192)


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"code": "context_length_exceeded", "message": "Too much."}},
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "Input is too long for requested model.",
        "prompt is too long: 300 tokens > 200 maximum",
        "prompt is too long: 300 tokens > 99999999999 maximum",
        f"Context length exceeded: prompt is too long: 300 tokens > {'9' * 5000} maximum",
    ],
)
def test_an_overflow_without_a_plausible_number_is_still_an_overflow(error):
    found = limits_in_error(error)
    assert found == ModelLimits()
    assert not found


@pytest.mark.parametrize(
    "error",
    [
        "",
        {},
        {"error": None},
        {"error": {"message": None}},
        {"error": {"message": ["x"]}},
        "Rate limit reached: Limit 30000, Used 29000, Requested 2000.",
        "string_above_max_length: the string is longer than the model's context length 1048576",
        {"error": {"code": "string_above_max_length", "message": "maximum context length is 9000 tokens"}},
        "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens",
    ],
)
def test_other_errors_say_nothing_about_the_window(error):
    assert limits_in_error(error) is None


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_fail(text):
    limits_in_error(text)
    limits_in_error({"error": {"message": text, "code": text}})


def test_a_long_hostile_message_is_read_in_good_time():
    assert limits_in_error("exceeds maximum context length is " * 300_000) == ModelLimits()


@given(st.integers())
def test_only_a_plausible_number_is_a_limit(number):
    found = limits_in_error(f"This model's maximum context length is {number} tokens.")
    assert (found == ModelLimits(window=number)) == (MIN_LIMIT <= number <= MAX_LIMIT)


@pytest.mark.parametrize(
    ("entry", "limits"),
    [
        ({"max_input_tokens": 1000000, "max_tokens": 128000}, ModelLimits(max_input=1000000, max_output=128000)),
        ({"inputTokenLimit": 1048576, "outputTokenLimit": 65536}, ModelLimits(max_input=1048576, max_output=65536)),
        ({"input_token_limit": 1048576, "output_token_limit": 8}, ModelLimits(max_input=1048576, max_output=8)),
        ({"max_model_len": 32768}, ModelLimits(window=32768)),
        ({"meta": {"n_ctx_train": 131072}}, ModelLimits(window=131072)),
        ({"meta": {"n_ctx_train": 131072, "n_ctx": 4096}}, ModelLimits(window=4096)),
        (
            {"context_length": 200000, "top_provider": {"context_length": 100000, "max_completion_tokens": 8000}},
            ModelLimits(window=100000, max_output=8000),
        ),
        ({"id": "gpt-4o", "object": "model", "created": 1715367049}, ModelLimits()),
        ({"max_model_len": "32768", "meta": [], "context_length": True}, ModelLimits()),
    ],
)
def test_limits_are_read_from_an_entry_of_a_model_list(entry, limits):
    assert limits_in_model(entry) == limits


def test_models_without_limits_or_names_are_left_out_of_a_list():
    body = {"data": [{"id": "a", "max_model_len": 9000}, {"id": "b"}, {"max_model_len": 9000}, "c", None]}
    assert list(models_in_list(body)) == [("a", ModelLimits(window=9000))]
    assert list(models_in_list({"models": [{"name": "models/x", "inputTokenLimit": 9000}]})) == [
        ("models/x", ModelLimits(max_input=9000))
    ]
    assert list(models_in_list({"id": "one", "max_model_len": 9000})) == [("one", ModelLimits(window=9000))]
    assert list(models_in_list({"data": None})) == []
