"""OpenAI Agents SDK: a session stored in a Recto transcript, and a filter that fits the input of each model call.

```
    session = RectoSession("thread-1", "agent.db", model="gpt-4o")
    result = await Runner.run(agent, "Hello", session=session, run_config=session.run_config)
```

Items are stored as the SDK passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from agents import RunConfig, RunContextWrapper, RunHooks
from agents.memory.session_settings import SessionSettings, resolve_session_limit
from agents.run import CallModelData, ModelInputData
from agents.tool import FunctionTool

from recto.adapters._messages import move, place_of, speaking, told_in
from recto.adapters.conversations import ClosingAdapter, Conversations
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import Following
from recto.formats.openai_responses import OPENAI_RESPONSES

__all__ = ["RectoInputFilter", "RectoSession"]
Item: TypeAlias = dict[str, Any]


class RectoSession(ClosingAdapter):
    """A session of the SDK. Removed items are not deleted: the session continues in a branch without them."""

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
        self._is_shared = conversations is not None
        self.conversations = speaking(OPENAI_RESPONSES.name, conversations, store=store, **names)
        self._ahead: list[Item] = []
        """Items that were in a model call before the SDK added them."""

    @property
    def conversation(self) -> Following:
        """The current conversation: `compact(focus)`, and every call of a Recto session."""
        return place_of(self.conversations, self.session_id)

    @property
    def run_config(self) -> RunConfig:
        """For `Runner.run(…, run_config=…)`; in your own configuration set `call_model_input_filter=` to `fitted`."""
        return RunConfig(call_model_input_filter=self.fitted)

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """Return all items, or the newest ones."""
        return await on_a_thread(self._items, resolve_session_limit(limit, self.session_settings))

    async def add_items(self, items: list[Item]) -> None:
        """Store items durably."""
        await on_a_thread(self._add, items)

    async def pop_item(self) -> Item | None:
        """Remove and return the newest item."""
        return await on_a_thread(self._pop)

    async def clear_session(self) -> None:
        """Start over. Stored items remain in the store."""
        await on_a_thread(lambda: move(self.conversation))

    async def fitted(self, data: CallModelData[Any]) -> ModelInputData:
        """For `RunConfig(call_model_input_filter=…)`: return the input of this call."""
        return await fitted(data, lambda items: self._following(items, str(data.agent.name)))

    def _following(self, items: Sequence[Item], agent: str) -> Following:
        current = self.conversation
        new = current.new_in(items)
        if new is None:  # rewritten by a handoff's own filter, for one agent; the session has the original
            return self.conversations.of(f"{self.session_id} as given to {agent}")
        self._ahead += new
        return current

    def _items(self, limit: int | None) -> list[Item]:
        if limit is None:
            self._ahead.clear()
        items = [item for _, item in told_in(self.conversation)]
        return items if limit is None else items[-limit:] if limit > 0 else []

    def _add(self, items: list[Item]) -> None:
        while items and items[0] in self._ahead:
            self._ahead, items = self._ahead[self._ahead.index(items[0]) + 1 :], items[1:]
        self.conversation.heard(*items)

    def _pop(self) -> Item | None:
        items = told_in(self.conversation)
        if not items:
            return None
        move(self.conversation, items[-2][0] if len(items) > 1 else 0)
        return items[-1][1]


class RectoInputFilter(ClosingAdapter, RunHooks[Any]):
    """For `RunConfig(call_model_input_filter=…)`, with any session or none; as `hooks=` it stores answers at once.

    `session_id` names the conversation, or is a function from the run's context to its name.
    """

    def __init__(
        self,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        *,
        session_id: str | Callable[[Any], str] = "",
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        self._is_shared = conversations is not None
        self.conversations = speaking(OPENAI_RESPONSES.name, conversations, store=store, **names)
        self._session_id = session_id

    def of(self, context: object) -> Following:
        """Return the conversation of a run, by its context."""
        return self.conversations.of(self._session_id(context) if callable(self._session_id) else self._session_id)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input of this call."""
        return await fitted(data, lambda items: self.of(data.context))

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Any, response: Any) -> None:  # noqa: ANN401
        """Store the answer before its tools run."""
        reported = response.usage
        usage: Item = {"input_tokens": reported.input_tokens, "output_tokens": reported.output_tokens}
        usage["input_tokens_details"] = {"cached_tokens": reported.input_tokens_details.cached_tokens}
        items = [dict(item) for item in response.to_input_items()]
        await on_a_thread(self.of(context.context).heard, *items, usage=usage if reported.input_tokens else None)


async def fitted(data: CallModelData[Any], find: Callable[[list[Item]], Following]) -> ModelInputData:
    """Return the input of a call, in the conversation that `find` returns for its items."""
    tools = [_schema(tool) for tool in await data.agent.get_all_tools(RunContextWrapper(context=data.context))]
    items: list[Any] = [dict(item) for item in data.model_data.input]
    beside = data.model_data.instructions or ""

    def work() -> list[Any]:
        return find(items).working_set(items, lambda item: [item], lambda changed: changed, tools=tools, beside=beside)

    return ModelInputData(input=await on_a_thread(work), instructions=data.model_data.instructions)


def _schema(tool: Any) -> Item:  # noqa: ANN401  # one of a dozen kinds
    if isinstance(tool, FunctionTool):
        shape = {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
        return {"type": "function", **shape}
    return {"type": str(tool.name)}
