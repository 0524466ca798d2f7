"""Reads the turns of an agent from the Agent Client Protocol, as a proxy between an editor and its agent sees them.

`AcpTurns` is a fold over JSON-RPC messages in both directions. It returns chat messages as they are complete: what the
user asked, what the agent said, and each tool call with its result. A call that is never finished is returned at the
end of its turn. Thoughts of the agent are not messages. Malformed and unknown messages are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
Stored = tuple[str, Message]
"""A session, and a message of it in OpenAI's chat format."""
_FINISHED = frozenset({"completed", "failed"})
_NO_OUTPUT = "(the agent reported no output)"


@dataclass(slots=True)
class _Turn:
    """A turn that is going on in one session."""

    text: str = ""
    calls: dict[str, Message] = field(default_factory=dict)
    """Tool calls that are not finished, by id."""


@dataclass(slots=True)
class AcpTurns:
    """The turns of all sessions of one connection."""

    _prompts: dict[Any, str] = field(default_factory=dict)
    """The session of each request that is not answered, by the id of the request."""
    _turns: dict[str, _Turn] = field(default_factory=dict)

    def from_editor(self, line: bytes) -> list[Stored]:
        """Take a line that the editor sends."""
        message = _object(line)
        params = _mapping(message.get("params"))
        session = params.get("sessionId")
        if message.get("method") != "session/prompt" or not isinstance(session, str) or not session:
            return []
        ended = list(self._end(session))
        if (id := message.get("id")) is not None:
            self._prompts[json.dumps(id)] = session
        self._turns[session] = _Turn()
        return [*ended, (session, {"role": "user", "content": _text(params.get("prompt"))})]

    def from_agent(self, line: bytes) -> list[Stored]:
        """Take a line that the agent sends."""
        message = _object(line)
        if message.get("method") == "session/update":
            params = _mapping(message.get("params"))
            session = params.get("sessionId")
            turn = self._turns.get(session) if isinstance(session, str) else None
            return list(_update(str(session), turn, _mapping(params.get("update")))) if turn is not None else []
        if "method" not in message and (answered := self._prompts.pop(json.dumps(message.get("id")), None)) is not None:
            return list(self._end(answered))
        return []

    def end(self) -> list[Stored]:
        """End every turn that is going on: the connection is closed."""
        return [stored for session in list(self._turns) for stored in self._end(session)]

    def _end(self, session: str) -> Iterator[Stored]:
        turn = self._turns.pop(session, None)
        if turn is None:
            return
        for id in list(turn.calls):
            yield from _finished(session, turn, id)
        if turn.text.strip():
            yield session, {"role": "assistant", "content": turn.text}


def _update(session: str, turn: _Turn, update: Mapping[str, Any]) -> Iterator[Stored]:
    kind, id = update.get("sessionUpdate"), update.get("toolCallId")
    if kind == "agent_message_chunk":
        turn.text += _text([update.get("content")])
    elif (
        kind in ("tool_call", "tool_call_update") and isinstance(id, str) and (kind == "tool_call" or id in turn.calls)
    ):
        known = turn.calls.setdefault(id, {})
        known.update({name: value for name, value in update.items() if value is not None})
        if known.get("status") in _FINISHED:
            yield from _finished(session, turn, id)


def _finished(session: str, turn: _Turn, id: str) -> Iterator[Stored]:
    """A call and its result, one after the other: no other message can come between them."""
    call = turn.calls.pop(id)
    name = str(call.get("kind") or "tool")
    given = {"title": call.get("title"), "input": call.get("rawInput")}
    arguments = json.dumps({key: value for key, value in given.items() if value is not None}, ensure_ascii=False)
    function = {"name": name, "arguments": arguments}
    calls = [{"id": id, "type": "function", "function": function}]
    yield session, {"role": "assistant", "content": turn.text or None, "tool_calls": calls}
    turn.text = ""
    yield session, {"role": "tool", "tool_call_id": id, "content": _output(call)}


def _output(call: Mapping[str, Any]) -> str:
    shown = _text(call.get("content"))
    raw = call.get("rawOutput")
    if not shown and raw is not None:
        shown = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
    return shown or _NO_OUTPUT


def _text(blocks: object) -> str:
    """The text of content blocks; of other blocks what they are."""
    return "\n".join(filter(None, map(_block, blocks if isinstance(blocks, list) else [])))


def _block(block: object) -> str:
    fields = _mapping(block)
    match fields.get("type"):
        case "text":
            return str(fields.get("text") or "")
        case "content":
            return _block(fields.get("content"))
        case "diff":
            return (
                f"{fields.get('path')}\n--- before\n{fields.get('oldText') or ''}\n+++ after\n{fields.get('newText')}"
            )
        case "resource":
            resource = _mapping(fields.get("resource"))
            return f"{resource.get('uri')}\n{resource.get('text') or ''}"
        case "resource_link":
            return str(fields.get("uri") or "")
        case None:
            return ""
        case other:
            return f"[{other}]"


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
