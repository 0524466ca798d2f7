"""Puts the parts together. The only place that names concrete stores, tokenizers and clocks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto.core.alerts import AlertRules
from recto.core.budget import Budget
from recto.core.caching import bill
from recto.core.cards import ModelCard
from recto.core.continuity import Continuity
from recto.core.lanes import LaneSize
from recto.core.scopes import stored_key, tenant_of
from recto.core.tokens import Meter
from recto.core.trends import HealthReport
from recto.engine import fitting
from recto.engine.fitting import M
from recto.engine.health import Monitor, health_report
from recto.engine.importing import Importer
from recto.engine.material import Material
from recto.engine.session import Session
from recto.engine.standing import StandingContext
from recto.engine.window import Window
from recto.errors import IndexFailed, SettingsError
from recto.models.registry import Registry
from recto.models.tokenizers import Tokenizers
from recto.modes import rules_for
from recto.ports import ChatModel, Clock, Dispatcher, HealthSink, TranscriptStore
from recto.settings import Settings, load
from recto.storing import index_for, is_lasting, memory_root, open_store

if TYPE_CHECKING:
    from recto.engine.async_session import AsyncSession
    from recto.engine.compressing import Compressor
    from recto.engine.consolidating import Consolidator
    from recto.engine.delegating import Delegator
    from recto.engine.indexing import Indexer
    from recto.engine.memory import Memories
    from recto.engine.memory_authority import MemoryAuthority
    from recto.engine.memory_files import MemoryFolder
    from recto.engine.recalling import Recall
    from recto.engine.writing import Writer
    from recto.models.chat.embedded import EmbeddedModel

_EMBEDDED_INPUT = 3_000
"""What a model in this process is shown: a laptop reads so much in half a minute."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000


def card_for(settings: Settings) -> ModelCard:
    """What is known about the settings' model."""
    return Registry(overrides=settings.models).card(settings.model)


def meter_for(settings: Settings) -> Meter:
    """What counts tokens as the settings' model does."""
    return Tokenizers(settings.tokenizers).meter_for(card_for(settings))


def importer_for(settings: Settings, store: TranscriptStore, model: str | None = None) -> Importer:
    """What takes session files into a store: counted as `model` does, else as the model the file names."""

    def meter_of(named: str) -> Meter:
        return meter_for(replace(settings, model=model or settings.model or named))

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
    card, meter, clock = card_for(settings), meter or meter_for(settings), clock or SystemClock()
    given = settings.window
    budget = Budget.for_model(card, given.profile, reserve=given.reserve or None, enforced=given.enforced)
    key = stored_key(settings.session, settings.tenant)
    rules = rules_for(settings, budget, card)

    def recall() -> Recall:
        return recall_for(settings, opened, key, indexer)

    delegator = _delegator(settings, opened, key, meter, dispatcher) if dispatcher else None

    def compressor(material: Material) -> Compressor:
        from recto.engine.compressing import Compressor  # noqa: PLC0415  # only for who has something to write

        writer = writer_for(settings, meter, model)
        return Compressor(opened, key, material, writer, delegator, ahead=settings.compress.background)

    window = Window(
        opened,
        key,
        meter=meter,
        clock=clock,
        budget=budget,
        rules=rules,
        recall=recall if settings.recall.enabled else None,
        compressor=compressor,
        continuity=continuity_for(settings),
    )
    window.standing = standing_for(settings, meter, budget.room)
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
    session.memory_for = partial(memory_for, settings, opened)
    if settings.health.enabled:
        session.measured_by(monitor_for(settings, opened, key, sinks))
    return session


def monitor_for(
    settings: Settings, store: TranscriptStore, key: str, sinks: Sequence[HealthSink] | None = None
) -> Monitor:
    """What follows how a session's turns go, and tells those given, or those that the settings name."""
    given = settings.health
    own = sinks_for(settings) if sinks is None else []
    rules = AlertRules(**asdict(given.alerts))
    monitor = Monitor(store, key, rules=rules, regret_turns=given.regret_turns, sinks=own if sinks is None else sinks)
    monitor.owned = own
    return monitor


def health_for(settings: Settings, store: TranscriptStore, key: str, turns: int) -> HealthReport:
    """How a stored session is, by its last turns and the settings' thresholds."""
    given = settings.health
    rules = AlertRules(**asdict(given.alerts))
    red = settings.window.red_percent / 100 or None
    return health_report(store, key, rules=rules, regret_turns=given.regret_turns, turns=turns, red=red)


def continuity_for(settings: Settings) -> Continuity:
    """How the work of a session is kept track of, as the settings say."""
    given = settings.continuity
    reached = bool(given.folder) or settings.window.mode != "sliding_window"
    return Continuity(
        folder=given.folder,
        milestones=given.milestones == "always" or (given.milestones == "auto" and reached),
        environment=given.environment and bool(given.directory or not settings.tenant),
        directory=given.directory,
        hosts=given.hosts,
        resume_tokens=given.resume_tokens,
    )


def standing_for(settings: Settings, meter: Meter, room: int) -> StandingContext | None:
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
    from recto.engine.delegating import Delegator  # noqa: PLC0415  # only for who has sub-agents

    seconds = settings.compress.delegate_seconds
    return Delegator(store, key, dispatcher=dispatcher, meter=meter, clock=SystemClock(), seconds=seconds)


