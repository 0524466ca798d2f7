"""Composition root: builds sessions, stores, recall, memory, models and health sinks from settings.

This is the only module that names concrete stores, tokenizers and clocks. Parts are imported where they are built, so
that a program only loads, and only needs installed, what it uses: `open` loads the transcript and its store, the first
message or prompt loads the window.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack
from weakref import WeakKeyDictionary

from msgspec import Struct, structs

from recto.config import Settings, load
from recto.config.loader import override
from recto.config.published_models import registry as model_registry
from recto.continuity.checkpoints.rules import CheckpointRules
from recto.continuity.folders import PAGES, folder_name
from recto.engine.arguments import check_function, check_number, check_writer, describe
from recto.engine.session import Session
from recto.errors import IndexFailed, InputError, ProposalRefused, SettingsError, StoreUnavailable
from recto.tokens.meter import Tokenizers
from recto.transcript.session_keys import (
    TenantStore,
    agent_of,
    is_memory_session,
    memory_session,
    store_behind,
    tenant_of,
)
from recto.transcript.sources import SessionSources
from recto.version import install_command

if TYPE_CHECKING:
    from recto.config.options import SettingsOptions
    from recto.context.compaction.protocols import ChatModel, Dispatcher
    from recto.context.compaction.writer import SummaryWriter
    from recto.context.policies.features import Scorer
    from recto.context.window.budget import Budget
    from recto.context.window.units import Policy
    from recto.continuity.memory.authority import CriticalMemory, MemoryAuthority, MemoryDigest
    from recto.continuity.memory.consolidation import Consolidator
    from recto.continuity.memory.files import FileSection, MemoryFolder
    from recto.continuity.memory.manager import Memories
    from recto.continuity.memory.model import Memory
    from recto.engine.async_session import AsyncSession
    from recto.engine.compactor import Compactor
    from recto.engine.context_window_manager import AsyncContextWindowManager, ContextWindowManager, Status
    from recto.engine.delegation import Delegator
    from recto.engine.importer import Importer
    from recto.engine.monitor import Monitor
    from recto.engine.prompt_builder import MessageCache
    from recto.engine.standing_context import StandingContext
    from recto.engine.window import Window
    from recto.health.alerts import AlertRules
    from recto.health.exporters.prometheus import Metrics
    from recto.health.metrics import Alert
    from recto.health.protocols import HealthSink
    from recto.health.trends import HealthReport
    from recto.models.chat.llama_cpp import EmbeddedModel
    from recto.recall.indexer import Indexer
    from recto.recall.protocols import Embedder, RecallIndex
    from recto.recall.recall import RecallService
    from recto.tokens.meter import Meter
    from recto.tokens.model_card import ModelCard
    from recto.transcript.entries import Clock, Draft, Entry, Role
    from recto.transcript.protocols import Replica, TranscriptStore


MEMORY_STORE = "memory:"
"""The store location of a store that ends with the process."""
_POSTGRES_SCHEMES = ("postgresql://", "postgres://")
_MEMORY_INDEXES: WeakKeyDictionary[TranscriptStore, RecallIndex] = WeakKeyDictionary()
"""The index of each in-memory store, shared by the sessions of that store."""
_P = ParamSpec("_P")
_SETTINGS_SUFFIXES = (".yaml", ".yml", ".json")
_EMBEDDED_INPUT_TOKENS = 3_000
"""Maximum input of an embedded model: a laptop processes this many tokens in half a minute."""
_NO_MODEL = (
    "no provider is configured, and the local model cannot be used: {reason}. Or add a provider to ~/.recto/recto.yaml "
    "(docs/gateway.md, Upstreams); 'recto run' also uses the agent's own key, such as OPENAI_API_KEY"
)


def _settings_path(config: str | os.PathLike[str] | None) -> Path | None:
    if not isinstance(config, str | os.PathLike | None):
        raise InputError(f"'config' is the path of a settings file, not {describe(config)}. Nothing was opened.")
    return None if config is None else Path(config)


def open(
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    session: str | None = None,
    model: str | None = None,
    tenant: str | None = None,
    config: str | os.PathLike[str] | None = None,
    writer: ChatModel | None = None,
    dispatcher: Dispatcher | None = None,
    **more: Unpack[SettingsOptions],
) -> Session:
    """Open a session, creating the store if it does not exist.

    `store` is a path, `"memory:"`, or an open store (closing the session then leaves it open). Arguments that are not
    passed come from the environment, then from the settings file, then from the defaults. Other groups of settings are
    passed by name: `recto.open("a.db", limits={"message_bytes": 1_000_000})`. `writer` is your own model that writes
    summaries; `dispatcher` hands work to your sub-agents.
    """
    location, opened = (store, None) if store is None or isinstance(store, str | os.PathLike) else (None, store)
    arguments = {"store": location, "session": session, "model": model, "tenant": tenant, **more}
    settings = load(path=_settings_path(config), arguments=arguments)
    return open_session(settings, opened, model=writer, dispatcher=dispatcher)


async def open_async(
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    session: str | None = None,
    model: str | None = None,
    tenant: str | None = None,
    config: str | os.PathLike[str] | None = None,
    writer: ChatModel | None = None,
    dispatcher: Dispatcher | None = None,
    **more: Unpack[SettingsOptions],
) -> AsyncSession:
    """`open` for programs that await: `async with await recto.open_async("a.db") as session: …`."""
    from recto.engine.async_session import AsyncSession, on_a_thread  # noqa: PLC0415

    open_sync = partial(open, session=session, model=model, tenant=tenant, config=config, writer=writer)
    return AsyncSession(await on_a_thread(open_sync, store, dispatcher=dispatcher, **more))


def manager(  # noqa: PLR0913  # each part of a manager can be replaced
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    model: str | None = None,
    goal: str = "",
    success_criteria: Sequence[str] = (),
    constraints: Sequence[str] = (),
    tools: Sequence[Any] = (),
    max_context_tokens: int | None = None,
    config: str | os.PathLike[str] | None = None,
    session: str | None = None,
    tenant: str | None = None,
    wire: str | None = None,
    policy: str | Policy | Scorer | None = None,
    token_counter: Callable[[str], int] | None = None,
    embedder: Embedder | None = None,
    writer: ChatModel | None = None,
    dispatcher: Dispatcher | None = None,
    sinks: Sequence[HealthSink] | None = None,
    on_event: Callable[[Entry], None] | None = None,
    on_alert: Callable[[Alert], object] | None = None,
    on_status_change: Callable[[Status, Status], object] | None = None,
    **more: Unpack[SettingsOptions],
) -> ContextWindowManager:
    """Open a session and return the manager of an agent's loop over it: `with recto.manager("agent.db") as manager: …`.

    Args:
        store: A path, `"memory:"`, an open store, or a settings file (`context.yaml`), which names the store.
        model: The model that the prompts are for.
        goal: What the agent is to do; in every prompt until `on_task_complete`, with the next two.
        success_criteria: When it is done.
        constraints: What must not be done, or how it must be done.
        tools: Schemas of the tools that are sent with each prompt.
        max_context_tokens: The size of the window, if the model is unknown or should use less than it could.
        config: A settings file.
        session: The session, if it is not the default one.
        tenant: The tenant of the session.
        wire: The format of the prompt, while no message shows another; without it, that of the model's provider.
        policy: What is evicted first: a name as in the settings, or an object of your own.
        token_counter: Counts the tokens of a text, in place of the model's tokenizer.
        embedder: Makes the vectors of recall, in place of the one that the settings name.
        writer: A model of your own that writes summaries.
        dispatcher: Hands work to your sub-agents.
        sinks: Receive the measures of each turn.
        on_event: Is called with every event of the window.
        on_alert: Is called when a health alert is raised, and when it is over.
        on_status_change: Is called with the status before and after.
        more: Other groups of settings by name, as in `open`.
    """
    from recto.engine.context_window_manager import ContextWindowManager  # noqa: PLC0415

    location, opened = (store, None) if store is None or isinstance(store, str | os.PathLike) else (None, store)
    if location is not None and os.fspath(location).endswith(_SETTINGS_SUFFIXES):
        if config is not None:
            raise SettingsError("config", f"'{os.fspath(location)}' and '{os.fspath(config)}' are both settings files")
        location, config = None, location
    arguments = {"store": location, "session": session, "model": model, "tenant": tenant, **more}
    settings = load(path=_settings_path(config), arguments=arguments)
    settings = _managed(settings, max_context_tokens, policy if isinstance(policy, str) else None)
    opened_session = open_session(
        settings,
        opened,
        model=writer,
        dispatcher=dispatcher,
        sinks=sinks,
        meter=None if token_counter is None else own_meter(token_counter),
        policy=None if isinstance(policy, str) else policy,
        embedder=embedder,
    )
    try:
        made = ContextWindowManager(
            opened_session,
            goal=goal,
            success_criteria=success_criteria,
            constraints=constraints,
            tools=tools,
            wire=wire,
            on_event=on_event,
            on_alert=on_alert,
            on_status_change=on_status_change,
        )
        _ = made.task  # what waits is known from here on
    except BaseException:
        opened_session.close()
        raise
    return made


def _awaited_manager(
    opener: Callable[_P, ContextWindowManager],
) -> Callable[_P, Coroutine[Any, Any, AsyncContextWindowManager]]:
    """The awaited form of `manager`, with its parameters."""

    async def manager_async(*args: _P.args, **kwargs: _P.kwargs) -> AsyncContextWindowManager:
        from recto.engine.async_session import on_a_thread  # noqa: PLC0415
        from recto.engine.context_window_manager import AsyncContextWindowManager  # noqa: PLC0415

        return AsyncContextWindowManager.over(await on_a_thread(opener, *args, **kwargs))

    signature = inspect.signature(opener)
    manager_async.__signature__ = signature.replace(  # type: ignore[attr-defined]
        return_annotation="AsyncContextWindowManager"
    )
    manager_async.__qualname__ = "manager_async"
    manager_async.__doc__ = (
        '`manager` for programs that await: `async with await recto.manager_async("agent.db") as manager: …`.'
    )
    return manager_async


manager_async = _awaited_manager(manager)


def _managed(settings: Settings, max_context_tokens: int | None, policy: str | None) -> Settings:
    """The settings of a manager: its checkpoints are written at milestones, unless the settings say otherwise."""
    changes: dict[str, Any] = {}
    if max_context_tokens is not None:
        check_number("max_context_tokens", max_context_tokens, "a whole number of at least 1", 1, whole=True)
        changes["window"] = {"max_tokens": max_context_tokens}
    if policy is not None:
        changes.setdefault("window", {})["policy"] = policy
    if settings.continuity.milestones == "auto":
        changes["continuity"] = {"milestones": "always"}
    return override(settings, changes)


class SystemClock:
    """The system clock."""

    def now(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000


def open_session(  # noqa: PLR0913  # each part can be replaced
    settings: Settings,
    store: TranscriptStore | None = None,
    indexer: Indexer | None = None,
    *,
    model: ChatModel | None = None,
    dispatcher: Dispatcher | None = None,
    sinks: Sequence[HealthSink] | None = None,
    clock: Clock | None = None,
    meter: Meter | None = None,
    policy: Policy | Scorer | None = None,
    embedder: Embedder | None = None,
) -> Session:
    """Open the session that the settings name, in an open store or in the one they name.

    Args:
        indexer: Shared by the sessions of a store; closing a session leaves it open.
        model: Writes summaries in place of the model that the settings name.
        dispatcher: Hands work to sub-agents.
        sinks: Receive turn metrics and stay open when the session closes. Without them, those that the settings
            name are opened and closed with the session.
        clock: Defaults to the system clock.
        meter: Defaults to the token counter of the settings' model.
        policy: Chooses what is evicted, in place of the policy that the settings name.
        embedder: Makes the vectors of recall, in place of the one that the settings name.
    """
    if store is not None and not hasattr(store, "head"):
        kind = type(store).__name__
        raise SettingsError("store", f"it is a path, '{MEMORY_STORE}', an address or an open store, not '{kind}'")
    check_writer("writer", model)
    check_function("dispatcher", dispatcher)
    opened = open_store(settings) if store is None else store
    meter, clock = meter or make_meter(settings), clock or SystemClock()
    view = TenantStore(opened, settings.tenant)
    key = view.key(settings.session)
    delegator = _make_delegator(settings, view, key, meter, dispatcher) if dispatcher else None
    window = _WindowParts(settings, opened, view, key, meter, clock, indexer, model, delegator, policy, embedder)
    session = Session(
        view,
        key,
        meter=meter,
        clock=clock,
        max_message_bytes=settings.limits.message_bytes,
        window=window.build,
        delegator=delegator,
        monitor=partial(make_monitor, settings, view, key, sinks) if settings.health.enabled else None,
        memory=partial(open_memory, settings, opened),
        owns_store=store is None,
        make_row=_make_row if settings.recall.enabled else None,
    )
    if sinks is not None or not _are_defaults(settings):
        # Wrong settings, and sinks that cannot be opened, are reported by `open` and not by the first message. The
        # defaults cannot be wrong: what they build waits until it is used.
        _ = session.window, session.monitor
    return session


def _are_defaults(settings: Settings) -> bool:
    """Whether the settings only name a store, a session, a model or a tenant."""
    named = replace(
        Settings(),
        store=settings.store,
        session=settings.session,
        model=settings.model,
        tenant=settings.tenant,
    )
    return named == settings


class _WindowParts(Struct, frozen=True, dict=True):
    """What the window of a session is built from, when it is first used."""

    settings: Settings
    store: TranscriptStore
    view: TranscriptStore
    key: str
    meter: Meter
    clock: Clock
    indexer: Indexer | None
    model: ChatModel | None
    delegator: Delegator | None
    policy: Policy | Scorer | None
    embedder: Embedder | None

    @cached_property
    def _authority(self) -> MemoryAuthority:
        """One for the standing text and recall, so that the memory session is read once."""
        return make_memory_authority(self.settings, self.store)

    @cached_property
    def _memory_pages(self) -> Path | None:
        """The folder of the agent's memory pages; None if there can be none."""
        path = _memory_path(self.settings, self.store, self.key)
        return path / PAGES if path else None

    def build(self) -> Window:
        from recto.config.modes import WindowConfiguration  # noqa: PLC0415
        from recto.engine.window import Window  # noqa: PLC0415

        settings = self.settings
        configuration = WindowConfiguration(settings, model_card(settings), self.policy, self.delegator is not None)
        budget, rules = configuration.make()
        return Window(
            self.view,
            self.key,
            meter=self.meter,
            clock=self.clock,
            budget=budget,
            rules=rules,
            configuration=configuration,
            recall=self._recall if settings.recall.enabled else None,
            reaches_beyond=self._reaches_beyond,
            compactor=self._compactor,
            continuity=make_checkpoint_rules(settings),
            notes_session=memory_session(self.key) if settings.continuity.notes == "agent" else "",
            standing=make_standing_context(settings, self.meter, budget.input_budget, self._critical_memory(budget)),
        )

    def _recall(self) -> RecallService:
        own = make_indexer(self.settings, self.store, self.embedder) if self.embedder is not None else None
        return make_recall(self.settings, self.store, self.key, self.indexer, self._authority, own=own)

    def _has_memory(self) -> bool:
        """Whether the agent may have memory. One look at the file system: nothing is read and nothing is loaded."""
        return self._memory_pages is not None and os.path.isdir(self._memory_pages)  # noqa: PTH112  # every prompt asks

    def _reaches_beyond(self) -> bool:
        """Whether recall may find memory, files of its folder, or other sessions."""
        return self.settings.recall.scope != "session" or self._has_memory() or self._has_files()

    def _has_files(self) -> bool:
        """Whether the agent has a memory folder with files that recall may search."""
        pages = self._memory_pages if self.settings.memory.files else None
        return pages is not None and os.path.isdir(pages.parent)  # noqa: PTH112  # as above

    def _critical_memory(self, budget: Budget) -> Callable[[], MemoryDigest | None]:
        most = int(budget.input_budget * self.settings.memory.critical_percent / 100)
        if budget.enforced == "per_component":
            most = min(most, budget.limits["memory"].floor)

        @cache
        def critical() -> CriticalMemory:
            from recto.continuity.memory.authority import CriticalMemory  # noqa: PLC0415

            return CriticalMemory(self._authority, memory_session(self.key), count=self.meter.count, most=most)

        return lambda: critical().read() if most and self._has_memory() else None

    def _compactor(self, messages: MessageCache) -> Compactor:
        from recto.engine.compactor import Compactor  # noqa: PLC0415

        writer = make_writer(self.settings, self.meter, self.model)
        return Compactor(self.view, self.key, messages, writer, self.delegator, ahead=self.settings.compress.background)


