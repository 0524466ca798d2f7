"""The same session for programs that await: each call runs the blocking one on a thread. One implementation, two faces.

A task that is cancelled while it waits does not undo what its thread has begun: the outcome is then unknown until
`find` is asked, which is what keys are for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from recto.context.compaction.protocols import ChatModel, Delegated
from recto.context.facts.types import Fact
from recto.context.window.budget import BudgetVerdict
from recto.context.window.notes import NoteKind
from recto.context.window.report import Report
from recto.engine.prompt import Prompt
from recto.engine.session import MessageLike, Session
from recto.engine.verification import Verification
from recto.health.metrics import Alert
from recto.health.protocols import HealthSink
from recto.health.trends import HealthReport
from recto.recall.types import SearchResult
from recto.transcript.entries import Entry, Head
from recto.transcript.session_keys import Scope

if TYPE_CHECKING:
    from recto.context.compaction.fidelity import JudgedFidelity, Question
    from recto.continuity.memory.model import Memory, MemoryKind
    from recto.continuity.memory.proposals import Proposal

_T = TypeVar("_T")
_PAGE = 200


@cache
def _threads() -> ThreadPoolExecutor:
    # Enough for a group commit to have a group; asyncio's own pool has six threads on two cores.
    return ThreadPoolExecutor(max_workers=32, thread_name_prefix="recto")


async def on_a_thread(call: Callable[..., _T], /, *args: object, **kwargs: object) -> _T:
    """Runs a blocking call without holding up the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), partial(call, *args, **kwargs))


