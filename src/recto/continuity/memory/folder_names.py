"""Names of the folders that memory is kept in. Loads nothing, so that a program can look whether there is memory."""

from __future__ import annotations

import hashlib
import re

from recto.text.lazy_re import lazy_re

PAGES = "memories"
"""The folder of the pages, in the folder of an agent. It does not exist before the first approval."""
UNSAFE = lazy_re(r"[^a-z0-9]+", re.ASCII)
"""What is replaced in a name of a file or folder."""
_PLAIN = lazy_re(r"[a-z0-9][a-z0-9_-]{0,47}", re.ASCII)


def folder_name(name: str) -> str:
    """Return a name as a folder name: safe on every file system and unique."""
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{UNSAFE.sub('-', name.lower()).strip('-')[:32]}~{digest}"
