"""A gateway in front of the scripted upstream, for clients whose packages live in another environment.

Prints its address and a key, runs until its standard input ends, and then prints what the upstream heard and what is
stored. What the model says follows from the request: a question that begins with `Read` is answered by a call.
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


def answer(asked: Asked) -> Says:
    last = json.dumps(asked.messages[-1])
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
            [json.loads(entry.content) for entry in gw.store.read(one.session) if entry.kind == MESSAGE]
            for one in gw.store.sessions()
        ]
        asked = [{"problems": one.problems, "tokens": one.tokens, "messages": one.messages} for one in upstream.asked]
        print(json.dumps({"asked": asked, "sessions": [one for one in stored if one]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
