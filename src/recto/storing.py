"""Which store the settings name, and the index that belongs to it: a file, a database, or this process's memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

from recto.core.scopes import tenant_of
from recto.errors import SettingsError
from recto.ports import RecallIndex, Replica, TranscriptStore
from recto.settings import Settings
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteStore

MEMORY = "memory:"
"""The location of a store that goes with the process."""
_POSTGRES = ("postgresql://", "postgres://")
_IN_MEMORY: WeakKeyDictionary[TranscriptStore, RecallIndex] = WeakKeyDictionary()
"""The index of each store that goes with the process: sessions of one store share it, as they share a file."""


def open_store(settings: Settings, *, create: bool = True) -> TranscriptStore:
    """The store that the settings name. With `create=False` a store that is not there is an error, not a new one."""
    if settings.store == MEMORY:
        return MemoryStore()
    if is_database(settings):
        return _postgres(settings, create)
    path = Path(settings.store).expanduser()
    if create and settings.store == Settings().store:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    return SqliteStore(path, create=create, lock_timeout=settings.limits.lock_seconds)


def replica_of(settings: Settings, store: TranscriptStore) -> Replica | None:
    """The replica that the settings name, to read from in place of an open store; None where they name none."""
    given = settings.replica
    if not given.url:
        return None
    if not is_database(settings) or not given.url.startswith(_POSTGRES):
        raise SettingsError("replica.url", "a replica is one of a store in PostgreSQL: postgresql://… both")
    made: Replica = _driver(settings).PostgresReplica(given.url, store, most=given.staleness_seconds)
    return made


def index_for(settings: Settings, store: TranscriptStore) -> RecallIndex:
    """The index that belongs to a store: a file beside its file, tables beside its tables, or in memory like it."""
    from recto.stores.memory_index import MemoryIndex  # noqa: PLC0415  # only for who recalls
    from recto.stores.sqlite.recall import SqliteIndex  # noqa: PLC0415

    patience = min(settings.limits.lock_seconds, settings.recall.index_seconds)
    if isinstance(store, SqliteStore):
        return SqliteIndex(f"{store.location}-recall", lock_timeout=patience)
    if callable(beside := getattr(store, "index", None)):
        made: RecallIndex = beside(lock_timeout=patience)
        return made
    return _IN_MEMORY.setdefault(store, MemoryIndex())


def is_database(settings: Settings) -> bool:
    """Whether the store is in a database that others may use as well."""
    return settings.store.startswith(_POSTGRES)


def is_lasting(store: TranscriptStore) -> bool:
    """Whether it outlives the process, and its index with it."""
    return not isinstance(store, MemoryStore)


def folder_beside(store: TranscriptStore) -> str:
    """What a folder beside a store's file begins with; empty where it is no file."""
    return store.location if isinstance(store, SqliteStore) else ""


def memory_root(settings: Settings, store: TranscriptStore, tenant: str) -> Path | None:
    """Where the memory of a tenant's agents is, or that of those without one; None where there is no such place."""
    from recto.engine.memory_files import folder_name  # noqa: PLC0415  # only for who has memory

    beside = folder_beside(store)
    root = settings.memory.folder or (beside and f"{beside}-memory")
    return Path(root).expanduser() / (f"tenant-{folder_name(tenant)}" if tenant else "own") if root else None


def folders_of(settings: Settings, store: TranscriptStore, sessions: Iterable[str], tenant: str) -> Iterator[Path]:
    """The folders that were made of sessions, or of all that a tenant has: checkpoints, and pages of memory."""
    from recto.engine.checkpoint_files import folder_of  # noqa: PLC0415  # only for who erases
    from recto.engine.memory_events import agent_of, is_memory_session  # noqa: PLC0415
    from recto.engine.memory_files import folder_name  # noqa: PLC0415

    if tenant and (whole := memory_root(settings, store, tenant)):
        yield whole
    for session in sessions:
        if settings.continuity.folder:
            yield folder_of(settings.continuity.folder, session)
        root = memory_root(settings, store, tenant_of(session)) if is_memory_session(session) else None
        if root:
            yield root / folder_name(agent_of(session))


def upgrade_database(settings: Settings, *, finish: bool) -> list[str]:
    """Brings the schema of a database up to date; the steps that were missing, in words."""
    driver = _driver(settings)
    steps = driver.upgraded(settings.store, finish=finish)
    made = [f"schema {step.version}: {step.step}" for step in steps]
    return [*made, *filter(None, [driver.graphs_made(settings.store)])]


def grant(settings: Settings, role: str) -> None:
    """Gives a role of a database what a gateway needs."""
    _driver(settings).granted(settings.store, role)


def _postgres(settings: Settings, create: bool) -> TranscriptStore:
    made: TranscriptStore = _driver(settings).PostgresStore(
        settings.store, create=create, lock_timeout=settings.limits.lock_seconds
    )
    return made


def _driver(settings: Settings) -> ModuleType:
    """The part that speaks to PostgreSQL, which only those have who need it."""
    if not is_database(settings):
        raise SettingsError("store", "this is about a store in a database; name one: --store postgresql://…")
    try:
        return import_module("recto.stores.postgres")
    except ModuleNotFoundError as missing:
        reason = f"the package {missing.name} is missing; install it with: pip install 'recto[postgres]'"
        raise SettingsError("store", reason) from None