def _make_row(text: str, role: Role, ts: int, meta: bytes) -> bytes:
    """Make the row of a message in the word index."""
    return _row_maker()(text, role, ts, meta)


@cache
def _row_maker() -> Callable[[str, Role, int, bytes], bytes]:
    from recto.recall.stemmer import shared_lexicon  # noqa: PLC0415
    from recto.recall.term_rows import message_row  # noqa: PLC0415

    return partial(message_row, lexicon=shared_lexicon())


def model_card(settings: Settings, *, warn: bool = True) -> ModelCard:
    """Return what the registry and the settings know about the settings' model, within `window.max_tokens`."""
    most = settings.window.max_tokens
    card = model_registry(settings.models).card(settings.model, warn=warn and not most)
    if not most:
        return card
    if not card.known:
        sizes = {"window": most, "max_input": most}
        known = {**settings.models.get(settings.model, {}), **sizes}
        return model_registry({**settings.models, settings.model: known}).card(settings.model, warn=warn)
    return replace(card, window=min(card.window, most), max_input=min(card.max_input, most))


def own_meter(token_counter: Callable[[str], int]) -> Meter:
    """Count with a function of the caller's own; what a model adds around messages is assumed to be the most."""
    from recto.tokens.meter import Meter  # noqa: PLC0415

    check_function("token_counter", token_counter)
    return Meter(name=f"own/{getattr(token_counter, '__name__', 'counter')}"[:64], count=token_counter)


