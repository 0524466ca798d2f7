"""A ReAct loop of LangGraph with one tool: langgraph_agent.py MODEL BASE_URL HISTORY TASK.

The conversation is stored in HISTORY in LangChain's message format, and the next call continues it.
"""

import json
import subprocess
import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, messages_from_dict, messages_to_dict
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def bash(command: str) -> str:
    """Runs a command in the shell and returns what it prints."""
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False).stdout


def main(model: str, base_url: str, history_file: Path, task: str) -> None:
    history = messages_from_dict(json.loads(history_file.read_text())) if history_file.exists() else []
    agent = create_agent(ChatOpenAI(model=model, base_url=base_url, max_retries=0), [bash])
    result = agent.invoke({"messages": [*history, HumanMessage(task)]}, {"recursion_limit": 1_000})
    history_file.write_text(json.dumps(messages_to_dict(result["messages"])))
    print(result["messages"][-1].text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
