"""Creates and edits items of the Responses API."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from recto.formats.json_spans import Member, apply_edits, elements_of, member_at, quoted, set_member, text_of
from recto.formats.message import fields_of, stated_role, text_in
from recto.formats.openai_responses.message import role_of
from recto.formats.openai_responses.validation import tool_call_ids
from recto.formats.tool_calls import NewToolCall


def settle(messages: Iterable[bytes]) -> list[bytes]:
    """Drops reasoning items that no output of the assistant follows."""
    settled: list[bytes] = []
    reasoning: list[bytes] = []
    for raw in messages:
        fields = fields_of(raw)
        if fields.get("type") == "reasoning":
            reasoning.append(raw)
            continue
        role = role_of(fields)
        if role == "assistant":
            settled += reasoning
        if role != "tool":  # a result that came between reasoning and its call goes before both
            reasoning = []
        settled.append(raw)
    return settled


def result_message(call_id: str, name: str, text: str, kind: str = "function_call") -> bytes:
    """Creates the result of a call. `kind` is the type of the call's item: each has its own output type."""
    output = quoted(text)
    if kind == "shell_call":
        output = f'[{{"stdout": "", "stderr": {output}, "outcome": {{"type": "timeout"}}}}]'
    status = ', "status": "failed"' if kind == "apply_patch_call" else ""
    id_key = "id" if kind == "local_shell_call" else "call_id"
    return f'{{"type": "{kind}_output", "{id_key}": {quoted(call_id)}, "output": {output}{status}}}'.encode()


def call_messages(text: str, calls: Sequence[NewToolCall]) -> list[bytes]:
    """Creates a message of the assistant, if there is text, and one item for each call."""
    items: list[dict[str, str]] = [{"role": "assistant", "content": text}] if text else []
    items += [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
        for call in calls
    ]
    return [json.dumps(item, ensure_ascii=False).encode() for item in items]


def result_messages(results: Sequence[tuple[str, str]]) -> list[bytes]:
    """Creates one item for each result."""
    return [result_message(call_id, "", text) for call_id, text in results]


def with_results(raw: bytes, texts: Mapping[str, str]) -> bytes:
    """Replaces the output of an output item. A screenshot stays as it is: a text cannot replace it."""
    fields = fields_of(raw)
    call = next(iter(tool_call_ids(fields).answers), None)
    if call is None or call not in texts:
        return raw
    text = text_of(raw)
    source = _output_source(text, member_at(text, 0, "output"), text_in(fields.get("type")), texts[call])
    return raw if source is None else apply_edits(text, [set_member(text, 0, "output", source)]).encode()


def only_answers(raw: bytes, keep: Collection[str], *, rest: bool = True) -> bytes | None:
    """Keeps an output of one of these calls, and with `rest` an item that is no output."""
    answers = tool_call_ids(fields_of(raw)).answers
    return raw if (rest and not answers) or (answers and answers[0] in keep) else None


def without_thinking(raw: bytes) -> bytes | None:
    """Returns the item as it is: reasoning is an item of its own and bound to nothing before it."""
    return raw


def text_block_type(raw: bytes, key: str) -> str:
    """Returns the type of a text part: output of the assistant, else input."""
    return "output_text" if key == "content" and stated_role(fields_of(raw)) == "assistant" else "input_text"


def _output_source(text: str, output: Member | None, kind: str, replacement: str) -> str | None:
    """Returns the JSON of the new output; `None` if a text cannot replace the old one."""
    if output is not None and isinstance(output.value.value, dict):
        return None  # a screenshot
    if kind != "shell_call_output":
        return quoted(replacement)
    outcome = '{"type": "exit", "exit_code": 0}'
    for span in elements_of(text, output.value) if output else []:
        member = member_at(text, span.start, "outcome") if isinstance(span.value, dict) else None
        if member is not None:
            outcome = text[member.value.start : member.value.end]
    return f'[{{"stdout": {quoted(replacement)}, "stderr": "", "outcome": {outcome}}}]'
