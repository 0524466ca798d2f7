"""OpenAI Agents SDK: a session whose transcript is Recto's, and a filter that fits what each call of the model sends.

    session = RectoSession("thread-1", "agent.db", model="gpt-4o")
    result = await Runner.run(agent, "Hello", session=session, run_config=session.run_config)

Items are kept as the SDK gives them. Which of them the model gets is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents import RunConfig
from agents.memory.session_settings import SessionSettings, resolve_session_limit
from agents.run import CallModelData, ModelInputData

from recto.adapters.kept import move, place_of, told_in
from recto.adapters.openai_agents_input import Item, RectoInputFilter, fitted
from recto.adapters.wires import speaking
from recto.conversations import Conversations
from recto.engine.async_session import on_a_thread
from recto.engine.following import Following
from recto.wire.names import RESPONSES

__all__ = ["RectoInputFilter", "RectoSession"]


class RectoSession:
    """A session of the SDK. What is taken out of it is not deleted: it goes on in a branch without it."""

    def __init__(
        self,
        session_id: str,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        *,
        conversations: Conversations | None = None,
        session_settings: SessionSettings | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self.conversations = speaking(RESPONSES, conversations, store=store, **names)
        self._ahead: list[Item] = []
        """Items that came with a call of the model before the SDK added them."""

    @property
    def conversation(self) -> Following:
        """Where it is kept now: `compact(focus)`, and everything a session of Recto's can do."""
        return place_of(self.conversations, self.session_id)

    @property
    def run_config(self) -> RunConfig:
        """For `Runner.run(…, run_config=…)`; in a configuration of your own, `call_model_input_filter=` is `fitted`."""
        return RunConfig(call_model_input_filter=self.fitted)

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """Everything that was ever added, or the newest items of it."""
        return await on_a_thread(self._items, resolve_session_limit(limit, self.session_settings))

    async def add_items(self, items: list[Item]) -> None:
        """Stores items; when this returns they are durable."""
        await on_a_thread(self._add, items)

    async def pop_item(self) -> Item | None:
        """Takes the newest item back."""
        return await on_a_thread(self._pop)

    async def clear_session(self) -> None:
        """Begins anew. What was said stays in the store."""
        await on_a_thread(lambda: move(self.conversation))

    async def fitted(self, data: CallModelData[Any]) -> ModelInputData:
        """For `RunConfig(call_model_input_filter=…)`: what to send in this call."""
        return await fitted(data, lambda items: self._following(items, str(data.agent.name)))

    def _following(self, items: Sequence[Item], agent: str) -> Following:
        here = self.conversation
        new = here.new_in(items)
        if new is None:  # a handoff's own filter has rewritten it, for one agent; the session has it as it was
            return self.conversations.of(f"{self.session_id} as given to {agent}")
        self._ahead += new
        return here

    def _items(self, limit: int | None) -> list[Item]:
        if limit is None:
            self._ahead.clear()
        found = [item for _, item in told_in(self.conversation)]
        return found if limit is None else found[-limit:] if limit > 0 else []

    def _add(self, items: list[Item]) -> None:
        while items and items[0] in self._ahead:
            self._ahead, items = self._ahead[self._ahead.index(items[0]) + 1 :], items[1:]
        self.conversation.heard(*items)

    def _pop(self) -> Item | None:
        found = told_in(self.conversation)
        if not found:
            return None
        move(self.conversation, found[-2][0] if len(found) > 1 else 0)
        return found[-1][1]
