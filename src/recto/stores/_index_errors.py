"""Maps store errors to index errors: an index can be rebuilt, and its errors never concern transcripts."""

from __future__ import annotations

from recto.errors import (
    IndexCorrupt,
    IndexFailed,
    IndexUnavailable,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)


def to_index_error(error: StoreError, location: str, waited: float) -> IndexFailed:
    """Return the index error for a store error. `waited` is the time spent waiting for a lock."""
    match error:
        case IndexFailed():
            return error
        case StoreCorrupt():
            return IndexCorrupt(location, error.detail)
        case StoreFull():
            detail = "no room is left on the disk; nothing of this was written, what was confirmed before is kept"
        case StoreReadOnly():
            detail = "it can be read but not written; give the right to write, to a file and its folder"
        case StoreLocked():
            detail = f"another program has held it for {waited:g} s; nothing was written"
        case StoreUnavailable():
            detail = error.detail.replace("the store is closed", "it is closed")
        case _:
            detail = str(error)
    return IndexUnavailable(location, detail)
