"""The README of the package: its links and pictures point at the tag of the release, because a package index has no
files beside it. hatchling calls this when it builds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "https://github.com/recto-ai/recto"
RAW = "https://raw.githubusercontent.com/recto-ai/recto"
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#:]+)((?:#[^)]*)?\))")
_ATTRIBUTE = re.compile(r'((?:src|srcset)=")([^":]+)(")')


class PackageReadme(MetadataHookInterface):
    """Sets the README of the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Replaces relative addresses by those of the release."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(text, _version(self.root))}


def with_absolute_links(text: str, version: str) -> str:
    """Returns a README whose links lead to files of a version, and whose pictures are fetched as they are."""
    tag = f"v{version}"

    def absolute(found: re.Match[str]) -> str:
        base = f"{RAW}/{tag}" if found[1].startswith("!") or "=" in found[1] else f"{REPOSITORY}/blob/{tag}"
        return f"{found[1]}{base}/{found[2]}{found[3]}"

    return _ATTRIBUTE.sub(absolute, _LINK.sub(absolute, text))


def _version(root: str) -> str:
    text = Path(root, "src", "recto", "version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if found is None:
        raise ValueError("src/recto/version.py names no version")
    return found[1]
