"""Conversations that others keep, over one store: what framework adapters and plain loops plug into.

conversations = recto.follow("agent.db", model="gpt-4o", max_tokens=32_000)
messages = conversations.of("thread-1").fitted(messages)
"""

from __future__ import annotations

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack
from weakref import WeakValueDictionary

from recto.adapters.options import ConversationOptions, Size, Summarizer, joined
from recto.config import Settings, load
from recto.config.factory import make_indexer, model_card, open_session, open_store, own_meter
from recto.config.loader import override
from recto.config.modes import settings_for_start
from recto.context.compaction.protocols import ChatModel
from recto.context.window.budget import Budget
from recto.engine.arguments import check_function, check_writer
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following
from recto.engine.session import Session
from recto.errors import InputError
from recto.formats import DEFAULT_FORMAT, FORMATS
from recto.tokens.meter import Meter
from recto.transcript.entries import DEFAULT_SESSION
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.config.options import SettingsOptions
    from recto.recall.indexer import Indexer

_OPEN = 256
"""Conversations that are kept open while no caller holds them; the least recently used one is closed."""
_LONGEST = 120
"""Characters of a name that are kept as they are."""


class ClosingBlock(ABC):
    """A context manager, also of `async with`, that is closed at its end."""

    @abstractmethod
    def close(self) -> None:
        """Closes what was opened for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await on_a_thread(self.close)


class Conversations(ClosingBlock):
    """The conversations of one application, each in a session of its own."""

    def __init__(
        self,
        settings: Settings,
        store: TranscriptStore | None = None,
        *,
        writer: ChatModel | None = None,
        meter: Meter | None = None,
        pin: Callable[[ChatMessage], bool] | None = None,
        surface: str = "library",
        wire: str = DEFAULT_FORMAT.name,
    ) -> None:
        self.settings = settings
        self.wire = wire
        """The format in which messages are given and taken."""
        self._owns_store = store is None
        self._store = open_store(settings) if store is None else store
        self._writer = writer
        self._meter = meter
        self._pin = pin
        self._surface = surface
        self._recent: OrderedDict[str, Following] = OrderedDict()
        self._open: WeakValueDictionary[str, Following] = WeakValueDictionary()
        """All that are open, including those that callers hold: a conversation is never open twice."""
        self._lock = threading.Lock()

    def of(self, session_id: str = "") -> Following:
        """The conversation with an id of the host's; without one, the session that the settings name."""
        name = named_session(session_id, self.settings.session)
        with self._lock:
            following = self._open.get(name)
            if following is None:
                following = self._following(name)
                self._open[name] = following
            self._recent[name] = following
            self._recent.move_to_end(name)
            while len(self._recent) > _OPEN:
                self._recent.popitem(last=False)  # who still holds it can go on; it closes when no caller does
            return following

    def beside(self, session_id: str = "") -> Following:
        """Another view of a conversation, for a host that works on two lists at once under one id.

        A list that differs from what is stored continues in a branch of this view; the view of `of` stays where it is.
        The caller closes it.
        """
        return self._following(named_session(session_id, self.settings.session))

    def _following(self, name: str) -> Following:
        return Following(self._session(name), self._session, pin=self._pin, surface=self._surface, wire=self.wire)

    @cached_property
    def _indexer(self) -> Indexer | None:
        return make_indexer(self.settings, self._store) if self.settings.recall.enabled else None

    def _session(self, name: str) -> Session:
        settings = replace(self.settings, session=name)
        return open_session(settings, self._store, self._indexer, model=self._writer, meter=self._meter)

    def close(self) -> None:
        """Closes every conversation, and the store, if it was opened here."""
        with self._lock:
            for following in list(self._open.values()):
                following.close()
            self._open.clear()
            self._recent.clear()
        if "_indexer" in self.__dict__ and self._indexer is not None:
            self._indexer.close()
        if self._owns_store:
            self._store.close()


class ClosingAdapter(ClosingBlock):
    """An adapter that closes the conversations that it opened itself."""

    conversations: Conversations
    _is_shared: bool = False
    """Whether the conversations were passed in: then whoever opened them closes them."""

    def close(self) -> None:
        """Closes the conversations and the store that were opened for this adapter."""
        if not self._is_shared:
            self.conversations.close()