def make_meter(settings: Settings, card: ModelCard | None = None) -> Meter:
    """Build the token counter of the settings' model. `card` is what `model_card` returns, where that is known."""
    return Tokenizers(settings.tokenizers).meter_for(model_card(settings) if card is None else card)


def session_sources(settings: Settings, store: TranscriptStore) -> SessionSources:
    """The agents and projects of the sessions that the settings' tenant sees."""
    return SessionSources(TenantStore(store, settings.tenant))


def make_importer(settings: Settings, store: TranscriptStore, model: str | None = None, tenant: str = "") -> Importer:
    """Build the importer of session files. Tokens are counted for `model`, else for the model named in the file.

    With a tenant, sessions go to it under the names that files give them.
    """

    from recto.engine.importer import Importer  # noqa: PLC0415
    from recto.recall.stemmer import shared_lexicon  # noqa: PLC0415

    def meter_of(model_in_file: str) -> Meter:
        return make_meter(replace(settings, model=model or settings.model or model_in_file))

    lexicon = shared_lexicon() if settings.recall.enabled else None
    propose = partial(_propose_imported, settings, store)
    view = TenantStore(store, tenant)
    return Importer(
        store=store,
        clock=SystemClock(),
        meter_for=meter_of,
        model=model or settings.model,
        lexicon=lexicon,
        propose=propose,
        view=view,
        sources=SessionSources(view),
    )


