"""Translates errors of SQLite and the file system to Recto's errors, here and nowhere else."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from recto.errors import StoreCorrupt, StoreFull, StoreLocked, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from recto.errors import StoreError

_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}
_UNSYNCED = {apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC}


def translate(error: apsw.Error | OSError | UnicodeDecodeError, path: Path, waited: float) -> StoreError:
    """Return the Recto error for an error of SQLite or the file system. `waited`: time spent waiting for a lock."""
    match error:
        case apsw.FullError():
            return StoreFull(str(path))
        case apsw.IOError():
            return _of_io(error, path)
        case apsw.ReadOnlyError():
            return StoreReadOnly(str(path))
        case apsw.BusyError() | apsw.LockedError() | TimeoutError():
            return StoreLocked(str(path), waited)
        case apsw.CorruptError():
            return StoreCorrupt(str(path), str(error))
        case apsw.NotADBError():
            return StoreCorrupt(str(path), "it does not begin like a store; perhaps it is another kind of file")
        case UnicodeDecodeError():
            return StoreCorrupt(str(path), "a text in it is not UTF-8")
        case apsw.CantOpenError():
            return StoreUnavailable(str(path), _why_not_open(path))
        case OSError():
            return _of_system(error, path)
        case _:
            return StoreUnavailable(str(path), f"SQLite refused: {error}")


@contextmanager
def translating(path: Path, waited: float) -> Iterator[None]:
    """Translate errors raised in this block to Recto's errors."""
    try:
        yield
    except (apsw.Error, OSError, UnicodeDecodeError) as error:
        raise translate(error, path, waited) from error


def is_unsynced(error: BaseException) -> bool:
    """Whether an fsync failed: the pending write may be on disk or not."""
    return isinstance(error, apsw.IOError) and _detail(error) in _UNSYNCED


def _detail(error: apsw.IOError) -> int:
    number: int = error.extendedresult  # type: ignore[attr-defined]  # missing in the stubs
    return number


def _of_io(error: apsw.IOError, path: Path) -> StoreError:
    if path.is_dir():
        return StoreUnavailable(str(path), _why_not_open(path))
    if _detail(error) in (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE):
        return StoreFull(str(path))  # a full disk or a limit on file size shows like this
    if is_unsynced(error):
        return StoreUnavailable(
            str(path),
            "the disk did not confirm the write, so it may or may not have been stored. "
            "Append again with the same key: it is then stored once. Check the disk if this comes again",
        )
    return StoreUnavailable(str(path), f"the disk failed ({error}). Everything acknowledged before is kept; try again")


def _of_system(error: OSError, path: Path) -> StoreError:
    if error.errno in _NO_ROOM:
        return StoreFull(str(path))
    if error.errno in _NO_RIGHT and not path.exists():
        return StoreUnavailable(str(path), f"the folder '{path.parent}' is not writable; name another store")
    if error.errno in _NO_RIGHT:
        return StoreReadOnly(str(path), f"{error.strerror}: '{error.filename}'")
    if error.errno == errno.ENOENT:
        return StoreUnavailable(str(path), _why_not_open(path))
    return StoreUnavailable(str(path), f"the disk failed ({error.strerror})")


def _why_not_open(path: Path) -> str:
    if not path.parent.is_dir():
        return f"the folder '{path.parent}' does not exist; create it or name another store"
    if path.is_dir():
        return "this is a folder; name a file in it"
    if not path.exists() and os.access(path.parent, os.W_OK):
        return "there is no store here; check the name"
    if not os.access(path.parent, os.W_OK):
        return f"the folder '{path.parent}' is not writable and SQLite needs its -wal and -shm files beside the store"
    return "it cannot be opened; check who may read it"
