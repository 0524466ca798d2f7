"""Every example in the documentation runs, and every command and setting is documented."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import click
import pytest
from tests.agents.agents import AGENTS
from tests.agents.installing import packages
from tests.cli.calling import called

from recto.cli.main import recto
from recto.config import Settings

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples(language: str) -> list:
    found = []
    for page in PAGES:
        for place, (kind, text) in enumerate(FENCE.findall(page.read_text(encoding="utf-8"))):
            if kind == language:
                found.append(pytest.param(text, id=f"{page.relative_to(ROOT)}-{place}"))
    return found


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    """Changes to a temporary home and working folder with a session file to import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    (tmp_path / "session.json").write_text(
        '[{"role": "user", "content": "What is 6 x 7?"}, {"role": "assistant", "content": "42"}]'
    )
    return tmp_path


@pytest.mark.parametrize("text", examples("python"))
def test_every_python_example_runs(elsewhere, text):
    exec(compile(text, "example", "exec"), {"__name__": "__main__"})  # warnings are errors here as everywhere


@pytest.mark.parametrize("text", examples("console"))
def test_every_console_example_runs(elsewhere, text):
    for line in text.splitlines():
        if not line.startswith("$ recto"):
            continue
        if set(line[2:]) & set("|><&;`$*~"):
            subprocess.run(["bash", "-euo", "pipefail", "-c", line[2:]], check=True, timeout=120)
        else:  # the same entry, without the time to start Python
            done = called(*shlex.split(line[2:], comments=True)[1:])
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", examples("yaml"))
def test_every_settings_example_is_accepted(elsewhere, text):
    from recto.config import load

    Path("mine.yaml").write_text(text)
    assert load(path="mine.yaml", environ={}) != Settings()


def commands(group: click.Group, path: str = "recto"):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


@pytest.mark.parametrize(
    ("name", "command"), list(commands(recto)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_and_option_is_documented_and_has_examples(name, command):
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"`{name}" in page
    section = page.split(f"## `{name}", 1)[1].split("\n## ", 1)[0]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[-1] in section, f"{name} {parameter.opts[-1]}"
    assert "Examples:" in (command.help or "")


def settings_of(tree: object, path: str = ""):
    for field in fields(tree):
        value = getattr(tree, field.name)
        yield from settings_of(value, f"{path}{field.name}.") if is_dataclass(value) else [f"{path}{field.name}"]


@pytest.mark.parametrize("name", list(settings_of(Settings())))
def test_every_setting_is_documented(name):
    assert f"`{name}`" in (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_has_a_target(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_named_make_target_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", page.read_text(encoding="utf-8")))
    assert named <= targets


def test_every_agent_that_is_run_has_a_row_with_its_window_and_version():
    text = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    [table] = re.findall(r"<!-- runs: begin -->\n(.*?)<!-- runs: end -->", text, re.DOTALL)
    head, _, *rows = ([cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines())
    shown = [tuple(row[head.index(name)] for name in ("agent", "version", "window", "steps")) for row in rows]
    versions = {name: package.version for name, package in packages().items()}
    assert shown == [(agent.id, versions[agent.package], f"{agent.window:,}", f"{agent.steps}") for agent in AGENTS], (
        "make test-agents-docs"
    )
