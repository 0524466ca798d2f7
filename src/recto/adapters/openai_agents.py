"""OpenAI Agents SDK: a session whose transcript is Recto's, and a filter that fits what each call of the model sends.

    session = RectoSession("thread-1", "agent.db", model="gpt-4o")
    result = await Runner.run(agent, "Hello", session=session, run_config=session.run_config)

Items are kept as the SDK gives them. Which of them the model gets is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from agents import RunConfig, RunContextWrapper, RunHooks
from agents.memory.session_settings import SessionSettings, resolve_session_limit
from agents.run import CallModelData, ModelInputData
from agents.tool import FunctionTool

from recto.adapters._messages import move, place_of, speaking, told_in
from recto.adapters.conversations import Conversations
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import Following
from recto.formats.openai_responses import OPENAI_RESPONSES

Item: TypeAlias = dict[str, Any]


class RectoInputFilter(RunHooks[Any]):
    """For `RunConfig(call_model_input_filter=…)`, with any session or with none; as `hooks=` it hears answers at once.

    `session_id` names the conversation, or says it from the run's context.
    """

    def __init__(
        self,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        *,
        session_id: str | Callable[[Any], str] = "",
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        self.conversations = speaking(OPENAI_RESPONSES.name, conversations, store=store, **names)
        self._session_id = session_id

    def of(self, context: object) -> Following:
        """The conversation of a run, by its context."""
        return self.conversations.of(self._session_id(context) if callable(self._session_id) else self._session_id)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """What to send in this call."""
        return await fitted(data, lambda items: self.of(data.context))

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Any, response: Any) -> None:  # noqa: ANN401
        """Stores the answer before its tools run."""
        told = response.usage
        usage: Item = {"input_tokens": told.input_tokens, "output_tokens": told.output_tokens}
        usage["input_tokens_details"] = {"cached_tokens": told.input_tokens_details.cached_tokens}
        items = [dict(item) for item in response.to_input_items()]
        await on_a_thread(self.of(context.context).heard, *items, usage=usage if told.input_tokens else None)


async def fitted(data: CallModelData[Any], find: Callable[[list[Item]], Following]) -> ModelInputData:
    """What to send in a call, in the conversation that `find` names for its items."""
    tools = [_schema(tool) for tool in await data.agent.get_all_tools(RunContextWrapper(context=data.context))]
    items: list[Any] = [dict(item) for item in data.model_data.input]
    beside = data.model_data.instructions or ""

    def work() -> list[Any]:
        return find(items).working_set(items, lambda item: [item], lambda made: made, tools=tools, beside=beside)

    return ModelInputData(input=await on_a_thread(work), instructions=data.model_data.instructions)


def _schema(tool: Any) -> Item:  # noqa: ANN401  # one of a dozen kinds
    if isinstance(tool, FunctionTool):
        shape = {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
        return {"type": "function", **shape}
    return {"type": str(tool.name)}


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
        self.conversations = speaking(OPENAI_RESPONSES.name, conversations, store=store, **names)
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