class AsyncSession:
    """A `Session` whose calls are awaited."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def key(self) -> str:
        """The session's canonical key."""
        return self.session.key

    async def append(
        self,
        message: MessageLike,
        *,
        key: str | None = None,
        expect: int | None = None,
        meta: Mapping[str, Any] | None = None,
        surface: str = "library",
    ) -> Entry:
        """See `Session.append`."""
        return await on_a_thread(self.session.append, message, key=key, expect=expect, meta=meta, surface=surface)

    async def append_all(
        self,
        messages: Iterable[MessageLike],
        *,
        key: str | None = None,
        expect: int | None = None,
        meta: Mapping[str, Any] | None = None,
        surface: str = "library",
    ) -> list[Entry]:
        """See `Session.append_all`."""
        return await on_a_thread(self.session.append_all, messages, key=key, expect=expect, meta=meta, surface=surface)

    async def record(self, kind: str, content: Mapping[str, Any], *, key: str | None = None) -> Entry:
        """See `Session.record`."""
        return await on_a_thread(self.session.record, kind, content, key=key)

    async def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[Entry]:
        """See `Session.read`."""
        entries = self.session.read(start, stop)
        while page := await on_a_thread(lambda: list(islice(entries, _PAGE))):
            for entry in page:
                yield entry

    async def tail(self, count: int = 20) -> list[Entry]:
        """See `Session.tail`."""
        return await on_a_thread(self.session.tail, count)

    async def get(self, id: str) -> Entry | None:
        """See `Session.get`."""
        return await on_a_thread(self.session.get, id)

    async def find(self, key: str) -> Entry | None:
        """See `Session.find`."""
        return await on_a_thread(self.session.find, key)

    async def head(self) -> Head:
        """See `Session.head`."""
        return await on_a_thread(lambda: self.session.head)

    async def verify(self, head: Head | None = None) -> Verification:
        """See `Session.verify`."""
        return await on_a_thread(self.session.verify, head)

    async def count(self, what: str | MessageLike | Sequence[MessageLike], *, tools: Sequence[Any] = ()) -> int:
        """See `Session.count`."""
        return await on_a_thread(self.session.count, what, tools=tools)

    async def observe(
        self, prompt: Sequence[MessageLike], usage: Mapping[str, Any], *, tools: Sequence[Any] = ()
    ) -> Entry:
        """See `Session.observe`."""
        return await on_a_thread(self.session.observe, prompt, usage, tools=tools)

    async def prompt(self, tools: Sequence[Any] = ()) -> Prompt:
        """See `Session.prompt`."""
        return await on_a_thread(self.session.prompt, tools)

    async def check(self, message: MessageLike) -> BudgetVerdict:
        """See `Session.check`."""
        return await on_a_thread(self.session.check, message)

    async def report(self, tools: Sequence[Any] = ()) -> Report:
        """See `Session.report`."""
        return await on_a_thread(self.session.report, tools)

    async def health(self, turns: int = 20) -> HealthReport:
        """See `Session.health`."""
        return await on_a_thread(self.session.health, turns)

    def on_alert(self, callback: Callable[[Alert], object]) -> None:
        """See `Session.on_alert`. It is called on the thread that does the work, not on the loop's."""
        self.session.on_alert(callback)

    def watch(self, sink: HealthSink) -> None:
        """See `Session.watch`; the same holds."""
        self.session.watch(sink)

    async def recall(self, query: str, *, most: int = 10, scope: Scope | None = None) -> SearchResult:
        """See `Session.recall`."""
        return await on_a_thread(self.session.recall, query, most=most, scope=scope)

    async def pin(self, *entries: int | str) -> Entry:
        """See `Session.pin`."""
        return await on_a_thread(self.session.pin, *entries)

    async def unpin(self, *entries: int | str) -> Entry:
        """See `Session.unpin`."""
        return await on_a_thread(self.session.unpin, *entries)

    async def restore(self, decision: int | str) -> Entry:
        """See `Session.restore`."""
        return await on_a_thread(self.session.restore, decision)

    async def redo(self, restored: int | str) -> Entry:
        """See `Session.redo`."""
        return await on_a_thread(self.session.redo, restored)

    async def remember(
        self, kind: MemoryKind, text: str, *, sources: Sequence[str] = (), critical: bool = False, why: str = ""
    ) -> Proposal:
        """See `Session.remember`."""
        return await on_a_thread(self.session.remember, kind, text, sources=sources, critical=critical, why=why)

    async def memories(self) -> tuple[Memory, ...]:
        """See `Session.memories`."""
        return await on_a_thread(self.session.memories)

    async def fork(self, name: str, *, at: int | str | None = None) -> Entry:
        """See `Session.fork`."""
        return await on_a_thread(self.session.fork, name, at=at)

    async def compact(self, focus: str = "") -> tuple[Entry, ...]:
        """See `Session.compact`."""
        return await on_a_thread(self.session.compact, focus)

    async def note(self, kind: NoteKind, text: str, *, critical: bool = False) -> Entry:
        """See `Session.note`."""
        return await on_a_thread(self.session.note, kind, text, critical=critical)

    async def checkpoint(self, *, expect: int | None = None, **changes: str | Sequence[str]) -> Entry:
        """See `Session.checkpoint`."""
        return await on_a_thread(self.session.checkpoint, expect=expect, **changes)

    async def handoff(self) -> Entry:
        """See `Session.handoff`."""
        return await on_a_thread(self.session.handoff)

    async def resume(self, source: str | os.PathLike[str] | None = None) -> Entry:
        """See `Session.resume`."""
        return await on_a_thread(self.session.resume, source)

    async def host_compacting(self) -> Entry:
        """See `Session.host_compacting`."""
        return await on_a_thread(self.session.host_compacting)

    async def host_compacted(self) -> str:
        """See `Session.host_compacted`."""
        return await on_a_thread(self.session.host_compacted)

    async def facts(self) -> tuple[Fact, ...]:
        """See `Session.facts`."""
        return await on_a_thread(self.session.facts)

    async def fidelity(self, model: ChatModel, questions: Sequence[Question] = ()) -> JudgedFidelity:
        """See `Session.fidelity`."""
        return await on_a_thread(self.session.fidelity, model, questions)

    async def delegate(self, task: str, *, entries: Iterable[int] = (), most: int = 1_000) -> Delegated:
        """See `Session.delegate`."""
        return await on_a_thread(self.session.delegate, task, entries=entries, most=most)

    async def close(self) -> None:
        """See `Session.close`."""
        await on_a_thread(self.session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