def writer_for(settings: Settings, meter: Meter, model: ChatModel | None = None) -> Writer:
    """Who writes shorter texts: the model that is given or that the settings name, and who needs none."""
    from recto.engine.writing import Writer, WritingRules  # noqa: PLC0415

    given = settings.compress.model
    shown = min(given.input_tokens, _EMBEDDED_INPUT) if given.use == "embedded" else given.input_tokens
    rules = WritingRules(seconds=given.seconds, input_tokens=shown, calls=given.calls)
    return Writer(lambda: model or chat_for(settings), rules, meter.count, bill_for(settings, model))


def chat_for(settings: Settings) -> ChatModel | None:
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


def embedded_for(settings: Settings) -> EmbeddedModel:
    """The model in this process that answers where no upstream is configured. Raises `SettingsError` with the cure."""
    from recto.models.chat import ChatChoice, embedded_model_for  # noqa: PLC0415  # only for who has no other

    given = settings.compress.model
    own = given if given.use == "embedded" else replace(given, model="", path="", context=0)
    choice = ChatChoice(
        use="embedded", model=own.model, path=own.path, context=own.context, seconds=settings.gateway.upstream_seconds
    )
    return embedded_model_for(choice)


def bill_for(settings: Settings, model: ChatModel | None = None) -> Callable[[int, int], int]:
    """What a call of the writing model costs, in picodollars; one on this machine costs nothing."""
    name = model.name if model is not None else settings.compress.model.model
    if not name or (model is None and settings.compress.model.use in ("none", "embedded")):
        return lambda _prompt, _answer: 0
    card = Registry(overrides=settings.models).card(name, warn=False)  # only its prices are wanted
    if card.input_price is None:
        return lambda _prompt, _answer: 0
    return lambda prompt, answer: bill(card, 0, prompt, answer)


def sinks_for(settings: Settings) -> list[HealthSink]:
    """Who is told how turns go, as the settings say. Whoever asks for them closes those that can be closed."""
    from recto.sinks import sinks_for  # noqa: PLC0415  # mostly there are none

    return sinks_for(settings)


def recall_for(settings: Settings, store: TranscriptStore, key: str, indexer: Indexer | None = None) -> Recall:
    """Recall of a session, over an indexer that is shared or over one of its own."""
    from recto.core.ranking import Weights  # noqa: PLC0415  # numpy only for who has something to recall
    from recto.engine.recalling import Recall, RecallRules  # noqa: PLC0415
    from recto.engine.searching import Searcher  # noqa: PLC0415

    given = settings.recall
    rules = RecallRules(
        inject=given.inject,
        scope=given.scope,
        threshold=given.threshold,
        most=given.most,
        tokens=given.tokens,
        index_seconds=given.index_seconds,
    )
    searcher = Searcher(indexer or indexer_for(settings, store), weights=Weights(half_life_days=given.half_life_days))
    authority = memory_authority_for(settings, store)
    return Recall(searcher, key, rules=rules, owns_indexer=indexer is None, authority=authority)


def memory_folder_for(settings: Settings, store: TranscriptStore, key: str) -> MemoryFolder | None:
    """The folder of a session's agent and tenant; None where the settings name none and the store is no file."""
    from recto.engine.memory_events import agent_of  # noqa: PLC0415  # only for who has memory
    from recto.engine.memory_files import MemoryFolder, folder_name  # noqa: PLC0415

    root = memory_root(settings, store, tenant_of(key))
    return MemoryFolder(root / folder_name(agent_of(key))) if root else None


def memory_authority_for(settings: Settings, store: TranscriptStore) -> MemoryAuthority:
    """What tells recall which messages are approved memory."""
    from recto.engine.memory_authority import MemoryAuthority  # noqa: PLC0415

    return MemoryAuthority(store, partial(memory_folder_for, settings, store))


def memory_for(settings: Settings, store: TranscriptStore) -> Memories:
    """The durable memory of the settings' agent."""
    from recto.engine.memory import Memories, MemoryRules  # noqa: PLC0415

    key = stored_key(settings.session, settings.tenant)
    folder, given = memory_folder_for(settings, store, key), settings.memory
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
    return Memories(store, key, folder, clock=SystemClock(), meter=meter_for(settings), rules=rules)


def consolidator_for(
    settings: Settings, store: TranscriptStore, indexer: Indexer | None = None, *, model: ChatModel | None = None
) -> Consolidator:
    """What reviews finished history: with the model that is given or that the settings name, else by rule."""
    from recto.engine.consolidating import Consolidator  # noqa: PLC0415

    recall = None if indexer is None else partial(recall_for, settings, store, indexer=indexer)
    return Consolidator(memory_for(settings, store), model=model or chat_for(settings), recall_of=recall)


def indexer_for(settings: Settings, store: TranscriptStore) -> Indexer:
    """What takes a store's messages into the index beside it."""
    from recto.engine.indexing import Indexer  # noqa: PLC0415
    from recto.models.embedders import EmbedderChoice, embedder_for, known_embedder  # noqa: PLC0415
    from recto.models.lexicon import PorterLexicon  # noqa: PLC0415

    index = index_for(settings, store)
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
        owns_index=is_lasting(store),
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
    meter = meter_for(load(arguments={"model": model or None}))
    return fitting.fit(
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
