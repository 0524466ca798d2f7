"""The package under its own name: what people are asked to install, and how it behaves where it is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from recto.version import DISTRIBUTION, install_command

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TEXTS = sorted(
    file
    for place in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", "src", "deploy", "web/src")
    for file in ((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place])
    if file.suffix in (".md", ".py", ".yaml", ".yml", ".toml", ".tsx", ".ts", ".service", ".conf")
    and "src/recto/web" not in str(file)
)
INSTALLS = re.compile(r"(?:pip3? install|pipx (?:install|run)|uv (?:add|pip install|tool install|tool run)|uvx)\s+(.+)")
OURS = re.compile(r"(?<![\w./:@-])recto(?:-ai)?(?:\[([\w,-]*)\])?(?![\w./-])")
WITHOUT_POSIX = """
import os, sys
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None  # importing it fails
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "fchmod", "fork", "getuid", "killpg"):
    if hasattr(os, name):
        delattr(os, name)
os.supports_dir_fd = set()
"""
LIBRARY = """
import recto
with recto.open(sys.argv[1], model="gpt-4o") as session:
    session.append({"role": "user", "content": "The port is 8642."})
    session.append({"role": "assistant", "content": "Noted."})
    session.checkpoint(goal="remember the port")
    assert session.prompt().messages
    assert session.recall("which port").hits
    assert session.verify().ok
"""


def test_no_text_asks_people_to_install_another_project():
    wrong = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in TEXTS
        for line in file.read_text(encoding="utf-8").splitlines()
        if (found := INSTALLS.search(line)) and _names_another_project(found[1])
    ]
    assert not wrong


def _names_another_project(arguments: str) -> bool:
    """Whether a command installs `recto`, which is another project, or an extra that does not exist."""
    words = re.split(r"&&|#|`", arguments)[0]
    for match in OURS.finditer(words):
        extras = set((match[1] or "").split(",")) - {""}
        if not match[0].startswith(DISTRIBUTION) or not extras <= set(PROJECT["optional-dependencies"]):
            return True
    return False


@pytest.mark.parametrize("line", ["pip install recto", "pip install 'recto[gateway]'", "uvx recto demo"])
def test_the_check_finds_the_other_project(line):
    assert _names_another_project(INSTALLS.search(line)[1])


def test_messages_name_the_distribution_and_its_extras():
    assert PROJECT["name"] == DISTRIBUTION
    assert install_command() == "pip install recto-ai"
    assert install_command("gateway", "mcp") == "pip install 'recto-ai[gateway,mcp]'"
    assert set(PROJECT["scripts"]) == {"recto", "recto-ai"}


def test_the_library_works_without_posix(tmp_path):
    """As on Windows, as far as that can be shown on another system."""
    command = [sys.executable, "-c", WITHOUT_POSIX + LIBRARY, str(tmp_path / "a.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
