"""`recto plugin` installs into coding agents and uninstalls without a trace; the status line of Claude Code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.calling import called_at

from recto.adapters.plugins import SEATS
from recto.adapters.status_line import status_line

STATUS = {
    "model": {"id": "claude-sonnet-4-5"},
    "context_window": {"context_window_size": 200_000, "used_percentage": 43, "total_input_tokens": 86_000},
    "prompt_cache": {"expires_at": 1_252},
}


def file_contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("seat", SEATS)
def test_a_seat_in_an_empty_home_leaves_an_empty_home(tmp_path, seat):
    called_at(tmp_path, "plugin", "install", seat)
    assert file_contents(tmp_path)
    called_at(tmp_path, "plugin", "install", seat)
    called_at(tmp_path, "plugin", "uninstall", seat)
    assert file_contents(tmp_path) == {}
    assert "nothing of Recto" in called_at(tmp_path, "plugin", "uninstall", seat)


def test_uninstall_keeps_later_changes_of_the_settings(tmp_path):
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"theme": "dark"}')
    called_at(tmp_path, "plugin", "install", "claude-code")
    known = json.loads(settings.read_text())
    settings.write_text(json.dumps({**known, "model": "opus"}))
    called_at(tmp_path, "plugin", "uninstall", "claude-code")
    assert json.loads(settings.read_text()) == {"theme": "dark", "model": "opus"}


def test_uninstall_restores_the_previous_openclaw_engine_and_keeps_later_changes(tmp_path):
    settings = tmp_path / ".openclaw" / "openclaw.json"
    settings.parent.mkdir()
    settings.write_text('{"plugins": {"slots": {"contextEngine": "other"}}}')
    before = settings.read_bytes()
    called_at(tmp_path, "plugin", "install", "openclaw")
    assert json.loads(settings.read_text())["plugins"]["slots"] == {"contextEngine": "recto"}
    called_at(tmp_path, "plugin", "uninstall", "openclaw")
    assert settings.read_bytes() == before
    called_at(tmp_path, "plugin", "install", "openclaw")
    changed = {**json.loads(settings.read_text()), "gateway": {}}
    settings.write_text(json.dumps(changed))
    called_at(tmp_path, "plugin", "uninstall", "openclaw")
    assert json.loads(settings.read_text()) == {"plugins": {}, "gateway": {}}


def test_an_existing_status_line_is_left_unchanged(tmp_path):
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"statusLine": {"type": "command", "command": "mine"}}')
    before = settings.read_bytes()
    called_at(tmp_path, "plugin", "install", "claude-code")
    assert settings.read_bytes() == before
    called_at(tmp_path, "plugin", "uninstall", "claude-code")
    assert settings.read_bytes() == before


def test_a_file_of_the_user_is_never_overwritten(tmp_path):
    file = tmp_path / ".pi" / "agent" / "extensions" / "recto.ts"
    file.parent.mkdir(parents=True)
    file.write_text("// mine")
    assert "Nothing was changed" in called_at(tmp_path, "plugin", "install", "pi", code=3)
    assert file.read_text() == "// mine"


def test_a_marketplace_lists_the_plugin_it_contains(tmp_path):
    called_at(tmp_path, "plugin", "marketplace", str(tmp_path / "market"))
    listed = json.loads((tmp_path / "market" / ".claude-plugin" / "marketplace.json").read_text())
    [plugin] = listed["plugins"]
    folder = tmp_path / "market" / plugin["source"]
    assert json.loads((folder / ".claude-plugin" / "plugin.json").read_text())["name"] == plugin["name"]
    assert json.loads((folder / ".mcp.json").read_text())["mcpServers"]["recto"]["command"] == "recto"
    assert "carries no instructions" in (folder / "skills" / "search-history" / "SKILL.md").read_text()


def test_the_status_line_shows_fill_cache_lifetime_and_the_cost_to_continue():
    assert status_line(STATUS, now=1_000, models={}) == (
        "recto · 43 % of 200K · cache 4:12 left · continue $0.026 (cold $0.32)"
    )
    cold = status_line(STATUS, now=2_000, models={})
    assert cold == "recto · 43 % of 200K · cache cold · continue $0.32"


@pytest.mark.parametrize("status", [{}, {"context_window": None, "model": 3}, {"prompt_cache": {"expires_at": None}}])
def test_unknown_values_are_omitted_from_the_status_line(status):
    assert status_line(status, now=0, models={}) == "recto"
