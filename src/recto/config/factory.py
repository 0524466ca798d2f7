"""Puts the parts together. The only place that names concrete stores, tokenizers and clocks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from recto.config import Settings, load
from recto.config.modes import make_relief_rules
from recto.context.compaction.protocols import ChatModel, Dispatcher
from recto.context.window.budget import Budget
from recto.context.window.cache_cost import bill
from recto.continuity.checkpoints.checkpoint import CheckpointRules
from recto.engine.fit import M, fit_messages
from recto.engine.importer import Importer
from recto.engine.monitor import Monitor, health_report
from recto.engine.prompt_builder import PromptBuilder
from recto.engine.session import Session
from recto.engine.standing_context import StandingContext
from recto.engine.window import Window
from recto.errors import IndexFailed, SettingsError
from recto.health.alerts import AlertRules
from recto.health.protocols import HealthSink
from recto.health.trends import HealthReport
from recto.recall.index_types import LaneSize
from recto.recall.protocols import RecallIndex
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteStore
from recto.tokens.meter import Meter
from recto.tokens.model_card import ModelCard
from recto.tokens.model_registry import Registry
from recto.tokens.tokenizers import Tokenizers
from recto.transcript.protocols import Clock, Replica, TranscriptStore
from recto.transcript.session_keys import agent_of, is_memory_session, stored_key, tenant_of

if TYPE_CHECKING:
    from recto.context.compaction.writer import SummaryWriter
    from recto.continuity.memory.authority import MemoryAuthority
    from recto.continuity.memory.consolidation import Consolidator
    from recto.continuity.memory.files import MemoryFolder
    from recto.continuity.memory.manager import Memories
    from recto.engine.async_session import AsyncSession
    from recto.engine.compactor import Compactor
    from recto.engine.delegation import Delegator
    from recto.health.exporters.prometheus import Metrics
    from recto.models.chat.llama_cpp import EmbeddedModel
    from recto.recall.indexer import Indexer
    from recto.recall.recall import Recall


def make_sinks(settings: Settings) -> list[HealthSink]:
    """Who is told how turns go, as the settings say. Whoever asks for them closes those that can be closed."""
    given = settings.health
    sinks: list[HealthSink] = []
    if given.log:
        from recto.health.exporters.json_log import Log  # noqa: PLC0415  # each only for who wants it

        sinks.append(Log(given.log, text=given.log_text))
    if given.webhook.url:
        from recto.health.exporters.webhook import CONTENT_TYPE, Webhook  # noqa: PLC0415
        from recto.models.http import Posting  # noqa: PLC0415

        hook = given.webhook
        post = Posting(
            hook.url, setting="health.webhook", key=hook.key, seconds=hook.seconds, content_type=CONTENT_TYPE
        )
        sinks.append(Webhook(post, let_go=post.close))
    if given.telemetry:
        try:
            from recto.health.exporters.opentelemetry import Telemetry  # noqa: PLC0415
        except ImportError:
            raise SettingsError("health.telemetry", "needs a package: pip install 'recto[telemetry]'") from None
        registry = Registry(overrides=settings.models)
        sinks.append(
            Telemetry(
                provider_of=lambda name: registry.card(name, warn=False).provider,
                known_model=lambda name: registry.card(name, warn=False).known,
            )
        )
    return sinks


def make_metrics(settings: Settings, sinks: Sequence[HealthSink] = ()) -> Metrics:
    """Metrics for Prometheus, in which only known models have names, and what the other sinks lose is counted."""
    from recto.health.exporters.prometheus import Metrics  # noqa: PLC0415

    registry = Registry(overrides=settings.models)
    metrics = Metrics(known_model=lambda name: registry.card(name, warn=False).known)
    for sink in sinks:
        metrics.watch(sink)
    return metrics


MEMORY_STORE = "memory:"
"""The location of a store that goes with the process."""
_POSTGRES = ("postgresql://", "postgres://")
_IN_MEMORY: WeakKeyDictionary[TranscriptStore, RecallIndex] = WeakKeyDictionary()
"""The index of each store that goes with the process: sessions of one store share it, as they share a file."""


def open_store(settings: Settings, *, create: bool = True) -> TranscriptStore:
    """The store that the settings name. With `create=False` a store that is not there is an error, not a new one."""
    if settings.store == MEMORY_STORE:
        return MemoryStore()
    if uses_postgres(settings):
        return _postgres(settings, create)
    path = Path(settings.store).expanduser()
    if create and settings.store == Settings().store:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    return SqliteStore(path, create=create, lock_timeout=settings.limits.lock_seconds)


def open_replica(settings: Settings, store: TranscriptStore) -> Replica | None:
    """The replica that the settings name, to read from in place of an open store; None where they name none."""
    given = settings.replica
    if not given.url:
        return None
    if not uses_postgres(settings) or not given.url.startswith(_POSTGRES):
        raise SettingsError("replica.url", "a replica is one of a store in PostgreSQL: postgresql://… both")
    made: Replica = _driver(settings).PostgresReplica(given.url, store, most=given.staleness_seconds)
    return made


def open_index(settings: Settings, store: TranscriptStore) -> RecallIndex:
    """The index that belongs to a store: a file beside its file, tables beside its tables, or in memory like it."""
    from recto.stores.memory import MemoryIndex  # noqa: PLC0415  # only for who recalls
    from recto.stores.sqlite.index import SqliteIndex  # noqa: PLC0415

    patience = min(settings.limits.lock_seconds, settings.recall.index_seconds)
    if isinstance(store, SqliteStore):
        return SqliteIndex(f"{store.location}-recall", lock_timeout=patience)
    if callable(beside := getattr(store, "index", None)):
        made: RecallIndex = beside(lock_timeout=patience)
        return made
    return _IN_MEMORY.setdefault(store, MemoryIndex())


def uses_postgres(settings: Settings) -> bool:
    """Whether the store is in a database that others may use as well."""
    return settings.store.startswith(_POSTGRES)


def is_persistent(store: TranscriptStore) -> bool:
    """Whether it outlives the process, and its index with it."""
    return not isinstance(store, MemoryStore)


def _sidecar_prefix(store: TranscriptStore) -> str:
    """What a folder beside a store's file begins with; empty where it is no file."""
    return store.location if isinstance(store, SqliteStore) else ""


