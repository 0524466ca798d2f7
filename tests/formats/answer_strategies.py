"""Replies as providers give them, for each wire format: text, reasoning, calls, and members of vendors."""

from __future__ import annotations

import json

from hypothesis import strategies as st

CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai.chat", "openai.responses", "anthropic.messages", "google.gemini"
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.sampled_from(["read_file", "bash", "search-web"])
COUNTS = st.integers(0, 5_000)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)


def _calls(make):
    return st.lists(st.tuples(NAMES, ARGUMENTS), max_size=3).map(
        lambda calls: [make(n, name, arguments) for n, (name, arguments) in enumerate(calls)]
    )


def _chat_call(n, name, arguments):
    return {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _signed(call):
    return {**call, "extra_content": {"google": {"thought_signature": "c2ln"}}}


DETAILS = st.lists(st.tuples(WORDS, WORDS), max_size=2).map(
    lambda found: [
        {"type": "reasoning.text", "text": text, "signature": mark, "index": n} for n, (text, mark) in enumerate(found)
    ]
)
CHAT_MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | WORDS},
    optional={
        "tool_calls": _calls(_chat_call) | _calls(_chat_call).map(lambda calls: [_signed(call) for call in calls]),
        "reasoning_content": WORDS,
        "reasoning": WORDS,
        "reasoning_details": DETAILS,
        "refusal": st.none() | WORDS,
        "annotations": st.lists(
            WORDS.map(lambda url: {"type": "url_citation", "url_citation": {"url": url}}), max_size=2
        ),
        "audio": WORDS.map(lambda data: {"id": "a1", "data": data, "transcript": data, "expires_at": 5}),
        "vendor_note": WORDS,
        "vendor_state": st.fixed_dictionaries({"seen": st.integers(0, 9), "tags": st.lists(WORDS, max_size=2)}),
    },
)
CHAT_USAGES = st.builds(
    lambda fresh, output, cached: {
        "prompt_tokens": fresh + cached,
        "completion_tokens": output,
        "total_tokens": fresh + cached + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    },
    COUNTS,
    COUNTS,
    COUNTS,
)
PLAIN_MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | WORDS},
    optional={"tool_calls": _calls(_chat_call), "reasoning_content": WORDS, "refusal": WORDS},
)


def _chat_replies(messages):
    return st.builds(
        lambda message, finish, usage: {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 3,
            "model": "m",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
            "usage": usage,
        },
        messages,
        st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
        CHAT_USAGES,
    )


CHAT_REPLIES = _chat_replies(CHAT_MESSAGES)

