"""smolagents' steps in Recto's words: what it tells a model as text are calls and their results here.

A step is one unit: what the model said, the tools it called and what they gave back stay or leave together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from smolagents.memory import ActionStep, MemoryStep, PlanningStep, SystemPromptStep, TaskStep
from smolagents.models import ChatMessage as Told
from smolagents.models import MessageRole
from smolagents.utils import encode_image_base64, make_image_url

from recto.adapters.chat import Blocks, calls_in, text_in
from recto.engine.following import ChatMessage

_ROLES = {"system": MessageRole.SYSTEM, "assistant": MessageRole.ASSISTANT, "tool": MessageRole.TOOL_RESPONSE}


@dataclass
class QuotedStep(MemoryStep):
    """A step from the transcript, or one that Recto wrote or changed."""

    chats: list[ChatMessage]

    def dict(self) -> dict[str, Any]:
        """What it says, in Chat messages."""
        return {"chats": self.chats}

    def to_messages(self, summary_mode: bool = False) -> list[Told]:
        """The same in words, as smolagents tells its own steps."""
        return [message for chat in self.chats for message in _told(chat)]


def written(step: MemoryStep) -> list[ChatMessage]:
    """A step as Chat messages."""
    if isinstance(step, QuotedStep):
        return step.chats
    if isinstance(step, ActionStep):
        return list(_action(step))
    if isinstance(step, TaskStep):
        return [_spoken("user", f"New task:\n{step.task}", step.task_images)]
    if isinstance(step, SystemPromptStep):
        return [{"role": "system", "content": step.system_prompt}]
    if isinstance(step, PlanningStep):
        return [
            {"role": str(one.role.value), "content": text_in({"content": one.content})} for one in step.to_messages()
        ]
    return []


def read(made: Sequence[ChatMessage]) -> list[MemoryStep]:
    """Steps of Chat messages; an answer and the results that belong to it are one."""
    steps: list[QuotedStep] = []
    for chat in made:
        if chat["role"] == "tool" and steps:
            steps[-1].chats.append(chat)
        else:
            steps.append(QuotedStep([chat]))
    return list(steps)


def _action(step: ActionStep) -> Iterator[ChatMessage]:
    calls = step.tool_calls or []
    spoken = Blocks(role="assistant")
    said = step.model_output if isinstance(step.model_output, str) else text_in({"content": step.model_output})
    spoken.text(said.strip())
    for call in calls:
        spoken.call(call.id, call.name, call.dict()["function"]["arguments"])
    yield from spoken.messages()
    outcome = "\n".join(text for text in _outcome(step) if text)
    for call in calls[:-1]:  # the results of calls that were made at once come in one text
        yield {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": ""}
    if calls:
        yield {"role": "tool", "tool_call_id": calls[-1].id, "name": calls[-1].name, "content": outcome}
    if (outcome and not calls) or step.observations_images:
        yield _spoken("user", "" if calls else outcome, step.observations_images)


def _outcome(step: ActionStep) -> Iterator[str]:
    """What a model is told of what came of a step: after what it said and what it called."""
    for message in step.to_messages():
        if message.role == MessageRole.TOOL_RESPONSE:
            yield text_in({"content": message.content})


def _spoken(role: str, text: str, images: Sequence[Any] | None) -> ChatMessage:
    blocks = Blocks(role=role)
    blocks.text(text)
    for image in images or ():
        blocks.media("image/png", make_image_url(encode_image_base64(image)))
    return next(blocks.messages(), {"role": role, "content": ""})


def _told(chat: ChatMessage) -> Iterator[Told]:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls_in(chat)
    ]
    text = text_in(chat)
    if text or not calls:
        yield Told(role=_ROLES.get(chat["role"], MessageRole.USER), content=[{"type": "text", "text": text}])
    if calls:
        told = f"Calling tools:\n{calls}"
        yield Told(role=MessageRole.TOOL_CALL, content=[{"type": "text", "text": told}])
