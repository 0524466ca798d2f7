"""smolagents: an agent whose model sees a working set, while its memory keeps every step.

agent = CodeAgent(tools, model)
memory = RectoMemory(agent, "agent.db", model="gpt-4o")

The agent asks `write_memory_to_messages` what to send before each step, and calls its step callbacks after it: those
two are what is used. Steps are taken as they were when they ended; what a callback strikes from one later is not sent.
"""

from __future__ import annotations

import os
from typing import Any

from smolagents import ActionStep, ChatMessage, MultiStepAgent, PlanningStep, ToolCallingAgent
from smolagents.memory import MemoryStep
from smolagents.models import get_tool_json_schema

from recto.adapters.kept import told_in
from recto.adapters.smolagents_steps import QuotedStep, read, written
from recto.conversations import Conversations, follow
from recto.engine.following import ChatMessage as Written
from recto.engine.following import Following
from recto.ports import TranscriptStore

__all__ = ["QuotedStep", "RectoMemory"]


class RectoMemory:
    """Keeps an agent's prompts within the window; what leaves is stored and comes back when it matters."""

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
        self.conversations = conversations or follow(store, **names)
        self._written: dict[int, tuple[MemoryStep, list[Written]]] = {}
        """Each step of the agent as it was first seen."""
        agent.write_memory_to_messages = self.messages
        for kind in (ActionStep, PlanningStep):
            agent.step_callbacks.register(kind, self._heard)

    @property
    def conversation(self) -> Following:
        """Where the agent's steps are kept: `compact(focus)`, and everything a session can do."""
        return self.conversations.of(self.session_id)

    def messages(self, summary_mode: bool = False) -> list[ChatMessage]:
        """What is sent in place of everything that the agent remembers."""
        steps = [self.agent.memory.system_prompt, *self.agent.memory.steps]
        self._written = {id(step): (step, self._as_first_seen(step)) for step in steps}
        sent = self.conversation.working_set(steps, self._as_first_seen, read, tools=self._tools())
        return [message for step in sent for message in step.to_messages(summary_mode=summary_mode)]

    def resume(self) -> None:
        """Takes the steps of the session into the agent's memory; go on with `agent.run(task, reset=False)`."""
        self.agent.memory.steps[:] = read([chat for _, chat in told_in(self.conversation)])

    def _as_first_seen(self, step: MemoryStep) -> list[Written]:
        kept = self._written.get(id(step))
        return kept[1] if kept is not None and kept[0] is step else written(step)

    def _heard(self, step: MemoryStep) -> None:
        told = getattr(step, "token_usage", None)
        usage = {"prompt_tokens": told.input_tokens, "completion_tokens": told.output_tokens} if told else None
        before = [chat for known in self.agent.memory.steps for chat in self._as_first_seen(known)]
        chats = written(step)
        self._written[id(step)] = (step, chats)
        self.conversation.heard(*chats, usage=usage, after=before)

    def _tools(self) -> list[dict[str, Any]]:
        """Schemas that go with a request; code agents have their tools in the system prompt."""
        if not isinstance(self.agent, ToolCallingAgent):
            return []
        return [get_tool_json_schema(tool) for tool in self.agent.tools_and_managed_agents]
