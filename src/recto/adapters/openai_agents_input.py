"""What each call of the model is sent by the OpenAI Agents SDK: its own items, as many as fit.

Items are those of the Responses API, and are kept as the SDK gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from agents import RunContextWrapper, RunHooks
from agents.run import CallModelData, ModelInputData
from agents.tool import FunctionTool

from recto.adapters.wires import speaking
from recto.conversations import Conversations
from recto.engine.async_session import on_a_thread
from recto.engine.following import Following
from recto.wire.names import RESPONSES

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
        self.conversations = speaking(RESPONSES, conversations, store=store, **names)
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
