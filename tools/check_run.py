"""Whether `make run` does what it says: it comes up, its page is there with the sample session, its first line to try
works, and it stops when it is told to.

    python tools/check_run.py

Runs over a store of its own, in a temporary folder.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).parent.parent
SECONDS = 900.0
"""Installing included."""


def main() -> int:
    """0 where all is well."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "RECTO_STORE": f"{folder}/transcript.db", "RECTO_GATEWAY__PORT": "0"}
        run = subprocess.Popen(
            ["make", "run"],  # noqa: S607
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        late = threading.Timer(SECONDS, lambda: os.killpg(run.pid, signal.SIGKILL))
        late.start()
        try:
            return checked(run)
        finally:
            late.cancel()
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)


def checked(run: subprocess.Popen[str]) -> int:
    """Follows what it prints, does what it says, and stops it."""
    assert run.stdout is not None  # noqa: S101  # for the type checker
    line = first = ""
    for line in run.stdout:
        print(re.sub(r"rk-[\w-]+", "rk-…", line), end="", flush=True)  # noqa: T201
        if line.startswith("  curl ") and not first:
            first = line
        if "/session/context" in line:
            break
    if not first:
        print("make run ended before it was ready", file=sys.stderr)  # noqa: T201
        return 1
    url, key, body = re.findall(r"http://\S+|rk-[\w-]+|\{.*\}", first)
    wrong = shown(url.removesuffix("/v1/chat/completions"), key) or answered(url, key, body)
    if wrong:
        print(wrong, file=sys.stderr)  # noqa: T201
        return 1
    os.killpg(run.pid, signal.SIGINT)
    rest = run.stdout.read()
    run.wait(60)
    print(rest)  # noqa: T201
    return 0 if "stopped" in rest else 1


def shown(address: str, key: str) -> str:
    """What is wrong with the page and the session on it; empty where nothing is."""
    for path, holds in (("/", "<script"), ("/web/app.js", "window"), ("/web/style.css", "{")):
        if holds not in fetched(f"{address}{path}", {"Accept": "text/html,*/*"}):
            return f"{path} is not what it should be"
    headers = {"Authorization": f"Bearer {key}"}
    told = json.loads(fetched(f"{address}/api/v1/session/context?session=agent:default:sample", headers))
    print(f"sample: {told['tokens']:,} of {told['room']:,} tokens, {told['left_messages']} messages left")  # noqa: T201
    return "" if told["left_messages"] and told["decisions"] else "the sample session holds no decisions"


def answered(url: str, key: str, body: str) -> str:
    """What is wrong with the first line to try; empty where nothing is."""
    body = body.replace('"messages"', '"max_tokens": 16, "messages"')
    said = fetched(url, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}, body.encode())
    print(said[:400])  # noqa: T201
    return "" if '"assistant"' in said else "the line to try was not answered"


def fetched(url: str, headers: dict[str, str], body: bytes | None = None) -> str:
    """The text at an address."""
    with urlopen(Request(url, body, headers), timeout=300) as answer:  # noqa: S310
        text: str = answer.read().decode()
    return text


if __name__ == "__main__":
    sys.exit(main())