def _propose_imported(settings: Settings, store: TranscriptStore, session: str, memory: Memory) -> bool:
    """Propose a memory that was approved elsewhere; whether it is new here."""
    from recto.continuity.memory.proposals import Suggestion  # noqa: PLC0415

    tenant = tenant_of(session) or settings.tenant
    memories = open_memory(replace(settings, session=f"agent:{agent_of(session)}:main", tenant=tenant), store)
    if memories.knows(memory.text):
        return False
    suggestion = Suggestion(
        kind=memory.kind,
        text=memory.text,
        title=memory.title,
        tags=memory.tags,
        critical=memory.critical,
        evergreen=memory.evergreen,
        created=memory.created,
    )
    try:
        memories.suggest(suggestion, by="agent", why="it was approved where the imported file comes from")
    except ProposalRefused:
        return False
    return True


def _make_delegator(
    settings: Settings, store: TranscriptStore, key: str, meter: Meter, dispatcher: Dispatcher
) -> Delegator:
    from recto.engine.delegation import Delegator  # noqa: PLC0415

    seconds = settings.compress.delegate_seconds
    return Delegator(store, key, dispatcher=dispatcher, meter=meter, clock=SystemClock(), seconds=seconds)


def make_checkpoint_rules(settings: Settings) -> CheckpointRules:
    """Build the rules for checkpoints and handoffs."""
    continuity = settings.continuity
    automatic = bool(continuity.folder) or settings.window.mode != "sliding_window"
    return CheckpointRules(
        folder=continuity.folder,
        state_file=continuity.state_file,
        progress_file=continuity.progress_file,
        notes_file=continuity.notes_file,
        pressure=settings.window.checkpoint_warning_percent / 100,
        milestones=continuity.milestones == "always" or (continuity.milestones == "auto" and automatic),
        environment=continuity.environment and bool(continuity.directory or not settings.tenant),
        directory=continuity.directory,
        hosts=continuity.hosts,
        resume_tokens=continuity.resume_tokens,
    )