def named_session(session_id: str, usual: str) -> str:
    """The session of an id: as it is where it is a session's name, else one of the usual session's agent."""
    if session_id is not None and not isinstance(session_id, str):
        raise InputError(f"the id of a conversation is a text, not {session_id!r:.60}; pass str(id)")
    if not session_id:
        return usual
    if session_id.startswith("agent:"):
        return session_id
    agent = (usual if usual.startswith("agent:") else DEFAULT_SESSION).split(":")[1]
    plain = session_id.isprintable() and "~" not in session_id and session_id == session_id.strip()
    if not plain or len(session_id) > _LONGEST:
        session_id = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"agent:{agent}:{session_id}"


def follow(  # noqa: PLR0913  # names that people know, each on its own
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    model: str = "",
    max_tokens: int | None = None,
    session_id: str = "",
    tenant: str | None = None,
    config: str | os.PathLike[str] | None = None,
    trigger: Size | None = None,
    keep: Size | None = None,
    keep_tokens: int | None = None,
    preserve_recent: int | None = None,
    exclude_tools: Sequence[str] = (),
    placeholder: str = "",
    clear_at_least: int | None = None,
    token_counter: Callable[[str], int] | None = None,
    summarizer: Callable[[str], str] | ChatModel | None = None,
    pin: Callable[[ChatMessage], bool] | None = None,
    surface: str = "library",
    wire: str = DEFAULT_FORMAT.name,
    **more: Unpack[SettingsOptions],
) -> Conversations:
    """Follows conversations that an application keeps itself; see `Conversations.of` and `Following`.

    `max_tokens` is the size of the window where the model is not known or should have less than it could. `pin` says
    of which messages never to let go. `summarizer` writes shorter texts: a function from text to text, or a model;
    with it, and no mode given, what is old becomes a summary. Groups of settings can be given by name as in `open`.
    `wire` is the format of the messages where it is not that of OpenAI Chat: `"anthropic.messages"`,
    `"openai.responses"`.
    """
    if wire not in FORMATS:
        raise InputError(f"'{wire}' is not a wire format; known are {', '.join(FORMATS)}")
    check_function("pin", pin)
    named, opened = (store, None) if store is None or isinstance(store, str | os.PathLike) else (None, store)
    wishes = ConversationOptions(
        trigger=trigger,
        keep=keep,
        keep_tokens=keep_tokens,
        preserve_recent=preserve_recent,
        exclude_tools=exclude_tools,
        placeholder=placeholder,
        clear_at_least=clear_at_least,
    )
    session = named_session(session_id, DEFAULT_SESSION) if session_id else None
    arguments: dict[str, Any] = {"store": named, "session": session, "model": model or None, "tenant": tenant}
    path = None if config is None else Path(config)
    groups: Mapping[str, Any] = more
    known = load(path=path, arguments={**arguments, **groups})
    if max_tokens is not None:
        groups = joined({"models": {known.model: {"window": max_tokens, "max_input": max_tokens}}}, groups)
        known = load(path=path, arguments={**arguments, **groups})
    card, window = model_card(known), known.window
    budget = Budget.for_model(card, window.profile, reserve=window.reserve or None, enforced=window.enforced)
    ours = wishes.window(budget.input_budget)
    if summarizer is not None and "mode" not in ours:
        ours["mode"] = "auto_compact"
    settings = load(path=path, arguments={**arguments, **joined({"window": ours}, groups)})
    if settings.window.mode == "auto_compact":
        wishes.refuse_counts()
    if trigger is not None:
        own_names = {*ours, *(groups.get("window") or ())}
        settings = _starting_at(ours["ceiling_percent"], settings, budget, own_names)
    writer = Summarizer(summarizer) if callable(summarizer) and not hasattr(summarizer, "complete") else summarizer
    check_writer("summarizer", writer)
    return Conversations(
        settings,
        opened,
        writer=writer,  # type: ignore[arg-type]  # a function is none any more
        meter=None if token_counter is None else own_meter(token_counter),
        pin=pin,
        surface=surface,
        wire=wire,
    )


def _starting_at(percent: float, settings: Settings, budget: Budget, own_names: Collection[str]) -> Settings:
    """Settings with which relief starts at a percent of the input budget; those given by their own names stay."""
    start = settings_for_start(settings.window, budget, percent)
    return override(settings, {"window": {name: value for name, value in start.items() if name not in own_names}})
