"""The scenario in LangChain: an agent of `create_agent` with a checkpointer, one thread."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import convert_to_messages
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from bench.adapters import scenario
from bench.adapters.led import NAMES, Led, told
from recto.adapters.langchain import RectoMiddleware

THREAD: Any = {"configurable": {"thread_id": "1"}}
TRIGGER = int(scenario.WINDOW * 0.8)


@tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return scenario.look_up(shelf)


class Scripted(BaseChatModel):
    led: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        (made,) = convert_to_messages([self.led.reply(convert_to_openai_messages(messages))])
        return ChatResult(generations=[ChatGeneration(message=made)])


def row(what: str, note: str, *middleware: Any) -> dict[str, Any]:
    led = Led()
    agent = create_agent(
        Scripted(led=led),
        [look_up],
        system_prompt=scenario.SYSTEM,
        middleware=middleware,
        checkpointer=InMemorySaver(),
    )
    return led.run(what, lambda text: agent.invoke({"messages": [("user", text)]}, THREAD), note)


def rows() -> list[dict[str, Any]]:
    summarized = SummarizationMiddleware(
        Scripted(led=None), trigger=("tokens", TRIGGER), summarizer=lambda messages: "Shelves were checked."
    )
    cleared = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=TRIGGER)])
    return [
        row("own defaults", "no middleware"),
        row(
            "own management",
            "SummarizationMiddleware at 80 % of the window, keeps 20 messages; the summary is scripted",
            summarized,
        ),
        row(
            "own management",
            "ContextEditingMiddleware with ClearToolUsesEdit at 80 % of the window, keeps 3 results",
            cleared,
        ),
        row("with Recto", "", RectoMiddleware("memory:", **NAMES)),
    ]


if __name__ == "__main__":
    told(rows())
