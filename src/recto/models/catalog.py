"""The weights that can be had: what they are, which packages carry them, and the hashes to know them by.

Values and one data file. How they get here is not known here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any


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
class Piece:
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
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
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

    def pieces_of(self, package: Package) -> list[Piece]:
        """What is taken out of a package."""
        return [piece for file in self.files for piece in file.pieces if piece.package == package.name]


def _weights(name: str, tree: dict[str, Any]) -> Weights:
    return Weights(
        name=name,
        title=tree["title"],
        licence=tree["licence"],
        packages=tuple(Package(**package) for package in tree["packages"]),
        files=tuple(
            WeightsFile(**{**file, "pieces": tuple(Piece(**piece) for piece in file["pieces"])})
            for file in tree["files"]
        ),
    )


_DATA = resources.files("recto.models").joinpath("weights.json")
KNOWN = {name: _weights(name, tree) for name, tree in json.loads(_DATA.read_text(encoding="utf-8")).items()}
"""By name."""