def make_standing_context(
    settings: Settings, meter: Meter, room: int, memory: Callable[[], MemoryDigest | None]
) -> StandingContext:
    """Build the standing context of a session: the files that the settings name, and critical memory."""
    from recto.engine.standing_context import StandingContext  # noqa: PLC0415

    standing = settings.standing
    return StandingContext(
        [Path(name).expanduser() for name in standing.files],
        count=meter.count,
        share=int(room * standing.warning_percent / 100),
        most=int(room * standing.most_percent / 100),
        memory=memory,
    )


def open_store(settings: Settings, *, create: bool = True) -> TranscriptStore:
    """Open the store that the settings name. With `create=False` a missing store is an error."""
    if settings.store == MEMORY_STORE:
        from recto.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore()
    if uses_postgres(settings):
        return _open_postgres(settings, create)
    from recto.stores.sqlite import SqliteStore  # noqa: PLC0415

    path = Path(settings.store).expanduser()
    if create and settings.store == Settings().store:
        _make_default_folder(path)
    return SqliteStore(path, create=create, lock_timeout=settings.limits.lock_seconds)


def _make_default_folder(store: Path) -> None:
    """Create the folder of the default store, below the home folder."""
    try:
        store.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        cause = f"its folder cannot be created: {(error.strerror or str(error)).lower()}"
        cure = "name another place with --store or RECTO_STORE, or set HOME to a folder that can be written"
        raise StoreUnavailable(str(store), f"{cause}; {cure}") from error


def open_replica(settings: Settings, store: TranscriptStore) -> Replica | None:
    """Open the replica that the settings name, for read-only queries; None if they name none."""
    replica_settings = settings.replica
    if not replica_settings.url:
        return None
    if not uses_postgres(settings) or not replica_settings.url.startswith(_POSTGRES_SCHEMES):
        raise SettingsError(
            "replica.url", "a replica needs a store in PostgreSQL; both addresses begin with postgresql://"
        )
    replica: Replica = _postgres_driver(settings).PostgresReplica(
        replica_settings.url, store, most=replica_settings.staleness_seconds
    )
    return replica


def _open_postgres(settings: Settings, create: bool) -> TranscriptStore:
    store: TranscriptStore = _postgres_driver(settings).PostgresStore(
        settings.store, key=settings.store_key, create=create, lock_timeout=settings.limits.lock_seconds
    )
    return store


def _postgres_driver(settings: Settings) -> ModuleType:
    """Import the PostgreSQL store, whose driver is an optional dependency."""
    if not uses_postgres(settings):
        raise SettingsError("store", "this command needs a store in a database: --store postgresql://…")
    try:
        return import_module("recto.stores.postgres")
    except ModuleNotFoundError as missing:
        reason = f"the package {missing.name} is missing; install it with: {install_command('postgres')}"
        raise SettingsError("store", reason) from None


def uses_postgres(settings: Settings) -> bool:
    """Whether the store is a PostgreSQL database, which other programs may use as well."""
    return settings.store.startswith(_POSTGRES_SCHEMES)


def is_persistent(store: TranscriptStore) -> bool:
    """Whether the store and its index outlive the process."""
    from recto.stores.memory import MemoryStore  # noqa: PLC0415

    return not isinstance(store_behind(store), MemoryStore)


def upgrade_database(settings: Settings, *, finish: bool) -> list[str]:
    """Migrate the database schema; returns a description of each step applied."""
    driver = _postgres_driver(settings)
    steps = driver.upgrade_schema(settings.store, finish=finish)
    applied = [f"schema {step.version}: {step.step}" for step in steps]
    return [*applied, *filter(None, [driver.create_graphs(settings.store)])]


