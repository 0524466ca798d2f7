"""Addresses that a client names in the path: `/to/https://api.openai.com/v1/chat/completions`.

Only a gateway that serves this machine alone (`recto serve --local`) takes them, and only for known vendors and hosts
that the settings name. The client's own credential goes on, and a name that leads to a private address is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from recto.config.settings import GatewaySettings
from recto.errors import RequestRefused, SettingsError
from recto.formats.errors import FORBIDDEN, MALFORMED, NOT_FOUND
from recto.gateway.api_keys import PASSED_ROOTS, Key
from recto.gateway.middleware.origin import is_plain_path

PREFIX: Final = b"/to/"
VENDORS: Final = frozenset(
    {
        "api.anthropic.com",
        "api.cerebras.ai",
        "api.cohere.com",
        "api.deepseek.com",
        "api.fireworks.ai",
        "api.groq.com",
        "api.mistral.ai",
        "api.moonshot.ai",
        "api.openai.com",
        "api.together.xyz",
        "api.x.ai",
        "api.z.ai",
        "chatgpt.com",
        "dashscope-intl.aliyuncs.com",
        "generativelanguage.googleapis.com",
        "openrouter.ai",
        "router.huggingface.co",
    }
)
"""Hosts of providers that clients may name without settings, over HTTPS."""
_TARGET: Final = re.compile(
    rb"/to/(https?):/{1,2}([A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?|\[[0-9a-f:]+\](?::[0-9]+)?)(/.*)"
)
"""Some clients and proxies make one slash of two."""


class Targets:
    """The addresses that clients may name."""

    def __init__(
        self, gateway: GatewaySettings, key: Key, open_upstream: Callable[[str, bool], str], roots: frozenset[str]
    ) -> None:
        self.key = key
        """The key of requests that bring none."""
        self._hosts = set(VENDORS)
        self._origins: set[str] = set()
        for name in gateway.targets:
            self._add(name)
        self._open_upstream = open_upstream
        self._roots = roots

    def resolve(self, raw: bytes) -> tuple[str, bytes]:
        """Return the name of the upstream that a path addresses, and the path of its API. Raises `RequestRefused`."""
        found = _TARGET.fullmatch(raw)
        if found is None:
            text = "an address here is like /to/https://api.openai.com/v1/chat/completions"
            raise RequestRefused(404, NOT_FOUND, text)
        scheme, host, path = found[1].decode(), found[2].decode().lower(), found[3]
        is_named = f"{scheme}://{host}" in self._origins
        if not is_named and (scheme != "https" or host not in self._hosts):
            text = f"'{host}' is no known vendor; 'gateway.targets' names the other hosts that may be asked"
            raise RequestRefused(403, FORBIDDEN, text)
        if not is_plain_path(path):
            raise RequestRefused(400, MALFORMED, "the path is not written plainly: it has no '..', '//', '\\' or '%2F'")
        base, api_path = self._split(path)
        return self._open_upstream(f"{scheme}://{host}{base}", not is_named), api_path

    def _split(self, path: bytes) -> tuple[str, bytes]:
        """Split a path into the base URL's own and that of the API."""
        for root in sorted(PASSED_ROOTS, key=len, reverse=True):
            start = path.find(f"{root}/".encode())
            if start >= 0:  # base URLs of OpenAI's API have its version, and it is taken off where paths have one
                end = start + len(root) if root == "/v1" else start
                return path[:end].decode("ascii", "replace"), path[start:]
        place = 0
        for part in path.split(b"/")[1:]:
            if part.decode("ascii", "replace") in self._roots:
                return path[:place].decode("ascii", "replace"), b"/v1" + path[place:]
            place += 1 + len(part)
        raise RequestRefused(404, NOT_FOUND, "this is no path of a provider's API")

    def _add(self, name: str) -> None:
        """Add a host, or an origin that is meant literally, whatever address it has."""
        parts = urlsplit(name if "://" in name else f"https://{name}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.username:
            raise SettingsError(
                "gateway.targets", f"expects hosts, or origins such as http://127.0.0.1:8000, not {name!r}"
            )
        if "://" in name:
            self._origins.add(f"{parts.scheme}://{parts.netloc}".lower())
        else:
            self._hosts.add(parts.netloc.lower())
