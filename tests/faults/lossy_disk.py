"""A disk that can lose power: records every write and sync of SQLite, then builds the states after a power cut.

Synced data survives. Each write since the last sync of its file survives, is dropped, or is torn: only some of its
512-byte sectors arrive.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Operation:
    """One recorded operation."""

    kind: str
    name: str = ""
    offset: int = 0
    data: bytes = b""
    note: object = None


@dataclass
class Trace:
    """All operations on the files of one folder, in order."""

    folder: Path
    observe: Callable[[], object]
    """Called at every operation; its result is stored as the note of the operation."""
    operations: list[Operation] = field(default_factory=list)

    def add(self, kind: str, name: str = "", offset: int = 0, data: bytes = b"") -> None:
        self.operations.append(Operation(kind, name, offset, data, self.observe()))

    def acknowledge(self, note: object) -> None:
        self.operations.append(Operation("acknowledged", note=note))


class TracingDisk(apsw.VFS):
    """Forwards everything to the real disk and records it."""

    def __init__(self, name: str, trace: Trace) -> None:
        self.trace = trace
        super().__init__(name, "")

    def xOpen(self, name, flags):
        return TracingFile(name, flags, self.trace)

    def xDelete(self, filename, syncdir):
        super().xDelete(filename, syncdir)
        self.trace.add("delete", Path(filename).name)


class TracingFile(apsw.VFSFile):
    def __init__(self, name, flags, trace: Trace) -> None:
        self.trace = trace
        self.name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name).name
        super().__init__("", name, flags)

    def xWrite(self, data, offset):
        super().xWrite(data, offset)
        self.trace.add("write", self.name, offset, bytes(data))

    def xTruncate(self, newsize):
        super().xTruncate(newsize)
        self.trace.add("truncate", self.name, newsize)

    def xSync(self, flags):
        super().xSync(flags)
        self.trace.add("sync", self.name)


@dataclass
class Disk:
    """The files as a power cut would find them: synced content and pending writes."""

    synced: dict[str, bytearray] = field(default_factory=dict)
    waiting: dict[str, list[Operation]] = field(default_factory=dict)

    def happen(self, operation: Operation) -> None:
        match operation.kind:
            case "write" | "truncate":
                self.waiting.setdefault(operation.name, []).append(operation)
            case "sync":
                content = self.synced.setdefault(operation.name, bytearray())
                for each in self.waiting.pop(operation.name, []):
                    _apply(content, each)
            case "delete":
                self.synced.pop(operation.name, None)
                self.waiting.pop(operation.name, None)

    def after_power_cut(self, rng: random.Random) -> Iterator[tuple[str, bytes]]:
        """Yields one of the possible states of the files."""
        for name in self.synced.keys() | self.waiting.keys():
            content = bytearray(self.synced.get(name, b""))
            for operation in self.waiting.get(name, []):
                match rng.randrange(3):
                    case 0:
                        _apply(content, operation)
                    case 1:
                        _tear(content, operation, rng)
            yield name, bytes(content)


def _apply(content: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del content[operation.offset :]
        return
    end = operation.offset + len(operation.data)
    content.extend(bytes(max(0, end - len(content))))
    content[operation.offset : end] = operation.data


def _tear(content: bytearray, operation: Operation, rng: random.Random) -> None:
    first = -operation.offset % SECTOR
    for start in (0, *range(first or SECTOR, len(operation.data), SECTOR)):
        end = first if start == 0 and first else start + SECTOR
        if rng.random() < 0.5:
            _apply(content, Operation("write", offset=operation.offset + start, data=operation.data[start:end]))