def grant_role(settings: Settings, role: str, *, new_key: bool = False) -> str:
    """Grant a database role the privileges that a gateway needs; returns its store key where one was made."""
    key: str = _postgres_driver(settings).grant_role(settings.store, role, new_key=new_key)
    return key


def derived_folders(settings: Settings, store: TranscriptStore, sessions: Iterable[str], tenant: str) -> Iterator[Path]:
    """Yield the folders derived from sessions, or from everything of a tenant: checkpoints and memory pages."""
    from recto.engine.checkpoints import session_folder  # noqa: PLC0415

    if tenant and (tenant_root := memory_root(settings, store, tenant)):
        yield tenant_root
    for session in sessions:
        if settings.continuity.folder:
            yield session_folder(settings.continuity.folder, session)
        root = memory_root(settings, store, tenant_of(session)) if is_memory_session(session) else None
        if root:
            yield root / folder_name(agent_of(session))


def _sidecar_prefix(store: TranscriptStore) -> str:
    """The path that files next to a store's file begin with; empty if the store is not a file."""
    from recto.stores.sqlite import SqliteStore  # noqa: PLC0415

    return store.location if isinstance(store_behind(store), SqliteStore) else ""


def make_writer(settings: Settings, meter: Meter, model: ChatModel | None = None) -> SummaryWriter:
    """Build the summary writer: the model passed in or named by the settings, with an extractive fallback."""
    from recto.context.compaction.writer import SummaryWriter, WritingRules  # noqa: PLC0415

    model_settings = settings.compress.model
    input_tokens = (
        min(model_settings.input_tokens, _EMBEDDED_INPUT_TOKENS)
        if model_settings.use == "embedded"
        else model_settings.input_tokens
    )
    rules = WritingRules(seconds=model_settings.seconds, input_tokens=input_tokens, calls=model_settings.calls)
    return SummaryWriter(
        lambda: model or make_chat_model(settings), rules, meter.count, make_cost_function(settings, model)
    )


def make_chat_model(settings: Settings) -> ChatModel | None:
    """Build the model that the settings name for writing; None if they name none."""
    from recto.models.chat import ChatChoice, chat_model_for  # noqa: PLC0415

    model_settings = settings.compress.model
    return chat_model_for(
        ChatChoice(
            use=model_settings.use,
            url=model_settings.url,
            model=model_settings.model,
            key=model_settings.key,
            path=model_settings.path,
            context=model_settings.context,
            seconds=model_settings.seconds,
        )
    )


def make_embedded_model(settings: Settings) -> EmbeddedModel:
    """Build the embedded model, which answers when no upstream is configured.

    Raises:
        SettingsError: It is not installed, or not as the settings say; the message says what to do.
    """
    from recto.models.chat import ChatChoice, embedded_model_for  # noqa: PLC0415

    model_settings = settings.compress.model
    own = model_settings if model_settings.use == "embedded" else replace(model_settings, model="", path="", context=0)
    choice = ChatChoice(
        use="embedded", model=own.model, path=own.path, context=own.context, seconds=settings.gateway.upstream_seconds
    )
    try:
        return embedded_model_for(choice)
    except SettingsError as error:
        if model_settings.use == "embedded":
            raise
        raise SettingsError("gateway.upstreams", _NO_MODEL.format(reason=error.reason)) from error


def make_cost_function(settings: Settings, model: ChatModel | None = None) -> Callable[[int, int], int]:
    """Return the function that prices a call of the writing model, in picodollars; local models cost nothing."""
    from recto.context.window.budget import call_price  # noqa: PLC0415

    name = model.name if model is not None else settings.compress.model.model
    if not name or (model is None and settings.compress.model.use in ("none", "embedded")):
        return lambda _prompt, _answer: 0
    card = model_registry(settings.models).card(name, warn=False)  # only its prices are needed
    if card.input_price is None:
        return lambda _prompt, _answer: 0
    return lambda prompt, answer: call_price(card, 0, prompt, answer)


def make_indexer(
    settings: Settings, store: TranscriptStore, embedder: Embedder | None = None, *, words_only: bool = False
) -> Indexer:
    """Build the indexer of a store, with the embedder passed in or the one that the settings name.

    With `words_only` it has none, and vectors that are stored are not searched either.
    """
    from recto.recall.indexer import EmbeddingRules, Indexer  # noqa: PLC0415
    from recto.recall.stemmer import shared_lexicon  # noqa: PLC0415

    index = open_index(settings, store)
    choice = asdict(settings.recall.embedder)
    rules = EmbeddingRules(**{rule.name: choice.pop(rule.name) for rule in fields(EmbeddingRules)})
    previous: list[Embedder] = []
    if words_only:
        embedder = None
    else:
        embedder, previous = _embedders(choice, index, embedder)
    return Indexer(
        store,
        index,
        lexicon=shared_lexicon(),
        embedder=embedder,
        previous=previous,
        in_background=settings.recall.background,
        owns_index=is_persistent(store),
        embedding=rules,
    )


