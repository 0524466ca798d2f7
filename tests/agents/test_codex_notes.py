"""Real Codex: what was said in a closed window is in the next one, through `recto mcp --as notes` and the gateway."""

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


def opens_a_window(asked: Asked) -> Says:
    """Decides something, and asks for a new window when it is asked to go on."""
    said = json.dumps(asked.messages)
    if "Go on." in said and "new_context" not in said:
        return Says("", (("new_context", {}),))
    return Says(_DECIDED if "Go on." not in said and "Previous context window id" not in said else "Done.")


def run(made: Call, folder: Path) -> None:
    ended = subprocess.run(
        made.command,
        cwd=folder / "work",
        env=made.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def work(package: Package, folder: Path, url: str, key: str, configure: Callable[[Path, Call], None]) -> None:
    """Two turns; the second opens a new window."""
    (folder / "work").mkdir()
    for place, task in enumerate((_TASK, "Go on.")):
        made = call(_CODEX, package, folder, url, key, task, resume=place > 0)
        configure(folder / "home" / ".codex" / "config.toml", made)
        run(made, folder)


def new_window(upstream: ScriptedUpstream) -> tuple[str, str]:
    """What the first request of the new window says about earlier windows, and the rest of it."""
    asked = next(one for one in upstream.asked if "Previous context window id" in json.dumps(one.messages))
    about = [item for item in asked.messages if "<context_window>" in json.dumps(item)]
    rest = [item for item in asked.messages if item not in about]
    return json.dumps(about), json.dumps(rest)


def test_a_new_window_begins_with_the_state_of_the_closed_one(package, tmp_path):
    def configure(file: Path, made: Call) -> None:
        file.write_text(file.read_text() + _TOKEN_BUDGET)
        program = Path(sys.executable).with_name("recto")
        added = [program, "--store", tmp_path / "codex.db", "mcp", "--as", "notes", "add", "codex"]
        subprocess.run(added, env={**os.environ, **made.environment}, check=True, capture_output=True)
        with file.open("a") as config:  # Codex passes on a few variables only, and it is this source that is tested
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
    """A sign-in as Codex stores it; nothing checks its signature but the provider."""
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

    def answer(asked: Asked) -> Says:
        said = json.dumps(asked.messages)
        if "Previous context window id" in said and "n_returned" not in said:
            return Says("", (("history/search_contents", {"query": "kestrel"}),))
        if "n_returned" in said and '"bytes' not in said.replace("\\", ""):
            return Says("", (("notes/append_to_file", {"path": "plan.md", "text": "Kestrel first.\n"}),))
        return opens_a_window(asked)

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
