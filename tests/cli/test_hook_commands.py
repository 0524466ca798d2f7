"""Hooks of coding agents: they store the transcript, never block the host, and leave its settings intact."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.calling import called, called_at, own_file

import recto
from recto.engine.projection import CHECKPOINT, HANDOFF
from recto.transcript.entries import MESSAGE

ID = "61cb3ba8-484b-4a21-bf99-34f7dc361170"
ROLLOUT = "0199a000-0000-7000-8000-000000000001"
EVENTS = {"claude-code": ["PreCompact", "SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"]}
EVENTS["codex"] = ["PreCompact", "SessionStart", "UserPromptSubmit", "Stop"]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def transcript(home, data) -> Path:
    """A real Claude Code session file at its usual path."""
    folder = home / ".claude" / "projects" / "-work-shop"
    folder.mkdir(parents=True)
    file = folder / f"{ID}.jsonl"
    shutil.copyfile(data / "agent_sessions" / "entireio_cli" / file.name, file)
    return file


def rollout(home: Path) -> Path:
    """Writes a Codex session file at its usual path."""
    folder = home / ".codex" / "sessions" / "2026" / "11" / "15"
    folder.mkdir(parents=True)
    file = folder / f"rollout-2026-11-15T10-00-00-{ROLLOUT}.jsonl"
    exchange = [
        ("user", "Make the tests of billing pass."),
        ("assistant", "We decided to use port 5433 for the database."),
    ]
    lines: list[dict[str, Any]] = [{"type": "session_meta", "payload": {"id": ROLLOUT, "cwd": "/srv/shop"}}]
    for role, text in exchange:
        part = {"type": "input_text" if role == "user" else "output_text", "text": text}
        item = {"type": "message", "role": role, "content": [part]}
        lines.append({"type": "response_item", "payload": item})
    file.write_text("".join(json.dumps({"timestamp": "2026-11-15T10:00:00Z", **line}) + "\n" for line in lines))
    return file


def hook_payload(event: str, transcript: Path | None, **more: Any) -> str:
    """The JSON that a host passes to a hook."""
    fields = {"session_id": ID, "transcript_path": transcript and str(transcript), "cwd": "/srv/shop"}
    return json.dumps({**fields, "hook_event_name": event, **more})


def hook(agent: str, event: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    done = called("--store", "agent.db", "hook", agent, event, *options, typed=text)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    return done


def kinds(session: str) -> list[str]:
    with recto.open("agent.db", session=session) as found:
        assert found.verify().ok
        return [entry.kind for entry in found.read()]


def replayed_handoff(output: str) -> str:
    answer = json.loads(output)["hookSpecificOutput"]
    assert answer["hookEventName"] == "SessionStart"
    return answer["additionalContext"]


@pytest.mark.requirement("handoff.hosts")
def test_before_compaction_the_transcript_is_stored_and_the_handoff_is_delivered_once(transcript):
    lines = transcript.read_text().splitlines()
    done = hook(
        "claude-code", "PreCompact", hook_payload("PreCompact", transcript, trigger="auto", custom_instructions="")
    )
    assert (done.stdout, done.stderr) == ("", "")
    found = kinds(ID)
    assert len([kind for kind in found if kind == MESSAGE]) > 30
    assert {CHECKPOINT, HANDOFF} <= set(found)
    exported = called("--store", "agent.db", "session", "export", ID, "--as", "original")
    assert exported.stdout.splitlines() == lines
    text = replayed_handoff(
        hook("claude-code", "SessionStart", hook_payload("SessionStart", transcript, source="compact")).stdout
    )
    assert text.startswith("[Handoff:")
    assert "Goal:" in text
    again = hook("claude-code", "SessionStart", hook_payload("SessionStart", transcript, source="compact"))
    assert (again.stdout, again.stderr) == ("", "")


def test_new_messages_are_stored_once_after_each_turn(transcript):
    whole = transcript.read_bytes()
    lines = whole.splitlines(keepends=True)
    for upto in (len(lines) // 2, len(lines) // 2, len(lines)):
        transcript.write_bytes(b"".join(lines[:upto]))
        assert hook("claude-code", "Stop", hook_payload("Stop", transcript, stop_hook_active=False)).stdout == ""
    hook("claude-code", "SessionEnd", hook_payload("SessionEnd", transcript, reason="exit"))
    with recto.open("agent.db", session=ID) as found:
        places = [json.loads(entry.meta).get("place") for entry in found.read() if entry.kind != "imported"]
    assert places == list(range(len(places)))
    assert called("--store", "agent.db", "session", "export", ID, "--as", "original").stdout.encode() == whole


def test_a_new_session_receives_the_checkpoint_of_the_previous_session(transcript):
    hook("claude-code", "Stop", hook_payload("Stop", transcript))
    called("--store", "agent.db", "checkpoint", "--session", ID, "--doing", "rename the helper")
    new = transcript.with_name("9d7a9d52-7eb4-427d-847d-ee5451884f3d.jsonl")
    begun = hook_payload("SessionStart", new, session_id=new.stem, source="startup")
    assert "rename the helper" in replayed_handoff(hook("claude-code", "SessionStart", begun).stdout)
    assert hook("claude-code", "SessionStart", begun).stdout == ""


def test_a_session_start_without_a_pending_handoff_is_silent(transcript):
    for source in ("startup", "resume", "compact"):
        done = hook("claude-code", "SessionStart", hook_payload("SessionStart", transcript, source=source))
        assert (done.stdout, done.stderr) == ("", "")


def test_codex_hooks_store_messages_and_deliver_the_handoff(home):
    file = rollout(home)
    fields: dict[str, Any] = {"session_id": ROLLOUT, "model": "gpt-5.1-codex"}
    hook("codex", "Stop", hook_payload("Stop", file, **fields))
    hook("codex", "PreCompact", hook_payload("PreCompact", file, trigger="manual", **fields))
    found = kinds(ROLLOUT)
    assert found.count(MESSAGE) == 2
    assert {CHECKPOINT, HANDOFF} <= set(found)
    text = replayed_handoff(
        hook("codex", "SessionStart", hook_payload("SessionStart", file, source="compact", **fields)).stdout
    )
    assert "tests of billing" in text
    assert "5433" in text


def injected_quote(
    transcript: Path | None = None, *, prompt: str = "Which port does the database use?", **more: Any
) -> str:
    """The text that the hook adds to a prompt of a new session, or an empty string."""
    fields: dict[str, Any] = {"session_id": "new", "prompt": prompt, **more}
    done = hook("claude-code", "UserPromptSubmit", hook_payload("UserPromptSubmit", transcript, **fields))
    assert done.stderr == ""
    if not done.stdout:
        return ""
    answer = json.loads(done.stdout)["hookSpecificOutput"]
    assert answer["hookEventName"] == "UserPromptSubmit"
    return answer["additionalContext"]


def test_a_prompt_receives_quoted_history_of_another_agent_in_the_project_with_its_source(home):
    called_at(home, "--store", "agent.db", "import", str(rollout(home)))
    lines = injected_quote().split("\n")
    assert lines[0].startswith("[Quoted from earlier sessions of this project")
    assert "carries no instructions" in lines[0]
    [heading] = [line for line in lines if line.startswith(f"recto://{ROLLOUT}/3 ")]
    assert heading.endswith("codex in /srv/shop")
    assert "> We decided to use port 5433 for the database." in lines
    assert "5433" in injected_quote(cwd="/srv")
    assert injected_quote(cwd="/srv/other") == ""
    assert injected_quote(cwd="/srv/shop/parser") == ""


def test_a_prompt_receives_no_quote_if_nothing_is_relevant_or_recall_is_off(home, monkeypatch):
    assert injected_quote() == ""
    called_at(home, "--store", "agent.db", "import", str(rollout(home)))
    for prompt in ("Write a poem about whales.", "", "/compact the port of the database"):
        assert injected_quote(prompt=prompt) == ""
    monkeypatch.setenv("RECTO_RECALL__INJECT", "false")
    assert injected_quote() == ""


def test_messages_in_the_agents_own_window_are_not_quoted(home):
    file, own = rollout(home), {"session_id": ROLLOUT}
    hook("codex", "Stop", hook_payload("Stop", file, **own))
    assert injected_quote(file, **own) == ""
    hook("codex", "PreCompact", hook_payload("PreCompact", file, **own))
    assert injected_quote(file, **own) == ""
    hook("codex", "SessionStart", hook_payload("SessionStart", file, source="compact", **own))
    assert "5433" in injected_quote(file, **own), "the compaction has removed it from the window of the agent"


def test_no_message_is_quoted_twice_in_a_session_and_no_quotation_is_quoted(home):
    called_at(home, "--store", "agent.db", "import", str(rollout(home)))
    text = injected_quote()
    line = {"type": "user", "sessionId": "new", "uuid": "1", "cwd": "/srv/shop"}
    file = home / "new.jsonl"
    file.write_text(json.dumps({**line, "message": {"role": "user", "content": text}}) + "\n")
    assert injected_quote(file) == ""
    called_at(home, "--store", "agent.db", "import", str(file))
    assert injected_quote(session_id="a third").count("5433") == text.count("5433")


def hook_that_lists(heavy: str, event: str, text: str) -> subprocess.CompletedProcess[str]:
    """Runs a hook in a new process, which prints to stderr which of these modules it has loaded."""
    program = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print([name for name in {heavy.split()} if name in sys.modules], file=sys.stderr))\n"
        f"sys.argv = ['recto', '--store', 'agent.db', 'hook', 'claude-code', {event!r}]\n"
        "from recto.cli.main import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        input=text,
        env={name: value for name, value in os.environ.items() if not name.startswith("RECTO_")},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_prompt_hook_loads_only_what_a_lexical_search_needs(home):
    called_at(home, "--store", "agent.db", "import", str(rollout(home)))
    payload = hook_payload("UserPromptSubmit", None, session_id="new", prompt="Which port does the database use?")
    heavy = "rich yaml splintr tiktoken tokenizers onnxruntime recto.models.embedders recto.engine.projection asyncio"
    done = hook_that_lists(heavy, "UserPromptSubmit", payload)
    assert "5433" in done.stdout
    assert done.stderr == "[]\n"


def test_a_hook_without_a_search_does_not_load_numpy(transcript):
    for event, more in {
        "Stop": {},
        "UserPromptSubmit": {"prompt": "Which port does the database use?"},
        "PreCompact": {"trigger": "auto"},
        "SessionStart": {"source": "compact"},
    }.items():
        done = hook_that_lists("numpy", event, hook_payload(event, transcript, **more))
        assert done.stderr == "[]\n", event
    done = hook_that_lists(
        "numpy", "UserPromptSubmit", hook_payload("UserPromptSubmit", transcript, prompt="What was done?")
    )
    assert done.stderr == "['numpy']\n", "after a compaction the hook searches the session's own history"


@pytest.mark.parametrize("agent", EVENTS)
def test_the_recall_hook_can_be_omitted(home, agent):
    shown = json.loads(called_at(home, "hook", "install", agent, "--no-recall", "--print"))
    assert list(shown["hooks"]) == [event for event in EVENTS[agent] if event != "UserPromptSubmit"]
    file = home / {"claude-code": ".claude/skills/recto/hooks/hooks.json", "codex": ".codex/hooks.json"}[agent]
    called_at(home, "plugin", "install", agent)
    assert "UserPromptSubmit" in file.read_text()
    called_at(home, "plugin", "install", agent, "--no-recall")
    assert "UserPromptSubmit" not in file.read_text()
    assert "PreCompact" in file.read_text()


def test_sub_agents_in_the_same_file_are_separate_sessions(home):
    folder = home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    file = folder / f"{ID}.jsonl"
    lines = [
        {"type": "user", "sessionId": ID, "uuid": "1", "message": {"role": "user", "content": "Look around."}},
        {"type": "user", "sessionId": ID, "isSidechain": True, "agentId": "a1", "uuid": "2"},
    ]
    lines[1]["message"] = {"role": "user", "content": "You are a sub-agent."}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert hook("claude-code", "Stop", hook_payload("Stop", file)).stderr == ""
    assert kinds(ID).count(MESSAGE) == 1
    assert kinds(f"{ID}/a1").count(MESSAGE) == 1
    hook("claude-code", "PreCompact", hook_payload("PreCompact", file, agent_id="a1"))
    assert CHECKPOINT not in kinds(ID)


@pytest.mark.parametrize("agent", EVENTS)
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"session_id": 7}', '{"session_id": "tenant:x/y"}', "\x00" * 9])
def test_any_input_exits_with_0_and_one_line_on_stderr(home, agent, text):
    for event in (*EVENTS[agent], "Whatever"):
        done = hook(agent, event, text)
        assert done.stdout == ""
        assert done.stderr.startswith("recto hook: ")
        assert done.stderr.count("\n") == 1


def test_a_missing_transcript_is_not_a_failure(home):
    for path in (None, home / "nowhere.jsonl", home):
        for event in EVENTS["claude-code"]:
            done = hook("claude-code", event, hook_payload(event, path))
            assert (done.stdout, done.stderr) == ("", "")


def test_a_partly_written_line_does_not_block_the_others(transcript):
    whole = transcript.read_bytes()
    transcript.write_bytes(whole + b'{"type":"user","message":{"role":"us')
    assert hook("claude-code", "PreCompact", hook_payload("PreCompact", transcript)).stderr == ""
    assert CHECKPOINT in kinds(ID)


@pytest.mark.parametrize("wrong", ["recto.yaml", "store"])
def test_invalid_settings_and_a_broken_store_do_not_block_the_host(home, wrong):
    store = "agent.db"
    if wrong == "store":
        store = str(home / "broken.db")
        Path(store).write_bytes(b"this is no database" * 1000)
    else:
        own_file(home).write_text("nothing_like_this: 1\n")
    done = called("--store", store, "hook", "claude-code", "Stop", typed=hook_payload("Stop", None))
    assert done.returncode == 0
    assert done.stderr.startswith("recto hook: ")


def test_a_slow_hook_is_abandoned_after_its_timeout(home):
    """Runs a new process: its standard input stays open and empty, and the hook must not wait for it forever."""
    code = "from recto.cli.main import main; main()"
    program = [sys.executable, "-c", code, "--store", "agent.db", "hook", "claude-code", "Stop", "--seconds", "0.1"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "not ready after 0.1 seconds" in process.stderr.read()
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("agent", EVENTS)
def test_hooks_are_installed_and_removed_and_other_settings_stay(home, agent):
    path = home / {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json"}[agent]
    path.parent.mkdir(parents=True)
    own = {"type": "command", "command": "echo mine", "timeout": 5}
    before = {
        "model": "opus",
        "hooks": {
            "PreCompact": [{"matcher": "auto", "hooks": [own]}],
            "PreToolUse": [{"matcher": "Bash", "hooks": [own]}],
            "Empty": [],
        },
        "permissions": {"allow": ["Bash(ls:*)"]},
    }
    path.write_text(json.dumps(before, indent=4))
    output = called_at(home, "--store", "work.db", "hook", "install", agent)
    assert "As it was" in output
    made = json.loads(path.read_text())
    assert {name: value for name, value in made.items() if name != "hooks"} == {
        name: value for name, value in before.items() if name != "hooks"
    }
    assert path.read_text().startswith('{\n    "model"')
    assert made["hooks"]["PreCompact"][0] == before["hooks"]["PreCompact"][0]
    assert made["hooks"]["PreToolUse"] == before["hooks"]["PreToolUse"]
    for event in EVENTS[agent]:
        words = shlex.split(made["hooks"][event][-1]["hooks"][0]["command"])
        assert words[1:] == ["--store", str(home / "work.db"), "hook", agent, event]
    assert path.with_name(f"{path.name}.before-recto").read_text() == json.dumps(before, indent=4)
    assert "already" in called_at(home, "--store", "work.db", "hook", "install", agent)
    called_at(home, "--store", "other.db", "hook", "install", agent)  # replaced, not duplicated
    text = path.read_text()
    assert text.count(f"hook {agent} PreCompact") == 1
    assert "other.db" in text
    called_at(home, "hook", "remove", agent)
    assert json.loads(path.read_text()) == before
    assert "no hooks of Recto" in called_at(home, "hook", "remove", agent)


def test_the_installed_command_works(transcript):
    called_at(transcript.parents[3], "--store", "agent.db", "hook", "install", "claude-code")
    settings = json.loads((transcript.parents[2] / "settings.json").read_text())
    command = settings["hooks"]["PreCompact"][0]["hooks"][0]["command"]
    typed = hook_payload("PreCompact", transcript)
    done = subprocess.run(["sh", "-c", command], input=typed, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert CHECKPOINT in kinds(ID)


def test_project_hooks_are_stored_in_the_project_and_print_writes_no_file(home):
    shown = json.loads(called_at(home, "hook", "install", "claude-code", "--project", "--print"))
    assert list(shown["hooks"]) == EVENTS["claude-code"]
    assert list(home.iterdir()) == []
    called_at(home, "hook", "install", "claude-code", "--project")
    assert json.loads((home / ".claude" / "settings.local.json").read_text()) == shown
    called_at(home, "hook", "remove", "claude-code", "--project")
    assert json.loads((home / ".claude" / "settings.local.json").read_text()) == {}
    called_at(home, "hook", "install", "claude-code", "--project", "--user", code=2)


@pytest.mark.parametrize("text", ["{", "// mine\n{}", "[]", '{"hooks": []}', '{"hooks": {"Stop": 1}}', '{"a":1,"a":2}'])
def test_invalid_host_settings_are_left_unchanged(home, text):
    path = home / ".codex" / "hooks.json"
    path.parent.mkdir()
    path.write_text(text)
    assert "Nothing was changed" in called_at(home, "hook", "install", "codex", code=3)
    assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]
