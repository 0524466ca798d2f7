"""Whether `make run` does what it says: it comes up, its first line to try works, and it stops when it is told to.

    python tools/check_run.py

Runs over a store of its own, in a temporary folder.
"""

from __future__ import annotations

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
    body = body.replace('"messages"', '"max_tokens": 16, "messages"')
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urlopen(Request(url, body.encode(), headers), timeout=300) as answer:  # noqa: S310
        said = answer.read().decode()
    print(said[:400])  # noqa: T201
    if '"assistant"' not in said:
        print("the line to try was not answered", file=sys.stderr)  # noqa: T201
        return 1
    os.killpg(run.pid, signal.SIGINT)
    rest = run.stdout.read()
    run.wait(60)
    print(rest)  # noqa: T201
    return 0 if "stopped" in rest else 1


if __name__ == "__main__":
    sys.exit(main())
