"""Translates errors of PostgreSQL and of the connection to Recto's errors, here and nowhere else."""

from __future__ import annotations

from urllib.parse import urlsplit

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from recto.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreUnavailable

_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)
_STOPPING = ("57P01", "57P02", "57P03", "53300")  # shut down, crashed, starting up, too many connections
_FULL = ("53100", "53200")
_READ_ONLY = ("25006", "42501")
UNSIGNED = "RCT02"
"""A role other than the owner named a tenant without its token."""


def redact_url(url: str) -> str:
    """Return a URL without its password, for messages."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        at = f"{parts.username}@" if parts.username else ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "postgresql://…"
    return f"{parts.scheme}://{at}{host}{port}{parts.path}"


def is_lost(error: BaseException) -> bool:
    """Whether the connection was lost: the statement may have been committed or not."""
    if isinstance(error, psycopg.OperationalError) and getattr(error, "sqlstate", None) is None:
        return True
    return isinstance(error, psycopg.Error) and (error.sqlstate or "")[:2] == "08"


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed."""
    if isinstance(error, PoolTimeout):
        return False  # its time is up already
    if is_lost(error) or isinstance(error, _AGAIN):
        return True
    return isinstance(error, psycopg.Error) and error.sqlstate in _STOPPING


def translate(error: BaseException, location: str, waited: float) -> StoreError:
    """Return the Recto error for an error of the driver or the pool."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, PoolClosed):
        return StoreUnavailable(location, "the store is closed already")
    if isinstance(error, PoolTimeout):
        detail = f"no connection within {waited:g} s: the server cannot be reached, or this process has all it may have"
        return StoreUnavailable(location, detail)
    if isinstance(error, TimeoutError | errors.LockNotAvailable | errors.QueryCanceled):
        return StoreLocked(location, waited)
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state in _FULL:
        return StoreFull(location)
    if state in _READ_ONLY:
        return StoreReadOnly(location, "the server is a replica, or this role may not write")
    if state == UNSIGNED:
        return no_key(location)
    if state is not None and state[:2] in ("XX", "58"):
        return StoreCorrupt(location, _one_line(error))
    if is_transient(error):
        detail = "the server cannot be reached, and could not be for a while. Everything acknowledged before is kept; "
        return StoreUnavailable(location, detail + f"append again with the same key ({_one_line(error)})")
    return StoreUnavailable(location, f"PostgreSQL refused: {_one_line(error)}")


def no_key(location: str) -> StoreUnavailable:
    """Return the error for a role that has to name its tenants with a key and has none, or a wrong one."""
    detail = "this role does not own the tables, and has no key that opens tenants: the owner makes one with "
    return StoreUnavailable(location, detail + "'recto store grant ROLE'; set it as RECTO_STORE_KEY")


def _one_line(error: BaseException) -> str:
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((message or str(error) or type(error).__name__).split())[:300]
