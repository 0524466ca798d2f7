"""Strategies for malformed messages that a provider might still send."""

from __future__ import annotations

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_BLOCK_TYPES = """
    text refusal thinking redacted_thinking tool_use tool_result image image_url document compaction search_result file
    input_text output_text input_image input_file input_audio web_search_tool_result server_tool_use summary_text
"""
_BLOCK_KEYS = "text refusal thinking signature data id name input tool_use_id content source image_url file title url"
_MESSAGE_KEYS = """
    name tool_calls tool_call_id function_call refusal audio reasoning_content reasoning reasoning_details call_id id
    arguments output summary encrypted_content action status result extra_content annotations vendor
"""
_ITEM_TYPES = """
    message reasoning function_call function_call_output mcp_call compaction computer_call_output image_generation_call
    acme:news
"""


def _word_from(words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words.split())


BLOCKS = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    _word_from(_BLOCK_TYPES),
    st.dictionaries(_word_from(_BLOCK_KEYS), JSON, max_size=5),
)
MESSAGES = st.builds(
    lambda fields, role, content: {**fields, "role": role, "content": content},
    st.dictionaries(_word_from(_MESSAGE_KEYS), JSON | st.lists(BLOCKS, max_size=2), max_size=6),
    _word_from("system developer user assistant tool function critic"),
    JSON | st.lists(BLOCKS, max_size=3),
)
ITEMS = st.builds(lambda message, kind: {**message, "type": kind}, MESSAGES, _word_from(_ITEM_TYPES))