def _embedders(
    choice: Mapping[str, Any], index: RecallIndex, embedder: Embedder | None
) -> tuple[Embedder | None, list[Embedder]]:
    """Return the embedder passed in or the one that is chosen, and those whose vectors an index holds besides."""
    from recto.models.embedders import EmbedderChoice, embedder_for, known_embedder  # noqa: PLC0415

    embedder = embedder or embedder_for(EmbedderChoice(**choice))
    lanes: list[str] = []
    with suppress(IndexFailed):  # reported or repaired at the next eviction; until then the turn goes on
        lanes = index.lane_names()
    names = [lane.removeprefix("vectors/") for lane in lanes if lane.startswith("vectors/")]
    previous = [known_embedder(name) for name in names if embedder is None or name != embedder.name]
    return embedder, [known for known in previous if known is not None]


def open_index(settings: Settings, store: TranscriptStore) -> RecallIndex:
    """Open the recall index of a store: a file or tables next to it, or in memory like it."""
    from recto.stores.memory import MemoryIndex  # noqa: PLC0415
    from recto.stores.sqlite import SqliteStore  # noqa: PLC0415
    from recto.stores.sqlite.index import SqliteIndex  # noqa: PLC0415

    store = store_behind(store)
    timeout = min(settings.limits.lock_seconds, settings.recall.index_seconds)
    if isinstance(store, SqliteStore):
        return SqliteIndex(f"{store.location}-recall", lock_timeout=timeout)
    if callable(make_index := getattr(store, "index", None)):
        index: RecallIndex = make_index(lock_timeout=timeout)
        return index
    return _MEMORY_INDEXES.setdefault(store, MemoryIndex())


def make_recall(
    settings: Settings,
    store: TranscriptStore,
    key: str,
    indexer: Indexer | None = None,
    authority: MemoryAuthority | None = None,
    *,
    own: Indexer | None = None,
) -> RecallService:
    """Build the recall of a session, over a shared indexer or one of its own, which is passed in or made."""
    from recto.recall.recall import RecallRules, RecallService  # noqa: PLC0415
    from recto.recall.search import Searcher  # noqa: PLC0415

    recall_settings = settings.recall
    rules = RecallRules(
        inject=recall_settings.inject,
        scope=recall_settings.scope,
        threshold=recall_settings.threshold,
        most=recall_settings.most,
        tokens=recall_settings.tokens,
        index_seconds=recall_settings.index_seconds,
        query_seconds=recall_settings.query_seconds,
    )
    view = TenantStore(store, settings.tenant)
    searcher = Searcher(indexer or own or make_indexer(settings, store), store=view)
    authority = authority or make_memory_authority(settings, store)
    return RecallService(
        searcher,
        key,
        rules=rules,
        owns_indexer=indexer is None,
        authority=authority,
        sources=SessionSources(view),
    )


def open_memory(settings: Settings, store: TranscriptStore) -> Memories:
    """Open the durable memory of the settings' agent."""
    from recto.continuity.memory.manager import Memories, MemoryRules  # noqa: PLC0415

    view = TenantStore(store, settings.tenant)
    key = view.key(settings.session)
    folder, memory_settings = memory_folder(settings, store, key), settings.memory
    if folder is None:
        raise SettingsError("memory.folder", "this store is not a file; set the folder where memory is kept")
    rules = MemoryRules(
        approve=frozenset(memory_settings.approve),
        half_life_days=memory_settings.half_life_days,
        retire=memory_settings.retire,
        retire_below=memory_settings.retire_below,
        proposals=memory_settings.proposals,
        every_hours=memory_settings.every_hours,
    )
    return Memories(view, key, folder, clock=SystemClock(), meter=make_meter(settings), rules=rules)


def memory_folder(settings: Settings, store: TranscriptStore, key: str) -> MemoryFolder | None:
    """Return the memory folder of a session's agent and tenant; None if the settings name none and the store is not a
    file, or where the system has no such folders (Windows)."""
    from recto.continuity.memory.files import MemoryFolder  # noqa: PLC0415

    path = _memory_path(settings, store, key)
    return MemoryFolder(path) if path and MemoryFolder.is_supported() else None


def _memory_path(settings: Settings, store: TranscriptStore, key: str) -> Path | None:
    root = memory_root(settings, store, tenant_of(key))
    return root / folder_name(agent_of(key)) if root else None


def memory_root(settings: Settings, store: TranscriptStore, tenant: str) -> Path | None:
    """Return the memory folder of a tenant's agents, or of agents without a tenant; None if there is none."""
    prefix = _sidecar_prefix(store)
    root = settings.memory.folder or (prefix and f"{prefix}-memory")
    return Path(root).expanduser() / (f"tenant-{folder_name(tenant)}" if tenant else "own") if root else None


def make_memory_authority(settings: Settings, store: TranscriptStore) -> MemoryAuthority:
    """Build what tells recall which messages are approved memory."""
    from recto.continuity.memory.authority import MemoryAuthority  # noqa: PLC0415

    drafts_of = partial(_file_drafts, settings) if settings.memory.files else None
    return MemoryAuthority(TenantStore(store, settings.tenant), partial(memory_folder, settings, store), drafts_of)


