"""`recto run`: how each agent is configured for the gateway, and that the gateway stops with the run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.calling import called_at
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.cli._agents import AGENTS, LaunchContext, launch, own_origins

GATEWAY = "http://127.0.0.1:7000"
QUESTION = {"role": "user", "content": "Is the crane in order?"}
CLIENT = """
import json, os, sys, urllib.request
body = json.dumps({"model": "gpt-4o", "messages": json.loads(sys.argv[1])}).encode()
headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", data=body, headers=headers)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
sys.exit(7)
"""
WAIT_FOR_STDIN = "import sys; print('ready', flush=True); sys.stdin.read()"
DEADLINE = 60


def context(**environ: str) -> LaunchContext:
    return LaunchContext(gateway=GATEWAY, environ=environ, folder=Path("/tmp/folder"))  # never created


def signed_in(speaks: frozenset[str] = frozenset(), login: str = "", **environ: str) -> LaunchContext:
    return LaunchContext(
        gateway=GATEWAY,
        environ=environ,
        folder=Path("/tmp/folder"),  # never created
        has_login=True,
        speaks=speaks,
        codex_login=login,
    )


def test_claude_code_keeps_its_own_login_and_its_arguments():
    plan = launch(("claude", "--", "--continue"), signed_in())
    assert plan.command == ("claude", "--continue")
    assert plan.environment["ANTHROPIC_BASE_URL"] == f"{GATEWAY}/to/https://api.anthropic.com"
    assert "ANTHROPIC_API_KEY" not in plan.environment


@pytest.mark.parametrize(
    ("place", "base", "credential"),
    [
        (signed_in(), "/to/https://chatgpt.com/backend-api/codex", "requires_openai_auth=true"),
        (signed_in(login="key"), "/to/https://api.openai.com/v1", "requires_openai_auth=true"),
        (signed_in(OPENAI_API_KEY="sk-own"), "/to/https://api.openai.com/v1", 'env_key="OPENAI_API_KEY"'),
        (signed_in(frozenset({"responses"})), "/v1", 'env_key="OPENAI_API_KEY"'),
        (
            signed_in(OPENAI_API_KEY="sk-own", OPENAI_BASE_URL="http://127.0.0.1:9000/v1/"),
            "/to/http://127.0.0.1:9000/v1",
            'env_key="OPENAI_API_KEY"',
        ),
    ],
)
def test_codex_gets_a_provider_through_its_arguments(place, base, credential):
    plan = launch(("codex", "exec", "fix it"), place)
    assert plan.command[0] == "codex"
    assert plan.command[-2:] == ("exec", "fix it")
    provider = plan.command[4]
    assert f'base_url="{GATEWAY}{base}"' in provider
    assert credential in provider


def test_opencode_gets_base_urls_merged_into_its_settings():
    own = json.dumps({"theme": "dark", "provider": {"openai": {"options": {"apiKey": "x"}}}})
    plan = launch(("opencode",), signed_in(OPENCODE_CONFIG_CONTENT=own))
    settings = json.loads(plan.environment["OPENCODE_CONFIG_CONTENT"])
    assert settings["theme"] == "dark"
    assert settings["provider"]["openai"]["options"] == {
        "apiKey": "x",
        "baseURL": f"{GATEWAY}/to/https://api.openai.com/v1",
    }
    assert settings["provider"]["anthropic"]["options"]["baseURL"] == f"{GATEWAY}/to/https://api.anthropic.com/v1"


def test_pi_gets_an_extension_in_the_temporary_folder():
    plan = launch(("pi", "--continue"), signed_in())
    assert plan.command == ("pi", "-e", "/tmp/folder/recto.js", "--continue")
    assert f"{GATEWAY}/to/https://api.openai.com/v1" in plan.files["recto.js"]


def test_a_command_without_any_key_gets_the_model_on_this_machine_and_a_placeholder():
    plan = launch(("python", "agent.py"), context())
    assert plan.embedded
    assert plan.environment["OPENAI_BASE_URL"] == plan.environment["OPENAI_API_BASE"] == f"{GATEWAY}/v1"
    assert plan.environment["ANTHROPIC_BASE_URL"] == GATEWAY
    assert plan.environment["OPENAI_API_KEY"] == "recto"


def test_a_command_with_a_key_is_forwarded_to_its_provider_and_keeps_the_key():
    plan = launch(("python", "agent.py"), context(OPENAI_API_KEY="sk-own"))
    assert not plan.embedded
    assert plan.environment["OPENAI_BASE_URL"] == f"{GATEWAY}/to/https://api.openai.com/v1"
    assert "OPENAI_API_KEY" not in plan.environment
    assert plan.environment["ANTHROPIC_BASE_URL"] == GATEWAY


def test_configured_upstreams_take_precedence_over_a_client_key():
    plan = launch(("claude",), signed_in(frozenset({"messages"}), ANTHROPIC_API_KEY="sk-own"))
    assert plan.environment["ANTHROPIC_BASE_URL"] == GATEWAY


def test_only_base_urls_set_by_the_caller_are_allowed_as_origins():
    environ = {"OPENAI_BASE_URL": "https://llm.example.com/v1", "ANTHROPIC_BASE_URL": "not an address"}
    assert own_origins(environ) == ["https://llm.example.com"]


def test_every_agent_can_be_prepared():
    for name in AGENTS:
        plan = launch((name, "one"), signed_in())
        assert (plan.command[0], plan.command[-1]) == (name, "one")


def test_a_program_that_is_not_installed_is_reported_before_a_gateway_starts(tmp_path):
    assert "'no-such-agent' is not installed" in called_at(tmp_path, "run", "no-such-agent", code=127)
    assert not (tmp_path / "a.db").exists()


def recto(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "recto", "--store", str(folder / "a.db"), *words]


@pytest.fixture
def upstream():
    with running(ScriptedUpstream(lambda request: Says(text="It is in order."))) as made:
        yield made


def run_with_messages(
    folder: Path, upstream: ScriptedUpstream, *messages: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "OPENAI_BASE_URL": f"{upstream.url}/v1", "OPENAI_API_KEY": "sk-own", "NO_PROXY": "*"}
    return subprocess.run(
        recto(folder, "run", "--", sys.executable, "-c", CLIENT, json.dumps(messages)),
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_a_branch_made_during_a_run_is_not_listed_at_its_end(tmp_path, upstream):
    run_with_messages(tmp_path, upstream, QUESTION)
    history = [QUESTION, {"role": "assistant", "content": "It is in order."}]
    runs = [
        run_with_messages(tmp_path, upstream, *history, {"role": "user", "content": question})
        for question in ("Since when?", "Who says so?")
    ]
    parent, branch = (run.stderr.splitlines()[1:] for run in runs)
    assert len(parent) == len(branch) == 1
    assert parent[0].split()[-1] != branch[0].split()[-1]
    key = parent[0].split()[-1]
    shown = called_at(tmp_path, "--store", str(tmp_path / "a.db"), "session", "show", key)
    assert branch[0].split()[-1] in shown  # the parent session names its branch


def test_a_program_uses_its_own_key_its_exit_code_is_returned_and_its_history_is_stored(tmp_path, upstream):
    done = run_with_messages(tmp_path, upstream, QUESTION)
    assert (done.stdout.strip(), done.returncode) == ("It is in order.", 7), done.stderr
    assert upstream.asked[0].headers["authorization"] == "Bearer sk-own"
    page, session = done.stderr.splitlines()
    assert page.startswith("Recto: http://127.0.0.1:")
    assert "entries; recto session show agent:default:" in session
    assert not is_listening(page)
    key = session.split()[-1]
    assert "Is the crane in order?" in called_at(tmp_path, "--store", str(tmp_path / "a.db"), "session", "show", key)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_gateway_stops_when_the_run_is_terminated_or_killed(tmp_path, number):
    with subprocess.Popen(
        recto(tmp_path, "run", "--", sys.executable, "-c", WAIT_FOR_STDIN),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        page = process.stderr.readline()
        assert process.stdout.readline() == "ready\n"
        assert is_listening(page)
        process.send_signal(number)
        assert process.wait(DEADLINE) == (128 + number if number == signal.SIGTERM else -number)
        ends = time.monotonic() + DEADLINE
        while is_listening(page):
            assert time.monotonic() < ends


def is_listening(line: str) -> bool:
    """Whether the gateway whose URL is in this line accepts connections."""
    host, _, port = line.partition("http://")[2].partition("/")[0].partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