def memory_root(settings: Settings, store: TranscriptStore, tenant: str) -> Path | None:
    """Where the memory of a tenant's agents is, or that of those without one; None where there is no such place."""
    from recto.continuity.memory.files import folder_name  # noqa: PLC0415  # only for who has memory

    beside = _sidecar_prefix(store)
    root = settings.memory.folder or (beside and f"{beside}-memory")
    return Path(root).expanduser() / (f"tenant-{folder_name(tenant)}" if tenant else "own") if root else None


def derived_folders(settings: Settings, store: TranscriptStore, sessions: Iterable[str], tenant: str) -> Iterator[Path]:
    """The folders that were made of sessions, or of all that a tenant has: checkpoints, and pages of memory."""
    from recto.continuity.memory.files import folder_name  # noqa: PLC0415
    from recto.engine.checkpoint_files import folder_of  # noqa: PLC0415  # only for who erases

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


def grant_role(settings: Settings, role: str) -> None:
    """Gives a role of a database what a gateway needs."""
    _driver(settings).granted(settings.store, role)


def _postgres(settings: Settings, create: bool) -> TranscriptStore:
    made: TranscriptStore = _driver(settings).PostgresStore(
        settings.store, create=create, lock_timeout=settings.limits.lock_seconds
    )
    return made


def _driver(settings: Settings) -> ModuleType:
    """The part that speaks to PostgreSQL, which only those have who need it."""
    if not uses_postgres(settings):
        raise SettingsError("store", "this is about a store in a database; name one: --store postgresql://…")
    try:
        return import_module("recto.stores.postgres")
    except ModuleNotFoundError as missing:
        reason = f"the package {missing.name} is missing; install it with: pip install 'recto[postgres]'"
        raise SettingsError("store", reason) from None


_EMBEDDED_INPUT = 3_000
"""What a model in this process is shown: a laptop reads so much in half a minute."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000


def model_card(settings: Settings) -> ModelCard:
    """What is known about the settings' model."""
    return Registry(overrides=settings.models).card(settings.model)


def make_meter(settings: Settings) -> Meter:
    """What counts tokens as the settings' model does."""
    return Tokenizers(settings.tokenizers).meter_for(model_card(settings))


def make_importer(settings: Settings, store: TranscriptStore, model: str | None = None) -> Importer:
    """What takes session files into a store: counted as `model` does, else as the model the file names."""

    def meter_of(named: str) -> Meter:
        return make_meter(replace(settings, model=model or settings.model or named))

    return Importer(store=store, clock=SystemClock(), meter_for=meter_of)