def _file_drafts(settings: Settings, sections: Sequence[FileSection]) -> list[Draft]:
    """Return the entries that store sections of files of the memory folder: an event for each, and its text."""
    from recto.continuity.memory.events import FILE_INDEXED, file_key  # noqa: PLC0415
    from recto.formats import DEFAULT_FORMAT  # noqa: PLC0415
    from recto.recall.stemmer import shared_lexicon  # noqa: PLC0415
    from recto.recall.term_rows import with_row  # noqa: PLC0415
    from recto.transcript.entries import (  # noqa: PLC0415
        Draft,
        event,
        new_id,
        to_json,
    )

    clock, meter = SystemClock(), make_meter(settings)
    drafts: list[Draft] = []
    for section in sections:
        raw = to_json({"role": "user", "content": f"{section.heading}\n{section.text}".strip()})
        message = Draft(
            id=new_id(clock),
            ts=section.ts,
            role="user",
            content=raw,
            wire=DEFAULT_FORMAT.name,
            surface="memory",
            tokens=meter.message(DEFAULT_FORMAT.messages.read(raw)),
            counter=meter.name,
        )
        payload = {"path": section.path, "heading": section.heading, "section": section.key}
        noted = event(clock, FILE_INDEXED, payload, file_key(section.key), surface="memory")
        drafts += [noted, with_row(message, shared_lexicon())]
    return drafts


def make_consolidator(
    settings: Settings, store: TranscriptStore, indexer: Indexer | None = None, *, model: ChatModel | None = None
) -> Consolidator:
    """Build the consolidator of finished history: with the model passed in or named by the settings, else by rules."""
    from recto.continuity.memory.consolidation import Consolidator  # noqa: PLC0415

    recall = None if indexer is None else partial(make_recall, settings, store, indexer=indexer)
    return Consolidator(open_memory(settings, store), model=model or make_chat_model(settings), recall_of=recall)


def make_monitor(
    settings: Settings, store: TranscriptStore, key: str, sinks: Sequence[HealthSink] | None = None
) -> Monitor:
    """Build the health monitor of a session, with the sinks passed in or those that the settings name."""
    from recto.engine.monitor import Monitor  # noqa: PLC0415

    own = make_sinks(settings) if sinks is None else []
    rules, regret_turns = make_alert_rules(settings), settings.health.regret_turns
    return Monitor(store, key, rules=rules, regret_turns=regret_turns, sinks=sinks or (), owned=own)


def build_health_report(settings: Settings, store: TranscriptStore, key: str, turns: int) -> HealthReport:
    """Report the health of a stored session over its last turns, with the settings' thresholds."""
    from recto.config.modes import zone_thresholds  # noqa: PLC0415
    from recto.engine.monitor import health_report  # noqa: PLC0415

    rules, regret_turns = make_alert_rules(settings), settings.health.regret_turns
    red = zone_thresholds(settings.window, model_card(settings).window).red
    return health_report(store, key, rules=rules, regret_turns=regret_turns, turns=turns, red=red)


def make_alert_rules(settings: Settings) -> AlertRules:
    """Build the thresholds of alerts. A window that is kept fuller than the default for utilization has its ceiling."""
    from recto.config.modes import floor_share  # noqa: PLC0415
    from recto.health.alerts import AlertRules  # noqa: PLC0415

    window, rules = settings.window, AlertRules(**asdict(settings.health.alerts))
    floor = floor_share(window, model_card(settings, warn=False).window)
    if rules.utilization != AlertRules().utilization or floor < rules.utilization:
        return rules
    return structs.replace(rules, utilization=window.ceiling_percent / 100)


def make_sinks(settings: Settings) -> list[HealthSink]:
    """Build the health sinks that the settings name. The caller closes those that can be closed."""
    health = settings.health
    sinks: list[HealthSink] = []
    if health.log:
        from recto.health.exporters.json_log import JsonLog  # noqa: PLC0415

        sinks.append(JsonLog(health.log, text=health.log_text))
    if health.webhook.url:
        from recto.health.exporters.webhook import CONTENT_TYPE, Webhook  # noqa: PLC0415
        from recto.models.http import Posting  # noqa: PLC0415

        hook = health.webhook
        post = Posting(
            hook.url, setting="health.webhook", key=hook.key, seconds=hook.seconds, content_type=CONTENT_TYPE
        )
        sinks.append(Webhook(post, close_post=post.close))
    if health.telemetry:
        try:
            from recto.health.exporters.opentelemetry import Telemetry  # noqa: PLC0415
        except ImportError:
            raise SettingsError("health.telemetry", f"needs a package: {install_command('telemetry')}") from None
        registry = model_registry(settings.models)
        sinks.append(
            Telemetry(
                provider_of=lambda name: registry.card(name, warn=False).provider,
                known_model=lambda name: registry.card(name, warn=False).known,
            )
        )
    return sinks


def make_metrics(settings: Settings, sinks: Sequence[HealthSink] = ()) -> Metrics:
    """Build the Prometheus metrics: only known models are labels, and what the other sinks drop is counted."""
    from recto.health.exporters.prometheus import Metrics  # noqa: PLC0415

    registry = model_registry(settings.models)
    metrics = Metrics(known_model=lambda name: registry.card(name, warn=False).known)
    for sink in sinks:
        metrics.watch(sink)
    return metrics
