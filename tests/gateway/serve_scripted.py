"""Runs a gateway in front of the scripted upstream, for clients whose packages are in another environment.

Prints its address and a key, runs until its standard input ends, and then prints the requests that the upstream
received and the messages that are stored. The model's response depends on the request: a question that begins with
`Read` is answered with a tool call.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.gateway.gateways import gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.transcript.entries import MESSAGE


def answer(request: Asked) -> Says:
    last = json.dumps(request.messages[-1])
    if '"Read ' in last:
        return Says(text="Let me see.", calls=(("read_file", {"path": "a.txt"}), ("read_file", {"path": "b.txt"})))
    return Says(text="It says: all is well with the boats.")


def main(speaks: str, model: str, window: int) -> None:
    models: dict[str, Any] = {model: {"window": window, "max_output": 500}}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(ScriptedUpstream(answer)) as upstream,
        gateway(Path(folder), upstream.url, speaks=(speaks,), models=models) as gw,
    ):
        print(json.dumps({"url": gw.url, "key": gw.secret}), flush=True)
        sys.stdin.read()
        stored = [
            [json.loads(entry.content) for entry in gw.store.read(summary.session) if entry.kind == MESSAGE]
            for summary in gw.store.sessions()
        ]
        requests = [
            {"problems": request.problems, "tokens": request.tokens, "messages": request.messages}
            for request in upstream.asked
        ]
        print(json.dumps({"asked": requests, "sessions": [messages for messages in stored if messages]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
