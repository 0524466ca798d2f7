"""smolagents: an agent whose model sees a working set, while its memory keeps every step.

```
agent = CodeAgent(tools, model)
memory = RectoMemory(agent, "agent.db", model="gpt-4o")
```

The agent calls `write_memory_to_messages` before each step and its step callbacks after it; the adapter uses these two.
Steps are recorded as they were when they ended; what a callback removes later is not sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from smolagents import MultiStepAgent, ToolCallingAgent
from smolagents.memory import ActionStep, MemoryStep, PlanningStep, SystemPromptStep, TaskStep
from smolagents.models import ChatMessage, MessageRole, get_tool_json_schema
from smolagents.utils import encode_image_base64, make_image_url

from recto.adapters._messages import Blocks, calls_in, text_in, told_in
from recto.adapters.conversations import ClosingAdapter, Conversations, follow
from recto.engine.history_sync import ChatMessage as Written
from recto.engine.history_sync import Following
from recto.transcript.protocols import TranscriptStore

__all__ = ["QuotedStep", "RectoMemory"]
_ROLES = {"system": MessageRole.SYSTEM, "assistant": MessageRole.ASSISTANT, "tool": MessageRole.TOOL_RESPONSE}


class RectoMemory(ClosingAdapter):
    """Keeps an agent's prompts within the context window; evicted steps are stored and recalled when relevant."""

    def __init__(
        self,
        agent: MultiStepAgent,
        store: str | os.PathLike[str] | TranscriptStore | None = None,
        *,
        session_id: str = "",
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        self.agent = agent
        self.session_id = session_id or agent.name or ""
        self._is_shared = conversations is not None
        self.conversations = conversations or follow(store, **names)
        self._written: dict[int, tuple[MemoryStep, list[Written]]] = {}
        """Each step of the agent as first seen."""
        agent.write_memory_to_messages = self.messages
        for kind in (ActionStep, PlanningStep):
            agent.step_callbacks.register(kind, self._store_step)

    @property
    def conversation(self) -> Following:
        """The conversation of the agent's steps: `compact(focus)`, and every call of a session."""
        return self.conversations.of(self.session_id)

    def messages(self, summary_mode: bool = False) -> list[ChatMessage]:
        """Return the messages to send in place of the agent's full memory."""
        steps = [self.agent.memory.system_prompt, *self.agent.memory.steps]
        self._written = {id(step): (step, self._as_first_seen(step)) for step in steps}
        sent = self.conversation.working_set(steps, self._as_first_seen, read, tools=self._tools())
        return [message for step in sent for message in step.to_messages(summary_mode=summary_mode)]

    def resume(self) -> None:
        """Load the steps of the session into the agent's memory; continue with `agent.run(task, reset=False)`."""
        self.agent.memory.steps[:] = read([chat for _, chat in told_in(self.conversation)])

    def _as_first_seen(self, step: MemoryStep) -> list[Written]:
        first = self._written.get(id(step))
        return first[1] if first is not None and first[0] is step else written(step)

    def _store_step(self, step: MemoryStep) -> None:
        reported = getattr(step, "token_usage", None)
        usage = (
            {"prompt_tokens": reported.input_tokens, "completion_tokens": reported.output_tokens} if reported else None
        )
        before = [chat for known in self.agent.memory.steps for chat in self._as_first_seen(known)]
        chats = written(step)
        self._written[id(step)] = (step, chats)
        self.conversation.heard(*chats, usage=usage, after=before)

    def _tools(self) -> list[dict[str, Any]]:
        """Schemas sent with a request; code agents have their tools in the system prompt."""
        if not isinstance(self.agent, ToolCallingAgent):
            return []
        return [get_tool_json_schema(tool) for tool in self.agent.tools_and_managed_agents]


@dataclass
class QuotedStep(MemoryStep):
    """A step from the transcript, or one that Recto wrote or changed."""

    chats: list[Written]

    def dict(self) -> dict[str, Any]:
        """Its Chat messages."""
        return {"chats": self.chats}

    def to_messages(self, summary_mode: bool = False) -> list[ChatMessage]:
        """Render the step as smolagents renders its own."""
        return [message for chat in self.chats for message in _render(chat)]


def written(step: MemoryStep) -> list[Written]:
    """Convert a step to Chat messages."""
    if isinstance(step, QuotedStep):
        return step.chats
    if isinstance(step, ActionStep):
        return list(_action(step))
    if isinstance(step, TaskStep):
        return [_text_message("user", f"New task:\n{step.task}", step.task_images)]
    if isinstance(step, SystemPromptStep):
        return [{"role": "system", "content": step.system_prompt}]
    if isinstance(step, PlanningStep):
        return [
            {"role": str(message.role.value), "content": text_in({"content": message.content})}
            for message in step.to_messages()
        ]
    return []


def read(chats: Sequence[Written]) -> list[MemoryStep]:
    """Convert Chat messages to steps; an answer and its results form one step."""
    steps: list[QuotedStep] = []
    for chat in chats:
        if chat["role"] == "tool" and steps:
            steps[-1].chats.append(chat)
        else:
            steps.append(QuotedStep([chat]))
    return list(steps)


def _action(step: ActionStep) -> Iterator[Written]:
    calls = step.tool_calls or []
    blocks = Blocks(role="assistant")
    output = step.model_output if isinstance(step.model_output, str) else text_in({"content": step.model_output})
    blocks.text(output.strip())
    for call in calls:
        blocks.call(call.id, call.name, call.dict()["function"]["arguments"])
    yield from blocks.messages()
    outcome = "\n".join(text for text in _outcome(step) if text)
    for call in calls[:-1]:  # parallel calls have one common result text
        yield {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": ""}
    if calls:
        yield {"role": "tool", "tool_call_id": calls[-1].id, "name": calls[-1].name, "content": outcome}
    if (outcome and not calls) or step.observations_images:
        yield _text_message("user", "" if calls else outcome, step.observations_images)


def _outcome(step: ActionStep) -> Iterator[str]:
    """What the model is shown of the result of a step, after its output and its calls."""
    for message in step.to_messages():
        if message.role == MessageRole.TOOL_RESPONSE:
            yield text_in({"content": message.content})


def _text_message(role: str, text: str, images: Sequence[Any] | None) -> Written:
    blocks = Blocks(role=role)
    blocks.text(text)
    for image in images or ():
        blocks.media("image/png", make_image_url(encode_image_base64(image)))
    return next(blocks.messages(), {"role": role, "content": ""})


def _render(chat: Written) -> Iterator[ChatMessage]:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls_in(chat)
    ]
    text = text_in(chat)
    if text or not calls:
        yield ChatMessage(role=_ROLES.get(chat["role"], MessageRole.USER), content=[{"type": "text", "text": text}])
    if calls:
        content = f"Calling tools:\n{calls}"
        yield ChatMessage(role=MessageRole.TOOL_CALL, content=[{"type": "text", "text": content}])