TEXT_BLOCKS = st.fixed_dictionaries(
    {"type": st.just("text"), "text": WORDS},
    optional={"citations": st.lists(WORDS.map(lambda text: {"type": "char_location", "cited_text": text}), max_size=2)},
)
PLAIN_BLOCKS = st.one_of(
    WORDS.map(lambda text: {"type": "text", "text": text}),
    st.builds(lambda text, mark: {"type": "thinking", "thinking": text, "signature": mark}, WORDS, WORDS),
    WORDS.map(lambda data: {"type": "redacted_thinking", "data": data}),
    st.builds(
        lambda name, arguments: {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": arguments},
        NAMES,
        ARGUMENTS,
    ),
)
BLOCKS = st.one_of(
    TEXT_BLOCKS,
    PLAIN_BLOCKS,
    st.builds(
        lambda arguments: {"type": "server_tool_use", "id": "s", "name": "web_search", "input": arguments}, ARGUMENTS
    ),
    WORDS.map(lambda text: {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": text}]}),
    WORDS.map(lambda text: {"type": "compaction", "content": text, "encrypted_content": "e"}),
)
ANTHROPIC_USAGES = st.builds(
    lambda fresh, read, write, output: {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "output_tokens": output,
    },
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
)


def _anthropic_replies(blocks):
    return st.builds(
        lambda content, stop, usage: {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        },
        st.lists(blocks, max_size=4),
        st.sampled_from(["end_turn", "max_tokens", "tool_use", "stop_sequence", "refusal"]),
        ANTHROPIC_USAGES,
    )


ANTHROPIC_REPLIES = _anthropic_replies(BLOCKS)

_PARTS = st.one_of(
    WORDS.map(lambda text: {"type": "output_text", "text": text, "annotations": []}),
    WORDS.map(lambda text: {"type": "refusal", "refusal": text}),
)
PLAIN_ITEMS = st.one_of(
    st.builds(lambda parts: {"type": "message", "role": "assistant", "content": parts}, st.lists(_PARTS, max_size=2)),
    st.builds(
        lambda name, arguments: {
            "type": "function_call",
            "call_id": "call_1",
            "name": name,
            "arguments": json.dumps(arguments),
        },
        NAMES,
        ARGUMENTS,
    ),
    st.builds(
        lambda texts, sealed: {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": text} for text in texts],
            "encrypted_content": sealed,
        },
        st.lists(WORDS, max_size=2),
        WORDS,
    ),
)
ITEMS = PLAIN_ITEMS | WORDS.map(lambda text: {"type": "web_search_call", "action": {"query": text}})


def _response(items, status, usage):
    incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 3,
        "model": "m",
        "status": status,
        "incomplete_details": incomplete,
        "output": [{"id": f"i_{n}", "status": "completed", **item} for n, item in enumerate(items)],
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"],
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": usage["total_tokens"],
        },
    }


def _responses_replies(items):
    return st.builds(_response, st.lists(items, max_size=4), st.sampled_from(["completed", "incomplete"]), CHAT_USAGES)


RESPONSES_REPLIES = _responses_replies(ITEMS)

PLAIN_PARTS = st.one_of(
    WORDS.map(lambda text: {"text": text}),
    WORDS.map(lambda text: {"text": text, "thought": True}),
    st.builds(
        lambda name, arguments, id, mark: {
            "functionCall": {**id, "name": name, "args": arguments},
            **({"thoughtSignature": mark} if mark else {}),
        },
        NAMES,
        ARGUMENTS,
        st.sampled_from([{}, {}, {"id": "call_1"}]),
        st.sampled_from(["", "c2lnbmVk"]),
    ),
)
PARTS = st.one_of(
    PLAIN_PARTS,
    st.builds(lambda text, mark: {"text": text, "thoughtSignature": mark}, WORDS | st.just(""), WORDS),
    WORDS.map(lambda code: {"executableCode": {"language": "PYTHON", "code": code}}),
    WORDS.map(lambda output: {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": output}}),
    WORDS.map(lambda data: {"inlineData": {"mimeType": "image/png", "data": data}}),
    WORDS.map(lambda text: {"vendorPart": {"note": text}}),
)


def _gemini_replies(parts):
    return st.builds(
        lambda content, stop, usage, role: {
            "candidates": [{"content": {**role, "parts": content}, "finishReason": stop, "index": 0}],
            "usageMetadata": {
                "promptTokenCount": usage["prompt_tokens"],
                "cachedContentTokenCount": usage["prompt_tokens_details"]["cached_tokens"],
                "candidatesTokenCount": usage["completion_tokens"],
                "thoughtsTokenCount": 1,
            },
            "modelVersion": "m",
            "responseId": "gen-1",
        },
        st.lists(parts, max_size=4),
        st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY"]),
        CHAT_USAGES,
        st.sampled_from([{"role": "model"}, {}]),
    )


REPLIES = {
    CHAT: CHAT_REPLIES,
    RESPONSES: RESPONSES_REPLIES,
    ANTHROPIC: ANTHROPIC_REPLIES,
    GEMINI: _gemini_replies(PARTS),
}
"""Replies with everything a provider may send."""
PLAIN_REPLIES = {
    CHAT: _chat_replies(PLAIN_MESSAGES),
    RESPONSES: _responses_replies(PLAIN_ITEMS),
    ANTHROPIC: _anthropic_replies(PLAIN_BLOCKS),
    GEMINI: _gemini_replies(PLAIN_PARTS),
}
"""Replies with only what every format can represent."""
