"""Whether the packages are here that a command needs beyond Recto's own."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from recto.errors import SettingsError

GATEWAY = ("starlette", "uvicorn", "httpx2", "prometheus_client")
"""What a gateway in this process is made of."""
MCP = ("mcp", "mcp_types")
"""What an MCP server is made of."""
CLIENT = ("httpx2",)
"""What asks one that runs elsewhere."""


def need(what: str, packages: Iterable[str], extra: str) -> None:
    """Raises `SettingsError` with the cure for the first package that is not installed."""
    for package in packages:
        if find_spec(package) is None:
            reason = f"the package {package} is missing; install it with: pip install 'recto[{extra}]'"
            raise SettingsError(what, reason)
