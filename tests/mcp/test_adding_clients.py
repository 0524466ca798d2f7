"""`recto mcp add` and `remove` edit the client's own file and leave its other settings unchanged."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from tests.cli.calling import called_at

from recto.mcp.client_config import CLIENTS, KEY_PROMPT, McpClient

URL = "http://127.0.0.1:8642"
JSON = [client for client in CLIENTS if client.form == "json"]
REMOTE = [client for client in CLIENTS if client.remote is not None]
OTHERS = {"theme": "dark", "nested": {"keep": [1, 2.5, None, "ä \u2028"]}}
CODEX = """# mine, do not touch
model = "gpt-5"   # the usual

[mcp_servers.other]
command = "other"
args = ["--flag", "[mcp_servers.recto]"]

[profiles.work]
model = "o3"
"""


def names(client: McpClient) -> str:
    return client.name


def servers_in(home: Path, client: McpClient) -> dict:
    text = (home / client.path).read_text(encoding="utf-8")
    found = tomllib.loads(text) if client.form == "toml" else json.loads(text)
    return found[client.within]


@pytest.mark.parametrize("client", CLIENTS, ids=names)
def test_a_client_without_a_file_gets_one_that_starts_this_installation(tmp_path, client):
    called_at(tmp_path, "--store", "here.db", "mcp", "--session", "agent:a:main", "--read-only", "add", client.name)
    entry = servers_in(tmp_path, client)["recto"]
    assert Path(entry["command"]).name == "recto"
    assert Path(entry["command"]).exists()
    expected = ["--store", str(tmp_path / "here.db"), "mcp", "--session", "agent:a:main", "--read-only"]
    assert entry["args"] == expected
    assert (tmp_path / client.path).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("client", REMOTE, ids=names)
def test_a_gateway_is_added_by_its_url_and_the_key_is_never_written(tmp_path, client, monkeypatch):
    monkeypatch.setenv("MY_KEY", "rk-secret")
    called_at(tmp_path, "mcp", "add", client.name, "--url", f"{URL}/", "--key-env", "MY_KEY")
    text = (tmp_path / client.path).read_text()
    assert f"{URL}/mcp" in text
    assert "rk-secret" not in text
    assert "recto-key" in text if client.prompts_for_key else "MY_KEY" in text


@pytest.mark.parametrize("client", JSON, ids=names)
def test_other_settings_stay_and_the_original_file_is_backed_up(tmp_path, client):
    path = tmp_path / client.path
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.dumps({**OTHERS, client.within: {"other": {"command": "other"}}}, indent="\t")
    path.write_text(before)
    path.chmod(0o640)
    output = called_at(tmp_path, "mcp", "add", client.name)
    backup = path.with_name(f"{path.name}.before-recto")
    assert str(backup) in output
    assert backup.read_text() == before
    found = json.loads(path.read_text())
    assert {name: found[name] for name in OTHERS} == OTHERS
    assert set(found[client.within]) == {"other", "recto"}
    assert '\n\t"' in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert "already" in called_at(tmp_path, "mcp", "add", client.name)
    called_at(tmp_path, "mcp", "remove", client.name)
    assert json.loads(path.read_text()) == json.loads(before)
    assert "does not know" in called_at(tmp_path, "mcp", "remove", client.name)
    assert backup.read_text() == before
    assert path.with_name(f"{path.name}.before-recto-2").exists()


def test_an_editors_prompt_for_the_key_is_added_once_and_removed_again(tmp_path):
    client = next(candidate for candidate in CLIENTS if candidate.prompts_for_key)
    path = tmp_path / client.path
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"inputs": [{"id": "other"}], "servers": {}}))
    called_at(tmp_path, "mcp", "add", client.name, "--url", URL)
    called_at(tmp_path, "mcp", "add", client.name, "--url", "https://recto.example")
    found = json.loads(path.read_text())
    assert found["inputs"] == [{"id": "other"}, KEY_PROMPT]
    assert found["servers"]["recto"]["url"] == "https://recto.example/mcp"
    called_at(tmp_path, "mcp", "remove", client.name)
    assert json.loads(path.read_text()) == {"inputs": [{"id": "other"}], "servers": {}}


def test_a_toml_file_keeps_its_comments_and_the_order_of_everything(tmp_path):
    path = tmp_path / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text(CODEX)
    called_at(tmp_path, "mcp", "add", "codex")
    assert path.read_text().startswith(CODEX.rstrip())
    called_at(tmp_path, "mcp", "add", "codex", "--url", URL)
    found = tomllib.loads(path.read_text())
    assert found["mcp_servers"]["recto"] == {"url": f"{URL}/mcp", "bearer_token_env_var": "RECTO_KEY"}
    path.write_text(path.read_text() + '\n[mcp_servers.recto.env]\nA = "b"\n\n[last]\nx = 1\n')
    called_at(tmp_path, "mcp", "remove", "codex")
    text = path.read_text()
    assert text.startswith(CODEX.rstrip())
    assert tomllib.loads(text) == {**tomllib.loads(CODEX), "last": {"x": 1}}


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("claude-code", "{"),
        ("claude-code", "[]"),
        ("claude-code", '{"mcpServers": []}'),
        ("claude-code", '{"a": 1, "a": 2}'),
        ("zed", '// my settings\n{"context_servers": {}}'),
        ("vscode", '{"servers": {}, "inputs": {}}'),
        ("codex", "[mcp_servers.recto\n"),
        ("codex", 'mcp_servers = {other = {command = "x"}}\n'),
        ("codex", 'mcp_servers = {recto = {command = "x"}}\n'),
        ("codex", "mcp_servers = 3\n"),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_left_unchanged(tmp_path, client, text):
    path = next(tmp_path / known.path for known in CLIENTS if known.name == client)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    url = ("--url", URL) if client == "vscode" else ()
    output = called_at(tmp_path, "mcp", "add", client, *url, code=3)
    assert "Nothing was changed" in output
    assert path.read_text() == text
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_symbolic_link_stays_a_link_and_its_target_is_changed(tmp_path):
    real = tmp_path / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").symlink_to(real)
    called_at(tmp_path, "mcp", "add", "cursor")
    assert (tmp_path / ".cursor" / "mcp.json").is_symlink()
    assert "recto" in json.loads(real.read_text())["mcpServers"]


def test_print_shows_the_entry_and_writes_nothing(tmp_path):
    shown = called_at(tmp_path, "mcp", "add", "cursor", "--print")
    assert "recto" in json.loads(shown)["mcpServers"]
    assert list(tmp_path.iterdir()) == []


def test_options_that_a_client_does_not_support_are_refused(tmp_path):
    assert "takes no gateway" in called_at(tmp_path, "mcp", "add", "claude-desktop", "--url", URL, code=3)
    assert "http://" in called_at(tmp_path, "mcp", "add", "cursor", "--url", "localhost:1", code=2)
    assert "variable" in called_at(tmp_path, "mcp", "add", "cursor", "--url", URL, "--key-env", "a b", code=2)
    address = "postgresql://recto:secret@db/recto"
    assert "password" in called_at(tmp_path, "--store", address, "mcp", "add", "cursor", code=2)
    assert list(tmp_path.iterdir()) == []


def test_another_file_can_be_named(tmp_path):
    called_at(tmp_path, "mcp", "add", "claude-code", "--file", ".mcp.json")
    assert "recto" in json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]
    called_at(tmp_path, "mcp", "remove", "claude-code", "--file", ".mcp.json")
    assert json.loads((tmp_path / ".mcp.json").read_text()) == {"mcpServers": {}}
