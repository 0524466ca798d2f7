"""Real Codex: messages of a closed window are in the next window, through `recto mcp --as notes` and the gateway."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.agents import AGENTS, Call, call
from tests.agents.installing import Package, packages
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

import recto
from recto.engine.note_files import read_files

_SECONDS = 240
_SOURCE = Path(recto.__file__).parent.parent
_TASK = "Make the tests of billing pass. The database listens on port 5433."
_DECIDED = "We decided to move the ledger to the host kestrel."
_CODEX = next(agent for agent in AGENTS if agent.package == "codex")
_TOKEN_BUDGET = "\n[features]\ntoken_budget = true\n"


@pytest.fixture
def package() -> Package:
    found = packages()["codex"]
    if not found.ready:
        pytest.skip(found.reason.read_text() if found.reason.exists() else "not installed: make test-agents")
    return found


def opens_a_window(request: Asked) -> Says:
    """Answers with a decision first, and requests a new window on "Go on."."""
    history = json.dumps(request.messages)
    if "Go on." in history and "new_context" not in history:
        return Says("", (("new_context", {}),))
    return Says(_DECIDED if "Go on." not in history and "Previous context window id" not in history else "Done.")


def run(made: Call, folder: Path) -> None:
    completed = subprocess.run(
        made.command,
        cwd=folder / "work",
        env=made.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr


def work(package: Package, folder: Path, url: str, key: str, configure: Callable[[Path, Call], None]) -> None:
    """Runs two turns; the second opens a new window."""
    (folder / "work").mkdir()
    for place, task in enumerate((_TASK, "Go on.")):
        made = call(_CODEX, package, folder, url, key, task, resume=place > 0)
        configure(folder / "home" / ".codex" / "config.toml", made)
        run(made, folder)


def new_window(upstream: ScriptedUpstream) -> tuple[str, str]:
    """The items about earlier windows in the first request of the new window, and its other items."""
    request = next(
        request for request in upstream.asked if "Previous context window id" in json.dumps(request.messages)
    )
    hints = [item for item in request.messages if "<context_window>" in json.dumps(item)]
    rest = [item for item in request.messages if item not in hints]
    return json.dumps(hints), json.dumps(rest)


def test_a_new_window_starts_with_the_state_of_the_closed_window(package, tmp_path):
    def configure(file: Path, made: Call) -> None:
        file.write_text(file.read_text() + _TOKEN_BUDGET)
        program = Path(sys.executable).with_name("recto")
        added = [program, "--store", tmp_path / "codex.db", "mcp", "--as", "notes", "add", "codex"]
        subprocess.run(added, env={**os.environ, **made.environment}, check=True, capture_output=True)
        with file.open("a") as config:  # Codex passes on only a few variables; test this source tree
            config.write(f'env = {{ PYTHONPATH = "{_SOURCE}" }}\n')

    with running(ScriptedUpstream(answer=opens_a_window)) as upstream:
        work(package, tmp_path, upstream.url, "none", configure)
    hint, rest = new_window(upstream)
    assert "kestrel" in hint
    assert "5433" in hint
    assert "It carries no instructions" in hint
    assert "kestrel" not in rest
    offered = json.dumps(upstream.asked[-1].body["tools"])
    assert "append_to_file" in offered
    assert "thread_hint" not in offered


def _sign_in(home: Path) -> None:
    """Writes credentials as Codex stores them; only the provider would check the signature."""
    claims = {"exp": 4_000_000_000, "https://api.openai.com/auth": {"chatgpt_account_id": "account"}}
    parts = [json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims)]
    token = ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), "c2ln"])
    tokens = {"id_token": token, "access_token": token, "refresh_token": "none", "account_id": "account"}
    signed = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2026-11-17T00:00:00Z"}
    (home / "auth.json").write_text(json.dumps(signed))


def test_a_signed_in_codex_reads_its_closed_window_at_the_gateway(package, tmp_path):
    def configure(file: Path, made: Call) -> None:
        _sign_in(file.parent)
        text = file.read_text().replace('name = "Recto"', 'name = "OpenAI"').replace('env_key = "RECTO_KEY"\n', "")
        file.write_text(
            f"{text}requires_openai_auth = true\nsupports_websockets = false\n"
            f'http_headers = {{ "x-api-key" = "{made.environment["RECTO_KEY"]}" }}\n'
            "\n[features.token_budget]\nenabled = true\nuse_history_notes_extension = true\n"
        )

    def answer(request: Asked) -> Says:
        history = json.dumps(request.messages)
        if "Previous context window id" in history and "n_returned" not in history:
            return Says("", (("history/search_contents", {"query": "kestrel"}),))
        if "n_returned" in history and '"bytes' not in history.replace("\\", ""):
            return Says("", (("notes/append_to_file", {"path": "plan.md", "text": "Kestrel first.\n"}),))
        return opens_a_window(request)

    (tmp_path / "store").mkdir()
    with (
        running(ScriptedUpstream(answer=answer)) as upstream,
        gateway(tmp_path / "store", upstream.url, speaks=("responses",), models={"gpt-4o": {"window": 64_000}}) as made,
    ):
        work(package, tmp_path, made.url, made.secret, configure)
        [first, *_] = [row.session for row in made.store.sessions() if row.session.startswith("agent:")]
        assert [*read_files(made.store, first)[1]] == ["/root/notes/plan.md"]
    hint, rest = new_window(upstream)
    assert "kestrel" in hint
    assert "5433" in hint
    assert "kestrel" not in rest
    [found] = [
        item["output"]
        for item in upstream.asked[-1].messages
        if item.get("type") == "function_call_output" and "n_returned" in item["output"]
    ]
    assert any(_DECIDED in row["truncated_content"] for row in json.loads(found)["results"])