def open_session(
    settings: Settings,
    store: TranscriptStore | None = None,
    indexer: Indexer | None = None,
    *,
    model: ChatModel | None = None,
    dispatcher: Dispatcher | None = None,
    sinks: Sequence[HealthSink] | None = None,
    clock: Clock | None = None,
    meter: Meter | None = None,
) -> Session:
    """The session that the settings name, in a store that is open already or in the one they name.

    Sessions of one store may share an indexer; then closing them leaves it open. `model` writes shorter texts instead
    of the one the settings name; `dispatcher` hands work to sub-agents. `sinks` are told how turns go, and stay open
    when the session is closed; without them, those that the settings name are opened and closed with it. `clock` says
    when things happen; without it, the machine's. `meter` counts; without it, as the settings' model does.
    """
    opened = open_store(settings) if store is None else store
    card, meter, clock = model_card(settings), meter or make_meter(settings), clock or SystemClock()
    given = settings.window
    budget = Budget.for_model(card, given.profile, reserve=given.reserve or None, enforced=given.enforced)
    key = stored_key(settings.session, settings.tenant)
    rules = make_relief_rules(settings, budget, card)

    def recall() -> Recall:
        return make_recall(settings, opened, key, indexer)

    delegator = _delegator(settings, opened, key, meter, dispatcher) if dispatcher else None

    def compressor(material: PromptBuilder) -> Compactor:
        from recto.engine.compactor import Compactor  # noqa: PLC0415  # only for who has something to write

        writer = make_writer(settings, meter, model)
        return Compactor(opened, key, material, writer, delegator, ahead=settings.compress.background)

    window = Window(
        opened,
        key,
        meter=meter,
        clock=clock,
        budget=budget,
        rules=rules,
        recall=recall if settings.recall.enabled else None,
        compressor=compressor,
        continuity=make_checkpoint_rules(settings),
    )
    window.standing = make_standing_context(settings, meter, budget.room)
    session = Session(
        opened,
        key,
        meter=meter,
        clock=clock,
        max_message_bytes=settings.limits.message_bytes,
        window=window,
        delegator=delegator,
        owns_store=store is None,
    )
    session.memory_for = partial(open_memory, settings, opened)
    if settings.health.enabled:
        session.measured_by(make_monitor(settings, opened, key, sinks))
    return session


def make_monitor(
    settings: Settings, store: TranscriptStore, key: str, sinks: Sequence[HealthSink] | None = None
) -> Monitor:
    """What follows how a session's turns go, and tells those given, or those that the settings name."""
    given = settings.health
    own = make_sinks(settings) if sinks is None else []
    rules = AlertRules(**asdict(given.alerts))
    monitor = Monitor(store, key, rules=rules, regret_turns=given.regret_turns, sinks=own if sinks is None else sinks)
    monitor.owned = own
    return monitor


def build_health_report(settings: Settings, store: TranscriptStore, key: str, turns: int) -> HealthReport:
    """How a stored session is, by its last turns and the settings' thresholds."""
    given = settings.health
    rules = AlertRules(**asdict(given.alerts))
    red = settings.window.red_percent / 100 or None
    return health_report(store, key, rules=rules, regret_turns=given.regret_turns, turns=turns, red=red)


def make_checkpoint_rules(settings: Settings) -> CheckpointRules:
    """How the work of a session is kept track of, as the settings say."""
    given = settings.continuity
    reached = bool(given.folder) or settings.window.mode != "sliding_window"
    return CheckpointRules(
        folder=given.folder,
        milestones=given.milestones == "always" or (given.milestones == "auto" and reached),
        environment=given.environment and bool(given.directory or not settings.tenant),
        directory=given.directory,
        hosts=given.hosts,
        resume_tokens=given.resume_tokens,
    )


def make_standing_context(settings: Settings, meter: Meter, room: int) -> StandingContext | None:
    """The files whose text stands before everything else; None where there are none."""
    given = settings.standing
    if not given.files:
        return None
    return StandingContext(
        [Path(name).expanduser() for name in given.files],
        count=meter.count,
        share=int(room * given.warning_percent / 100),
        most=int(room * given.most_percent / 100),
    )


def _delegator(settings: Settings, store: TranscriptStore, key: str, meter: Meter, dispatcher: Dispatcher) -> Delegator:
    from recto.engine.delegation import Delegator  # noqa: PLC0415  # only for who has sub-agents

    seconds = settings.compress.delegate_seconds
    return Delegator(store, key, dispatcher=dispatcher, meter=meter, clock=SystemClock(), seconds=seconds)


