"""Starts the gateways that are measured: Recto's, and LiteLLM's from an environment of its own.

Each is a process of its own. LiteLLM has one model, the same upstream, one worker as Recto has, a key, and no database;
it uses the price list of its package, so that nothing is fetched.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.peers import CACHE, Peer, install, versions

LITELLM = Peer(env="litellm", script="", packages=("litellm[proxy]==1.106.2",))
"""The newest whose own needs could be met when this was written."""
MODEL = "gpt-4o"
PATIENCE = 180
"""Seconds until a gateway listens."""
_KEY = "sk-measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Whom to ask, and the process that answers."""

    url: str
    key: str = "none"
    pid: int = 0

    @property
    def resident_mb(self) -> float:
        """Memory that it holds now; 0 where the system does not tell."""
        try:
            found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        except OSError:
            return 0.0
        return int(found[1]) / 1024 if found else 0.0

    @property
    def processor_seconds(self) -> float:
        """What it has worked so far; 0 where the system does not tell."""
        try:
            told = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def upstream() -> Iterator[Running]:
    """The upstream itself: who asks it goes through no gateway."""
    with _process([sys.executable, "-m", "bench.gateway_upstream"], _surroundings()) as process:
        yield Running(url=f"http://127.0.0.1:{int(_line(process, ''))}/v1", pid=process.pid)


@contextmanager
def recto(to: Running, window: int = 0) -> Iterator[Running]:
    """Recto as `recto serve` starts it: its own settings, but for the upstream and for weights that not all have."""
    with tempfile.TemporaryDirectory() as folder:
        given = settings(to, folder) | ({"models": {MODEL: {"window": window}}} if window else {})
        Path(folder, "recto.yaml").write_text(json.dumps(given))
        program = str(Path(sys.executable).with_name("recto"))
        serve = [program, "--config", f"{folder}/recto.yaml", "serve", "--key", "--port", "0"]
        with started(serve) as (process, address):
            yield Running(url=f"{address}/v1", key=_line(process, "Key: "), pid=process.pid)


def settings(to: Running, folder: str) -> dict[str, Any]:
    """The settings of a gateway whose transcript is in the folder."""
    return {
        "store": f"{folder}/transcript.db",
        "recall": {"embedder": {"use": "none"}},
        "gateway": {"upstreams": {"main": {"url": to.url, "speaks": ["chat"], "key": _KEY}}},
    }


@contextmanager
def started(serve: list[str]) -> Iterator[tuple[subprocess.Popen, str]]:
    """A process that serves as `recto serve` does, and where it listens."""
    with _process(serve, _surroundings()) as process:
        yield process, _line(process, "Recto listens on ")


@contextmanager
def litellm(to: Running) -> Iterator[Running]:
    """LiteLLM's proxy. Raises `CalledProcessError` where it cannot be installed."""
    install(LITELLM)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        about = {"model": f"openai/{MODEL}", "api_base": to.url, "api_key": _KEY}
        settings = {
            "model_list": [{"model_name": MODEL, "litellm_params": about}],
            "general_settings": {"master_key": _KEY},
            "litellm_settings": {"telemetry": False, "set_verbose": False},
        }
        Path(folder, "litellm.yaml").write_text(json.dumps(settings))
        program = str(CACHE / LITELLM.env / "bin" / "litellm")
        serve = [program, "--config", f"{folder}/litellm.yaml", "--port", str(port), "--host", "127.0.0.1"]
        more = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_TELEMETRY": "False"}
        with _process([*serve, "--num_workers", "1"], _surroundings() | more, folder) as process:
            _wait_for(process, f"http://127.0.0.1:{port}/health/liveliness")
            yield Running(url=f"http://127.0.0.1:{port}/v1", key=_KEY, pid=process.pid)


def litellm_version() -> str:
    return versions(Peer(env=LITELLM.env, script="", packages=("litellm",)))["litellm"]


def _surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("RECTO_", "LITELLM_"))}


@contextmanager
def _process(command: list[str], surroundings: dict[str, str], folder: str | None = None) -> Iterator[subprocess.Popen]:
    out = subprocess.PIPE if folder is None else subprocess.DEVNULL
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, stdout=out, stderr=said, env=surroundings, cwd=folder, text=True) as one,
    ):
        try:
            yield one
        except BaseException:
            said.seek(0)
            print(said.read()[-2_000:], file=sys.stderr)
            raise
        finally:
            one.terminate()
            try:
                one.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                one.kill()


def _line(process: subprocess.Popen, start: str) -> str:
    """What stands behind the beginning of a line that a process prints."""
    assert process.stdout is not None
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    try:
        for line in iter(process.stdout.readline, ""):
            if line.startswith(start):
                return line.removeprefix(start).strip()
    finally:
        late.cancel()
    raise RuntimeError(f"'{process.args[0]}' did not come up")


def _wait_for(process: subprocess.Popen, url: str) -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends and process.poll() is None:
        try:
            with urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"'{process.args[0]}' did not come up")
