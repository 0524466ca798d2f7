"""A tool for `llm --functions`: it has none of its own that runs commands."""

import subprocess


def bash(command: str) -> str:
    """Runs a command in the shell and returns what it prints."""
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False).stdout