def make_writer(settings: Settings, meter: Meter, model: ChatModel | None = None) -> SummaryWriter:
    """Who writes shorter texts: the model that is given or that the settings name, and who needs none."""
    from recto.context.compaction.writer import SummaryWriter, WritingRules  # noqa: PLC0415

    given = settings.compress.model
    shown = min(given.input_tokens, _EMBEDDED_INPUT) if given.use == "embedded" else given.input_tokens
    rules = WritingRules(seconds=given.seconds, input_tokens=shown, calls=given.calls)
    return SummaryWriter(
        lambda: model or make_chat_model(settings), rules, meter.count, make_cost_function(settings, model)
    )


def make_chat_model(settings: Settings) -> ChatModel | None:
    """The model that the settings name for writing; None where they name none."""
    from recto.models.chat import ChatChoice, chat_model_for  # noqa: PLC0415  # only for who has a model

    given = settings.compress.model
    return chat_model_for(
        ChatChoice(
            use=given.use,
            url=given.url,
            model=given.model,
            key=given.key,
            path=given.path,
            context=given.context,
            seconds=given.seconds,
        )
    )


def make_embedded_model(settings: Settings) -> EmbeddedModel:
    """The model in this process that answers where no upstream is configured. Raises `SettingsError` with the cure."""
    from recto.models.chat import ChatChoice, embedded_model_for  # noqa: PLC0415  # only for who has no other

    given = settings.compress.model
    own = given if given.use == "embedded" else replace(given, model="", path="", context=0)
    choice = ChatChoice(
        use="embedded", model=own.model, path=own.path, context=own.context, seconds=settings.gateway.upstream_seconds
    )
    return embedded_model_for(choice)


def make_cost_function(settings: Settings, model: ChatModel | None = None) -> Callable[[int, int], int]:
    """What a call of the writing model costs, in picodollars; one on this machine costs nothing."""
    name = model.name if model is not None else settings.compress.model.model
    if not name or (model is None and settings.compress.model.use in ("none", "embedded")):
        return lambda _prompt, _answer: 0
    card = Registry(overrides=settings.models).card(name, warn=False)  # only its prices are wanted
    if card.input_price is None:
        return lambda _prompt, _answer: 0
    return lambda prompt, answer: bill(card, 0, prompt, answer)


def make_recall(settings: Settings, store: TranscriptStore, key: str, indexer: Indexer | None = None) -> Recall:
    """Recall of a session, over an indexer that is shared or over one of its own."""
    from recto.recall.ranking import RankingWeights  # noqa: PLC0415  # numpy only for who has something to recall
    from recto.recall.recall import Recall, RecallRules  # noqa: PLC0415
    from recto.recall.search import Searcher  # noqa: PLC0415

    given = settings.recall
    rules = RecallRules(
        inject=given.inject,
        scope=given.scope,
        threshold=given.threshold,
        most=given.most,
        tokens=given.tokens,
        index_seconds=given.index_seconds,
    )
    searcher = Searcher(
        indexer or make_indexer(settings, store), weights=RankingWeights(half_life_days=given.half_life_days)
    )
    authority = make_memory_authority(settings, store)
    return Recall(searcher, key, rules=rules, owns_indexer=indexer is None, authority=authority)


def memory_folder(settings: Settings, store: TranscriptStore, key: str) -> MemoryFolder | None:
    """The folder of a session's agent and tenant; None where the settings name none and the store is no file."""
    from recto.continuity.memory.files import MemoryFolder, folder_name  # noqa: PLC0415
    from recto.transcript.session_keys import agent_of  # noqa: PLC0415  # only for who has memory

    root = memory_root(settings, store, tenant_of(key))
    return MemoryFolder(root / folder_name(agent_of(key))) if root else None


def make_memory_authority(settings: Settings, store: TranscriptStore) -> MemoryAuthority:
    """What tells recall which messages are approved memory."""
    from recto.continuity.memory.authority import MemoryAuthority  # noqa: PLC0415

    return MemoryAuthority(store, partial(memory_folder, settings, store))


def open_memory(settings: Settings, store: TranscriptStore) -> Memories:
    """The durable memory of the settings' agent."""
    from recto.continuity.memory.manager import Memories, MemoryRules  # noqa: PLC0415

    key = stored_key(settings.session, settings.tenant)
    folder, given = memory_folder(settings, store, key), settings.memory
    if folder is None:
        raise SettingsError("memory.folder", "this store is not a file, so say where memory is kept")
    rules = MemoryRules(
        approve=frozenset(given.approve),
        half_life_days=given.half_life_days,
        retire=given.retire,
        retire_below=given.retire_below,
        proposals=given.proposals,
        every_hours=given.every_hours,
    )
    return Memories(store, key, folder, clock=SystemClock(), meter=make_meter(settings), rules=rules)


