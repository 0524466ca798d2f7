"""Files of the memory folder that recall searches besides approved pages: journals, and texts that people put there.

Each section of a file is stored once, by its content, as a message of the agent's memory session, so that recall finds
it and its pointer can be read. Only sections that are in a file now are quoted: as data, with their file, never as
approved memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from recto.continuity.memory.files import CYCLE_HEADING, FileStatus, MemoryFolder
from recto.recall.documents import passages
from recto.text.lazy_re import lazy_re

MAX_FILES = 200
"""Files that are read: the ones written last."""
MAX_FILE_BYTES = 256 * 1024
"""Bytes of a file that are read, from its end: journals grow there."""
MAX_SECTIONS = 2_000
_SECTION_CHARS = 4_000
_MAX_PARTS = 16
"""Parts of a long section that are kept."""
_MAX_HEADING = 120
_HEADING = lazy_re(r"^#{1,6}[ \t]+(\S.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSection:
    """A section of a file."""

    path: str
    """Relative to the memory folder."""
    heading: str
    text: str
    ts: int
    """When the file was written, in microseconds since 1970."""

    @property
    def key(self) -> str:
        """Identifies the section by its file and its content."""
        content = "\0".join((self.path, self.heading, self.text)).encode("utf-8", "surrogatepass")
        return hashlib.sha256(content).hexdigest()[:32]

    @property
    def note(self) -> str:
        """The caption of a quotation."""
        section = f", “{self.heading}”" if self.heading else ""
        return f"from the file {self.path}{section} of the memory folder, not approved"


class FolderDocuments:
    """The sections of the files of one memory folder. A file is read again when it has changed."""

    def __init__(self, folder: MemoryFolder) -> None:
        self._folder = folder
        self._files: dict[str, tuple[FileStatus, tuple[FileSection, ...]]] = {}
        self.sections: Mapping[str, FileSection] = {}
        """By key, as of the last `refresh`."""

    def refresh(self) -> None:
        """Look which files have changed, and read those."""
        listed = sorted(self._folder.text_files(), key=lambda item: (-item[1].modified, item[0]))[:MAX_FILES]
        known, self._files = self._files, {}
        for path, status in listed:
            before = known.get(path)
            if before is None or before[0] != status:
                text = self._folder.text_of(path, MAX_FILE_BYTES)
                before = status, tuple(sections_of(path, text, status.modified // 1000))
            self._files[path] = before
        found = [section for _, sections in self._files.values() for section in sections][:MAX_SECTIONS]
        self.sections = {section.key: section for section in found}


def sections_of(path: str, text: str, ts: int) -> Iterator[FileSection]:
    """Split a text at its headings, and long sections into parts.

    What consolidation cycles report is left out: it names proposals, and would bring rejected and retired memory back.
    """
    heading, lines = "", list[str]()
    for line in [*text.splitlines(), None]:
        title = _HEADING.match(line) if line is not None else None
        if line is not None and title is None:
            lines.append(line)
            continue
        own = [] if heading.startswith(CYCLE_HEADING) else lines
        for part in passages("\n".join(own).strip(), _SECTION_CHARS, _MAX_PARTS):
            yield FileSection(path=path, heading=heading, text=part.strip(), ts=ts)
        heading, lines = title[1].strip()[:_MAX_HEADING] if title is not None else "", []
