"""A shell tool for `llm --functions`; llm has no built-in one."""

import subprocess


def bash(command: str) -> str:
    """Runs a command in the shell and returns what it prints."""
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False).stdout
