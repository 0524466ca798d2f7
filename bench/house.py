"""Measures the floor plan of a checkout: folders, names, imports, and the code that one call crosses.

    python -m bench.house                         this checkout
    python -m bench.house ../other-checkout …     several, side by side (an older commit in a worktree, say)

`--json` prints the figures as JSON. Each checkout is measured with its own source; nothing in it is changed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIELD_NOUNS = {"chunking", "quoting", "ranking", "streaming", "monitoring", "testing"}
"""Module names in -ing that are nouns of the field."""
ODD_WORDS = re.compile(r"\b(?:told|asked|said|given)\b")

TRACER = """
import os, signal, sys, threading
root = os.path.realpath(os.environ["HOUSE_SOURCE"])
crossed = set()
def watch(frame, event, argument):
    if event == "call":
        code = frame.f_code
        if code.co_filename.startswith(root):
            crossed.add((code.co_filename, code.co_qualname))
def begin():
    crossed.clear()
    threading.setprofile_all_threads(watch) if hasattr(threading, "setprofile_all_threads") else None
    threading.setprofile(watch)
    sys.setprofile(watch)
def end():
    sys.setprofile(None)
    threading.setprofile(None)
    found = {pair for pair in crossed if not pair[1].startswith("<")}
    return len({file for file, _ in found}), len(found)
"""

SESSION = (
    TRACER
    + """
import json, tempfile
import recto
from recto.testing import scripted_session
with tempfile.TemporaryDirectory() as folder:
    with recto.open(folder + "/a.db", model="gpt-4", recall={"embedder": {"use": "none"}}) as session:
        for message in scripted_session():
            session.append(message)
            if message["role"] == "user":
                session.prompt()
        figures = {}
        begin(); session.append({"role": "user", "content": "Which port did we choose for the service?"})
        figures["append"] = end()
        begin(); session.prompt(); figures["prompt"] = end()
        begin(); session.recall("which tests failed"); figures["recall"] = end()
print(json.dumps(figures))
"""
)

GATEWAY = (
    TRACER
    + """
import json
def dump(number, frame):
    with open(os.environ["HOUSE_OUTPUT"] + ".new", "w") as file:
        json.dump(end(), file)
    os.replace(os.environ["HOUSE_OUTPUT"] + ".new", os.environ["HOUSE_OUTPUT"])
watching = False
def toggle(number, frame):
    begin()
    open(os.environ["HOUSE_OUTPUT"] + ".ready", "w").close()
signal.signal(signal.SIGUSR1, toggle)
signal.signal(signal.SIGUSR2, dump)
threading.setprofile(watch)
sys.setprofile(watch)
from recto.cli.main import main
main()
"""
)


def modules_of(source: Path) -> dict[str, Path]:
    """Every module by its dotted name."""
    files = (file for file in sorted(source.rglob("*.py")) if "__pycache__" not in file.parts)
    return {
        ".".join((source.name, *file.relative_to(source).with_suffix("").parts)).removesuffix(".__init__"): file
        for file in files
    }


def imports_of(file: Path, names: set[str]) -> set[str]:
    """The modules among `names` that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            targets = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {target if target in names else target.rpartition(".")[0] for target in targets}
    return found & names


