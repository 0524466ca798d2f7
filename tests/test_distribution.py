"""The distribution: the install commands in all texts, and the behaviour of the installed package."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recto.models import weights
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
MAX_PACKAGES = 16
"""The most packages that `pip install recto-ai` may install, including itself and its dependencies."""
AGENT = """
import json, os, urllib.request
body = {"model": "any", "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello."}]}
headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
print("answered:", json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


def test_no_text_recommends_installing_another_project():
    wrong = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in TEXTS
        for line in file.read_text(encoding="utf-8").splitlines()
        if (found := INSTALLS.search(line)) and _names_another_project(found[1])
    ]
    assert not wrong


def _names_another_project(arguments: str) -> bool:
    """Returns whether a command installs `recto`, which is another project, or an unknown extra."""
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
    """Approximates Windows on another system."""
    command = [sys.executable, "-c", WITHOUT_POSIX + LIBRARY, str(tmp_path / "a.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, "."]
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True)
    return next(folder.glob("recto_ai-*.whl"))


def test_the_readme_of_the_package_has_absolute_links_and_pictures(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    text = metadata.get_payload()
    assert metadata["Name"] == DISTRIBUTION
    assert "# Recto" in text
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []
    assert f"/v{metadata['Version']}/docs/pictures/" in text
    assert {line.split(",")[0] for line in metadata.get_all("Project-URL")} >= {"Homepage", "Documentation", "Source"}


class Environment:
    """An environment with the wheel and what it requires, and nothing else. Packages are linked, not downloaded."""

    def __init__(self, folder: Path, wheel: Path, extras: frozenset[str] = frozenset()) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.home = folder
        self.site = next(folder.glob("lib/python*/site-packages"))
        self.packages = sorted(_required(PROJECT, extras))
        for name in self.packages:
            self._link(distribution(name))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.site)

    def _link(self, package: Distribution) -> None:
        for top in {Path(str(file)).parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            source, target = Path(str(package.locate_file(top))), self.site / top
            if source.exists() and not target.exists():
                target.symlink_to(source)

    def recto(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Runs the command line as the installed script does."""
        script = "import sys; sys.argv[0] = 'recto'; from recto_ai import main; main()"
        path = os.pathsep.join([str(self.home / "bin"), os.environ["PATH"]])
        return subprocess.run(
            [str(self.home / "bin" / "python"), "-I", "-c", script, *words],
            env={"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", **environ},
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )


def _required(project: dict, extras: frozenset[str]) -> set[str]:
    """Returns all packages that the project requires with some extras, resolved from the installed ones."""
    found: set[str] = set()
    pending = [Requirement(line) for line in project["dependencies"]]
    pending += [Requirement(line) for extra in extras for line in project["optional-dependencies"][extra]]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        environments = [{"extra": extra} for extra in (*requirement.extras, "")]
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        for line in distribution(name).requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or any(wanted.marker.evaluate(environment) for environment in environments):
                pending.append(wanted)
    return found


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory) -> Environment:
    return Environment(tmp_path_factory.mktemp("bare"), wheel)


def test_the_package_alone_has_few_dependencies_and_shows_the_next_step(bare):
    assert len(bare.packages) <= MAX_PACKAGES, bare.packages
    done = bare.recto()
    assert done.returncode == 0, done.stderr
    assert "nothing is stored yet" in done.stdout
    assert "recto demo" in done.stdout


def test_the_demo_runs_with_the_package_alone(bare):
    done = bare.recto("demo", "--exchanges", "30")
    assert done.returncode == 0, done.stderr
    assert not (bare.home / ".recto").exists()


def test_the_doctor_runs_with_the_package_alone_and_suggests_extras(bare):
    done = bare.recto("doctor", "--offline")
    assert done.returncode == 0, done.stdout + done.stderr
    assert install_command("recall") in done.stdout


def test_a_missing_extra_is_reported_with_its_install_command(bare):
    done = bare.recto("run", "--", "true")
    assert (done.returncode, install_command("gateway") in done.stderr) == (2, True)


def test_a_program_runs_over_the_embedded_model_with_two_extras(wheel, tmp_path):
    if weights.find("smollm2") is None:
        pytest.skip("the weights of smollm2 are not here: make weights")
    made = Environment(tmp_path / "environment", wheel, frozenset({"gateway", "local"}))
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    cache = weights.find("smollm2").parents[3]
    done = made.recto("run", "--", str(made.home / "bin" / "python"), str(agent), XDG_CACHE_HOME=str(cache))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the model on this machine answers" in done.stderr
    assert done.stdout.startswith("answered: ")


def test_another_package_of_the_same_import_name_is_reported_instead_of_a_traceback(wheel, tmp_path):
    made = Environment(tmp_path / "environment", wheel)
    (made.site / "recto" / "__init__.py").write_text("# files of another project took the place of ours\n")
    done = made.recto("session", "ls")
    assert done.returncode == 2
    assert "another package named 'recto'" in done.stderr
    assert "Traceback" not in done.stderr
