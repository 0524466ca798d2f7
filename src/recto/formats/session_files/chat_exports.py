"""Exports of chat applications: `conversations.json` of ChatGPT and of Claude, one list with all conversations.

Written after public descriptions of the two formats; no export of a real account was read. In ChatGPT's, the messages
of a conversation are a tree: edited questions and repeated answers are branches, which are read one after the other.
The messages are converted: ChatGPT's to OpenAI's chat format, Claude's to Anthropic's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from recto.errors import MalformedJson
from recto.formats.anthropic import ANTHROPIC
from recto.formats.json_spans import Json, array_at, text_of
from recto.formats.message import object_in, text_in
from recto.formats.openai_chat import CHAT
from recto.formats.session_files.jsonl import ConvertedMessage, JsonlLine
from recto.formats.session_files.types import SourceEntry, microseconds, present_members, session_name

NAME: Final = "chat_export"

_HIDDEN = "is_visually_hidden_from_conversation"


def is_document(fields: dict[str, Json], text: str) -> bool:
    """Whether a list begins with a conversation of such an export; `fields` are its first members."""
    is_chatgpt = {"title", "create_time"} <= fields.keys() and '"mapping"' in text
    return is_chatgpt or ({"uuid", "name", "created_at"} <= fields.keys() and '"chat_messages"' in text)


def read_document(line: JsonlLine, session: str) -> list[SourceEntry]:
    """Reads a document, passed as one line; what is between two conversations goes before the second."""
    text = text_of(line.body)
    found: list[SourceEntry] = []
    at = 0
    whole, spans = array_at(text, text.index("["))
    if text[whole.end :].strip():
        raise MalformedJson("something follows the list", whole.end)
    for number, span in enumerate(spans):
        is_last = number == len(spans) - 1
        conversation = JsonlLine(
            number=text.count("\n", 0, span.start) + 1,
            body=text[span.start : span.end].encode(),
            before=(line.before if number == 0 else "") + text[at : span.start],
            after=text[span.end :] + line.after if is_last else "",
        )
        at = span.end
        found += _entries(conversation, object_in(span.value), session)
    return found


def _entries(line: JsonlLine, fields: dict[str, Json], session: str) -> list[SourceEntry]:
    name = session_name(fields.get("conversation_id") or fields.get("id") or fields.get("uuid")) or session
    wire = CHAT if "mapping" in fields else ANTHROPIC
    messages = _of_chatgpt(fields) if "mapping" in fields else _of_claude(fields)
    entries = line.as_conversions(name, messages, wire=wire)
    ts = microseconds(fields.get("create_time") or fields.get("created_at"))
    return entries or [line.as_event(name, ts=ts, is_known=True)]


def _of_chatgpt(fields: dict[str, Json]) -> Iterator[ConvertedMessage]:
    for node in _nodes(object_in(fields.get("mapping"))):
        message = object_in(node.get("message"))
        role = object_in(message.get("author")).get("role")
        text = _text(object_in(message.get("content")))
        about = object_in(message.get("metadata"))
        if role not in ("user", "assistant", "tool") or not text.strip() or about.get(_HIDDEN) is True:
            continue
        name = text_in(message.get("id"))
        said: dict[str, Json] = {"role": role, "content": text}
        if role == "tool":
            said["tool_call_id"] = name
        meta = present_members({"id": name, "model": about.get("model_slug")}, "id", "model")
        yield ConvertedMessage(said, microseconds(message.get("create_time")), meta)


def _nodes(mapping: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Yields the nodes of a tree, each after its parent, and each branch to its end."""
    nodes = {name: object_in(node) for name, node in mapping.items()}
    pending = [name for name, node in reversed(nodes.items()) if node.get("parent") not in nodes]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        yield nodes[name]
        children = nodes[name].get("children")
        pending += [str(child) for child in reversed(children if isinstance(children, list) else [])]


def _text(content: dict[str, Json]) -> str:
    parts = content.get("parts")
    if not isinstance(parts, list):
        return text_in(content.get("text")) or text_in(content.get("result"))
    texts = (part if isinstance(part, str) else text_in(object_in(part).get("text")) or "[media]" for part in parts)
    return "\n".join(text for text in texts if text)


def _of_claude(fields: dict[str, Json]) -> Iterator[ConvertedMessage]:
    messages = fields.get("chat_messages")
    for message in map(object_in, messages if isinstance(messages, list) else []):
        role = {"human": "user", "user": "user", "assistant": "assistant"}.get(text_in(message.get("sender")))
        if role is None:
            continue
        made = ConvertedMessage({}, microseconds(message.get("created_at")), present_members(message, "uuid"))
        said: list[Json] = []
        for block in _claude_blocks(message):
            if object_in(block).get("type") == "tool_result":
                if said:
                    yield replace(made, message={"role": role, "content": said})
                yield replace(made, message={"role": "user", "content": [block]})
                said = []
            else:
                said.append(block)
        if said:
            yield replace(made, message={"role": role, "content": said})


def _claude_blocks(message: dict[str, Json]) -> Iterator[dict[str, Json]]:
    content, attachments = message.get("content"), message.get("attachments")
    for file in map(object_in, attachments if isinstance(attachments, list) else []):
        if extracted := text_in(file.get("extracted_content")):
            yield {"type": "text", "text": f"[file {text_in(file.get('file_name'))}]\n{extracted}"}
    blocks = [object_in(block) for block in content] if isinstance(content, list) else []
    call = ""
    for number, block in enumerate(blocks or [{"type": "text", "text": message.get("text")}]):
        text = text_in(block.get("text"))
        match block.get("type"):
            case "text" if text.strip():
                yield {"type": "text", "text": text}
            case "thinking":
                yield {"type": "thinking", "thinking": text_in(block.get("thinking")), "signature": ""}
            case "tool_use":
                call = text_in(block.get("id")) or f"{text_in(message.get('uuid'))}-{number}"
                name = text_in(block.get("name"))
                yield {"type": "tool_use", "id": call, "name": name, "input": object_in(block.get("input"))}
            case "tool_result":
                yield {
                    "type": "tool_result",
                    "tool_use_id": text_in(block.get("tool_use_id")) or call,
                    "content": block.get("content") or "",
                }
