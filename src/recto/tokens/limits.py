"""Read model limits from provider data: model lists and overflow errors.

Pure parsing of untrusted JSON and text: whatever cannot be parsed or is implausible as a limit is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from recto.text.lazy_re import lazy_re

MIN_LIMIT = 512
MAX_LIMIT = 10_000_000
"""Outside this range a number in an error is something else: a request id, a line, a character count."""

_NUMBER = r"([0-9][0-9,_]*)"
_WINDOW_SHAPES = tuple(
    lazy_re(shape.replace("#", _NUMBER), re.IGNORECASE | re.DOTALL)
    for shape in (
        r"exceed context limit: # \+ # > (?P<limit>[0-9][0-9,_]*)",
        r"maximum context (?:length|limit)(?: of this model)? (?:is|of) (?P<limit>[0-9][0-9,_]*)",
        r"longer than the (?:maximum model length of|model's (?:maximum )?context length) \(?(?P<limit>[0-9][0-9,_]*)",
        r"model with (?P<limit>[0-9][0-9,_]*) maximum context length",
        r"context (?:length|window|size)(?: of| is|:)? (?:only )?\(?(?P<limit>[0-9][0-9,_]*) tokens",
        r"available context size \((?P<limit>[0-9][0-9,_]*)",
        r"`inputs` tokens \+ `max_new_tokens` must be <= (?P<limit>[0-9][0-9,_]*)",
        r"current length is # while limit is (?P<limit>[0-9][0-9,_]*)",
    )
)
_INPUT_SHAPES = tuple(
    lazy_re(shape.replace("#", _NUMBER), re.IGNORECASE | re.DOTALL)
    for shape in (
        r"prompt is too long: # tokens > (?P<limit>[0-9][0-9,_]*) maximum",
        r"input token count \(?#?\)? ?exceeds the maximum number of tokens allowed \(?(?P<limit>[0-9][0-9,_]*)",
        r"exceeds the maximum number of (?:input )?tokens allowed[ :(]+(?P<limit>[0-9][0-9,_]*)",
        r"input tokens exceed the configured limit of (?P<limit>[0-9][0-9,_]*)",
        r"maximum (?:input|prompt) length is (?P<limit>[0-9][0-9,_]*)",
        r"input too long: # input tokens, limit is (?P<limit>[0-9][0-9,_]*)",
        r"input (?:length )?should be (?:in|<=|less than) \[?1?, ?(?P<limit>[0-9][0-9,_]*)",
    )
)
_OVERFLOW_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded", "context_too_large"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """Limits of one model from one source. None if the source does not state it."""

    window: int | None = None
    max_input: int | None = None
    max_output: int | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.window, self.max_input, self.max_output))


def limits_in_model(entry: Mapping[str, object]) -> ModelLimits:
    """The limits in one entry of a provider's model list.

    Anthropic gives `max_input_tokens` and `max_tokens`, Gemini `inputTokenLimit` and `outputTokenLimit`, vLLM
    `max_model_len`, llama.cpp `meta.n_ctx` or `meta.n_ctx_train`, OpenRouter `context_length`; OpenAI gives none.
    """
    top = _object(entry.get("top_provider"))
    meta = _object(entry.get("meta"))
    window = _first_plausible(
        entry.get("max_model_len"),
        meta.get("n_ctx"),
        meta.get("n_ctx_train"),
        top.get("context_length"),
        entry.get("context_length"),
        entry.get("context_window"),
        entry.get("max_context_length"),
    )
    max_input = _first_plausible(
        entry.get("max_input_tokens"), entry.get("input_token_limit"), entry.get("inputTokenLimit")
    )
    max_output = _first_plausible(
        entry.get("max_output_tokens"),
        entry.get("output_token_limit"),
        entry.get("outputTokenLimit"),
        top.get("max_completion_tokens"),
        entry.get("max_tokens"),
        minimum=1,
    )
    return ModelLimits(window=window, max_input=max_input, max_output=max_output)


def models_in_list(body: Mapping[str, object]) -> Iterator[tuple[str, ModelLimits]]:
    """Names and limits of all models in a provider's model list that state limits."""
    listed = body.get("data", body.get("models"))
    for entry in listed if isinstance(listed, list) else [body]:
        if isinstance(entry, dict):
            name = entry.get("id") or entry.get("name")
            limits = limits_in_model(entry)
            if isinstance(name, str) and limits:
                yield name, limits


def limits_in_error(error: Mapping[str, object] | str, sent: str = "") -> ModelLimits | None:
    """The limits in an error; None if it is not an overflow, empty limits if it names none.

    Providers repeat what they refuse: words of the error that the request itself (`sent`) contains say nothing.
    """
    found = _overflow_in(error)
    if found is None:
        return None
    limits, words = found
    if not words or not sent or _plain(words) not in _plain(sent):
        return limits
    body = _object(error.get("error")) or error if isinstance(error, Mapping) else {}
    return ModelLimits() if {body.get("code"), body.get("type")} & _OVERFLOW_CODES else None


def _overflow_in(error: Mapping[str, object] | str) -> tuple[ModelLimits, str] | None:
    """The limits in an error, and the words that state them; no words where its code does."""
    body = _object(error.get("error")) or error if isinstance(error, Mapping) else {}
    context_size = _first_plausible(body.get("n_ctx"))
    if context_size is not None:
        return ModelLimits(window=context_size), ""
    message = error if isinstance(error, str) else body.get("message", error.get("message", ""))
    if not isinstance(message, str):
        message = ""
    if "string_above_max_length" in message or body.get("code") == "string_above_max_length":
        return None
    for shapes, is_window in ((_WINDOW_SHAPES, True), (_INPUT_SHAPES, False)):
        for shape in shapes:
            match = shape.search(message)
            limit = _parse_limit(match["limit"]) if match else None
            if match and limit is not None:
                return ModelLimits(window=limit) if is_window else ModelLimits(max_input=limit), match[0]
    if {body.get("code"), body.get("type")} & _OVERFLOW_CODES:
        return ModelLimits(), ""
    words = _OVERFLOW_WORDS.search(message)
    return (ModelLimits(), words[0]) if words else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


_OVERFLOW_WORDS = lazy_re(
    r"context[ _](?:length|limit|window|size)[^.]{0,40}exceed|exceeds?[^.]{0,60}context[ _](?:length|limit|window|size)"
    r"|prompt is too long|input is too long",
    re.IGNORECASE,
)


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _first_plausible(*values: object, minimum: int = MIN_LIMIT) -> int | None:
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= MAX_LIMIT:
            return value
    return None


def _parse_limit(digits: str) -> int | None:
    digits = re.sub("[,_]", "", digits)
    return _first_plausible(int(digits)) if len(digits) <= 8 else None  # thousands of digits would make int() raise