def static_figures(checkout: Path) -> dict[str, Any]:
    """What can be read off the source without running it."""
    source = checkout / "src" / "recto"
    modules = modules_of(source)
    folders: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    classes: Counter[str] = Counter()
    importers: dict[str, set[str]] = defaultdict(set)
    odd_words = 0
    for name, file in modules.items():
        text = file.read_text()
        parts = name.split(".")
        folder = parts[1] if len(parts) > 2 or (file.name == "__init__.py" and len(parts) > 1) else "(top)"
        folders[folder][0] += 1
        folders[folder][1] += text.count("\n")
        odd_words += len(ODD_WORDS.findall(text))
        classes.update(node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
        for target in imports_of(file, set(modules)) - {name}:
            importers[target].add(name)
    stems = [file.stem for file in modules.values() if file.stem != "__init__"]
    crumbs = [name for name, users in importers.items() if is_crumb(name, users, modules)]
    return {
        "modules": len(modules),
        "lines": sum(lines for _, lines in folders.values()),
        "folders": {folder: tuple(counts) for folder, counts in sorted(folders.items())},
        "class names defined more than once": sum(count > 1 for count in classes.values()),
        "modules with one importer and no underscore": sum(
            len(users) == 1 and not modules[name].name.startswith("_") for name, users in importers.items()
        ),
        "of these, used by one sibling only": len(crumbs),
        "modules named by a gerund": sum(stem.endswith("ing") and stem not in FIELD_NOUNS for stem in stems),
        "told, asked, said, given": odd_words,
        "import edges against the order": edges_against_the_order(source, modules),
    }


def is_crumb(name: str, users: set[str], modules: dict[str, Path]) -> bool:
    """Whether only one other module of its folder uses a module that looks as if anyone might.

    Parts that a package's `__init__` hands out are no crumbs, nor is what another folder imports.
    """
    if len(users) != 1 or modules[name].name in ("__init__.py", "__main__.py") or modules[name].name.startswith("_"):
        return False
    user = modules[next(iter(users))]
    return user.parent == modules[name].parent and user.name != "__init__.py"


def edges_against_the_order(source: Path, modules: dict[str, Path]) -> int | None:
    """How many imports point at a folder that comes earlier in the order of the architecture test."""
    test = source.parent.parent / "tests" / "test_architecture.py"
    assigned = [node for node in ast.parse(test.read_text()).body if isinstance(node, ast.Assign)]
    order = next((node.value for node in assigned if ast.unparse(node.targets[0]) == "ORDER"), None)
    if order is None:
        return None  # an older checkout: floors with exceptions
    ranks = {folder: rank for rank, folder in enumerate(eval(ast.unparse(order)))}  # our own test
    edges = {
        (name.split(".")[1], target.split(".")[1])
        for name, file in modules.items()
        for target in imports_of(file, set(modules))
        if "." in name and "." in target
    }
    return sum(ranks[there] < ranks[here] for here, there in edges)


def crossed_by_session(checkout: Path) -> dict[str, tuple[int, int]]:
    """Files and functions that `append`, `prompt` and `recall` run, in a session that has evicted something."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION], env=_environment(checkout), capture_output=True, text=True, check=True
    )
    return {name: tuple(counts) for name, counts in json.loads(done.stdout).items()}


def crossed_by_gateway(checkout: Path) -> tuple[int, int]:
    """Files and functions that one Chat Completions request through the gateway runs."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        port, output = _free_port(), Path(folder) / "crossed.json"
        settings = {
            "store": f"{folder}/a.db",
            "model": "gpt-4o",
            "recall": {"embedder": {"use": "none"}},
            "gateway": {
                "port": port,
                "upstreams": {
                    "main": {"url": f"http://127.0.0.1:{upstream.server_port}/v1", "speaks": ["chat"], "key": "k"}
                },
            },
        }
        config = Path(folder) / "recto.yaml"
        config.write_text(json.dumps(settings))
        environment = _environment(checkout) | {"HOUSE_OUTPUT": str(output)}
        command = [sys.executable, "-c", "from recto.cli.main import main; main()", "--config", str(config)]
        key = subprocess.run(
            [*command, "keys", "add", "house"], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        process = subprocess.Popen(
            [sys.executable, "-c", GATEWAY, "--config", str(config), "serve"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            messages = [{"role": "user", "content": "Hello"}]
            for turn in range(4):
                reply = _post(port, key, messages, process)
                messages += [reply, {"role": "user", "content": f"And then, number {turn}?"}]
            process.send_signal(signal.SIGUSR1)
            _wait_for(output.with_name(output.name + ".ready"))
            _post(port, key, messages, process)
            process.send_signal(signal.SIGUSR2)
            _wait_for(output)
            files, functions = json.loads(output.read_text())
            return files, functions
        finally:
            process.kill()
            upstream.shutdown()


class _Upstream(BaseHTTPRequestHandler):
    """A provider that answers every request with the same message."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(
            {
                "id": "c1",
                "object": "chat.completion",
                "created": 1,
                "model": "gpt-4o",
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def _environment(checkout: Path) -> dict[str, str]:
    source = str(checkout / "src")
    return os.environ | {"PYTHONPATH": source, "HOUSE_SOURCE": source + "/recto"}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _post(port: int, key: str, messages: list[dict[str, Any]], process: subprocess.Popen[bytes]) -> dict[str, Any]:
    body = json.dumps({"model": "gpt-4o", "messages": messages}).encode()
    headers = {"Content-Type": "application/json", "x-recto-session-id": "house", "Authorization": f"Bearer {key}"}
    for _ in range(200):
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, headers)
            with urllib.request.urlopen(request, timeout=60) as response:
                message: dict[str, Any] = json.load(response)["choices"][0]["message"]
                return message
        except urllib.error.HTTPError as error:
            raise SystemExit(f"the gateway answered {error.code}: {error.read()[:500]!r}") from None
        except (urllib.error.URLError, ConnectionError):
            if process.poll() is not None:
                raise SystemExit(f"the gateway ended: {process.stderr.read()[-2000:]!r}") from None
            time.sleep(0.1)
    raise SystemExit("the gateway did not start")


def _wait_for(file: Path) -> None:
    for _ in range(600):
        if file.exists():
            return
        time.sleep(0.05)
    raise SystemExit(f"{file.name} was not written")


def measure(checkout: Path) -> dict[str, Any]:
    """All figures of one checkout."""
    figures = static_figures(checkout)
    figures["files and functions crossed"] = crossed_by_session(checkout) | {
        "gateway request": crossed_by_gateway(checkout)
    }
    return figures


def show(names: list[str], all_figures: list[dict[str, Any]]) -> None:
    """Prints the figures as Markdown tables, a column for each checkout."""
    print("| | " + " | ".join(names) + " |\n|---|" + "--:|" * len(names))
    plain = [key for key in all_figures[0] if key not in ("folders", "files and functions crossed")]
    for key in plain:
        print(f"| {key} | " + " | ".join("–" if f[key] is None else f"{f[key]:,}" for f in all_figures) + " |")
    for call in all_figures[0]["files and functions crossed"]:
        cells = (f["files and functions crossed"][call] for f in all_figures)
        print(f"| `{call}`: files / functions crossed | " + " | ".join(f"{a} / {b}" for a, b in cells) + " |")
    print("\n| folder: modules / lines | " + " | ".join(names) + " |\n|---|" + "--:|" * len(names))
    for folder in sorted({folder for figures in all_figures for folder in figures["folders"]}):
        cells = (figures["folders"].get(folder) for figures in all_figures)
        print(f"| {folder} | " + " | ".join(f"{c[0]} / {c[1]:,}" if c else "" for c in cells) + " |")


def main() -> None:
    """Measures the checkouts that were named, or this one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    checkouts = [checkout.resolve() for checkout in options.checkouts]
    figures = [measure(checkout) for checkout in checkouts]
    if options.json:
        print(json.dumps(dict(zip(map(str, checkouts), figures, strict=True)), indent=1))
    else:
        show([checkout.name for checkout in checkouts], figures)


if __name__ == "__main__":
    main()
