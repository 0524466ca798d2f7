"""An Agent Client Protocol agent: calls one tool, answers, and echoes its input on stderr."""

import json
import sys


def send(message: dict) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def update(**fields: object) -> None:
    send({"method": "session/update", "params": {"sessionId": "sess-12345678", "update": fields}})


for line in sys.stdin:
    print(line, end="", file=sys.stderr, flush=True)
    request = json.loads(line)
    if request["method"] == "session/new":
        send({"id": request["id"], "result": {"sessionId": "sess-12345678"}})
    elif request["method"] == "session/prompt":
        text = {"type": "text", "text": "I look at "}
        update(sessionUpdate="agent_message_chunk", content=text)
        update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "the file."})
        update(
            sessionUpdate="tool_call", toolCallId="call-1", title="Read a.py", kind="read", rawInput={"path": "a.py"}
        )
        shown = [{"type": "content", "content": {"type": "text", "text": "port = 5433"}}]
        update(sessionUpdate="tool_call_update", toolCallId="call-1", status="completed", content=shown)
        update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "The port is 5433."})
        send({"id": request["id"], "result": {"stopReason": "end_turn"}})
    else:
        send({"id": request["id"], "result": {}})