def make_consolidator(
    settings: Settings, store: TranscriptStore, indexer: Indexer | None = None, *, model: ChatModel | None = None
) -> Consolidator:
    """What reviews finished history: with the model that is given or that the settings name, else by rule."""
    from recto.continuity.memory.consolidation import Consolidator  # noqa: PLC0415

    recall = None if indexer is None else partial(make_recall, settings, store, indexer=indexer)
    return Consolidator(open_memory(settings, store), model=model or make_chat_model(settings), recall_of=recall)


def make_indexer(settings: Settings, store: TranscriptStore) -> Indexer:
    """What takes a store's messages into the index beside it."""
    from recto.models.embedders import EmbedderChoice, embedder_for, known_embedder  # noqa: PLC0415
    from recto.recall.indexer import Indexer  # noqa: PLC0415
    from recto.recall.stemmer import PorterLexicon  # noqa: PLC0415

    index = open_index(settings, store)
    embedder = embedder_for(EmbedderChoice(**asdict(settings.recall.embedder)))
    lanes: list[LaneSize] = []
    with suppress(IndexFailed):  # it is mended or told of when something is to leave; the turn goes on until then
        lanes = index.lanes()
    names = [size.lane.removeprefix("vectors/") for size in lanes if size.lane.startswith("vectors/")]
    before = [known_embedder(name) for name in names if embedder is None or name != embedder.name]
    return Indexer(
        store,
        index,
        lexicon=PorterLexicon(),
        embedder=embedder,
        before=[one for one in before if one is not None],
        in_background=settings.recall.background,
        owns_index=is_persistent(store),
    )


def open(
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    session: str | None = None,
    model: str | None = None,
    tenant: str | None = None,
    config: str | os.PathLike[str] | None = None,
    writer: ChatModel | None = None,
    dispatcher: Dispatcher | None = None,
    **more: Mapping[str, Any],
) -> Session:
    """Opens a session, creating the store if there is none.

    `store` is a path, `"memory:"`, or a store that is open already (then closing the session leaves it open). What is
    not given comes from the environment, then from the settings file, then from the defaults. Other groups of
    settings can be given by name: `recto.open("a.db", limits={"message_bytes": 1_000_000})`. `writer` is a model of
    your own that writes shorter texts; `dispatcher` hands work to your sub-agents.
    """
    named, opened = (store, None) if store is None or isinstance(store, str | os.PathLike) else (None, store)
    arguments = {"store": named, "session": session, "model": model, "tenant": tenant, **more}
    settings = load(path=None if config is None else Path(config), arguments=arguments)
    return open_session(settings, opened, model=writer, dispatcher=dispatcher)


def fit(
    messages: Sequence[M],
    max_tokens: int,
    *,
    model: str = "",
    tools: Sequence[Any] = (),
    threshold: float = 0.8,
    keep_turns: int = 3,
) -> list[M]:
    """The messages, without the oldest where they would not fit: one call, nothing stored.

    Takes dicts or exact JSON bytes of any of the three wire formats and returns the same; what is kept is what came
    in. Calls and their results stay or leave together, the task and the current request stay, and a marker says how
    many messages left. Raises `WindowOverflow` where what must stay does not fit.
    """
    meter = make_meter(load(arguments={"model": model or None}))
    return fit_messages(
        messages, max_tokens=max_tokens, meter=meter, tools=tools, threshold=threshold, keep_turns=keep_turns
    )


async def open_async(
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    session: str | None = None,
    model: str | None = None,
    tenant: str | None = None,
    config: str | os.PathLike[str] | None = None,
    writer: ChatModel | None = None,
    dispatcher: Dispatcher | None = None,
    **more: Mapping[str, Any],
) -> AsyncSession:
    """`open` for programs that await: `async with await recto.open_async("a.db") as session: …`."""
    from recto.engine.async_session import AsyncSession, on_a_thread  # noqa: PLC0415  # asyncio only for who awaits

    opening = partial(open, session=session, model=model, tenant=tenant, config=config, writer=writer)
    return AsyncSession(await on_a_thread(opening, store, dispatcher=dispatcher, **more))
