"""How each coding agent is pointed at a gateway for one run: arguments, environment variables and temporary files.

Nothing here starts a process or reads the network. No file of an agent is changed: what an agent only takes from a file
is written into a temporary folder that its command line names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

PLACEHOLDER = "recto"
"""The API key of a client whose requests need none, because the gateway's upstreams have their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vendor:
    """A provider's API, as its clients are configured."""

    speaks: frozenset[str]
    """The formats of its API, as settings of upstreams name them."""
    url: str
    base_variables: tuple[str, ...]
    key_variables: tuple[str, ...]
    """The first is set where none is and the client needs one."""
    path: str = ""
    """What its base URLs end with."""


_OPENAI = _Vendor(
    speaks=frozenset({"chat", "responses"}),
    url="https://api.openai.com/v1",
    base_variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    key_variables=("OPENAI_API_KEY",),
    path="/v1",
)
_ANTHROPIC = _Vendor(
    speaks=frozenset({"messages"}),
    url="https://api.anthropic.com",
    base_variables=("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
)
_GEMINI = _Vendor(
    speaks=frozenset({"gemini"}),
    url="https://generativelanguage.googleapis.com",
    base_variables=("GOOGLE_GEMINI_BASE_URL",),
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
)
_VENDORS = (_OPENAI, _ANTHROPIC, _GEMINI)
_CHATGPT = "https://chatgpt.com/backend-api/codex"
"""What Codex asks when it is signed in with a ChatGPT subscription."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to start."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are added to the caller's."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the temporary folder, by name."""
    embedded: bool = False
    """Whether the model on this machine answers, because there is neither an upstream nor a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """Where the gateway is, and what the caller has set up."""

    gateway: str
    """Its URL."""
    environ: Mapping[str, str]
    speaks: frozenset[str] = frozenset()
    """The formats of the upstreams in the settings; empty where there are none."""
    folder: Path
    """The temporary folder for files."""
    has_login: bool = False
    """Whether the program may be signed in by itself, so that its requests are passed on without a known key."""
    codex_login: str = ""
    """The credential in Codex's own login: `key`, `subscription`, or nothing."""

    def base(self, vendor: _Vendor) -> str:
        """Returns the base URL for clients of a vendor."""
        if self._is_served(vendor) or not self.passes_on(vendor):
            return self.gateway + vendor.path
        return f"{self.gateway}/to/{own_base(vendor, self.environ) or vendor.url}"

    def passes_on(self, vendor: _Vendor) -> bool:
        """Whether requests go on to the vendor, or to where the caller's own base URL points, with the client's key."""
        has_key = any(self.environ.get(name) for name in vendor.key_variables)
        has_credential = has_key or self.has_login or bool(own_base(vendor, self.environ))
        return has_credential and not self._is_served(vendor)

    def variables(self, *vendors: _Vendor) -> dict[str, str]:
        """Returns the base URLs of vendors as variables, with a placeholder where a client needs some key."""
        found: dict[str, str] = {}
        for vendor in vendors:
            found |= dict.fromkeys(vendor.base_variables, self.base(vendor))
        return found | self.placeholders(*vendors)

    def placeholders(self, *vendors: _Vendor) -> dict[str, str]:
        """Returns a placeholder for each vendor whose clients need some key and have none."""
        return {
            vendor.key_variables[0]: PLACEHOLDER
            for vendor in vendors
            if not self.passes_on(vendor) and not any(self.environ.get(name) for name in vendor.key_variables)
        }

    def _is_served(self, vendor: _Vendor) -> bool:
        return bool(vendor.speaks & self.speaks)


def own_base(vendor: _Vendor, environ: Mapping[str, str]) -> str:
    """Returns the base URL that the caller has set for a vendor."""
    return next((environ[name].rstrip("/") for name in vendor.base_variables if environ.get(name)), "")


def own_origins(environ: Mapping[str, str]) -> list[str]:
    """Returns the origins of base URLs that the caller has set: requests may be passed on to them."""
    bases = [own_base(vendor, environ) for vendor in _VENDORS]
    return sorted({f"{urlsplit(base).scheme}://{urlsplit(base).netloc}" for base in bases if "://" in base})


def launch(words: tuple[str, ...], context: LaunchContext) -> Launch:
    """Returns how to start an agent, or any command, with its arguments."""
    name, *arguments = words
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    prepare = AGENTS.get(name)
    return prepare(arguments, context) if prepare else _command(words, context)


def _command(words: tuple[str, ...], context: LaunchContext) -> Launch:
    is_embedded = not context.speaks and not any(context.passes_on(vendor) for vendor in _VENDORS)
    return Launch(command=words, environment=context.variables(*_VENDORS), embedded=is_embedded)


def _by_variables(program: str, *vendors: _Vendor) -> Callable[[list[str], LaunchContext], Launch]:
    def prepare(arguments: list[str], context: LaunchContext) -> Launch:
        return Launch(command=(program, *arguments), environment=context.variables(*vendors))

    return prepare


def _codex(arguments: list[str], context: LaunchContext) -> Launch:
    base, credential = context.base(_OPENAI), {"env_key": "OPENAI_API_KEY"}
    variables: dict[str, str] = {}
    if not context.environ.get("OPENAI_API_KEY"):
        if context.passes_on(_OPENAI):
            credential = {"requires_openai_auth": "true"}
            if context.codex_login != "key" and not own_base(_OPENAI, context.environ):
                base = f"{context.gateway}/to/{_CHATGPT}"
        else:
            variables["OPENAI_API_KEY"] = PLACEHOLDER
    fields = {"name": '"Recto"', "base_url": f'"{base}"', "wire_api": '"responses"'}
    fields |= {name: value if value == "true" else f'"{value}"' for name, value in credential.items()}
    provider = ", ".join(f"{name}={value}" for name, value in fields.items())
    options = ("-c", "model_provider=recto", "-c", f"model_providers.recto={{{provider}}}")
    return Launch(command=("codex", *options, *arguments), environment=variables)


def _opencode(arguments: list[str], context: LaunchContext) -> Launch:
    providers: dict[str, object] = {
        "openai": {"options": {"baseURL": context.base(_OPENAI)}},
        "anthropic": {"options": {"baseURL": f"{context.base(_ANTHROPIC)}/v1"}},
        "google": {"options": {"baseURL": f"{context.base(_GEMINI)}/v1beta"}},
    }
    keys = context.placeholders(*_VENDORS)
    own = json.loads(context.environ.get("OPENCODE_CONFIG_CONTENT") or "{}")
    own["provider"] = _merged(own.get("provider", {}), providers)
    return Launch(command=("opencode", *arguments), environment={**keys, "OPENCODE_CONFIG_CONTENT": json.dumps(own)})


def _pi(arguments: list[str], context: LaunchContext) -> Launch:
    bases = {"openai": context.base(_OPENAI), "anthropic": context.base(_ANTHROPIC)}
    calls = [f"  pi.registerProvider({json.dumps(name)}, {{ baseUrl: {json.dumps(bases[name])} }});" for name in bases]
    extension = "\n".join(["export default function (pi) {", *calls, "}", ""])
    keys = context.placeholders(_OPENAI, _ANTHROPIC)
    path = str(context.folder / "recto.js")
    return Launch(command=("pi", "-e", path, *arguments), environment=keys, files={"recto.js": extension})


def _merged(own: dict[str, object], added: Mapping[str, object]) -> dict[str, object]:
    """Merges nested settings; what is added wins."""
    result = dict(own)
    for name, value in added.items():
        before = result.get(name)
        result[name] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return result


AGENTS: Mapping[str, Callable[[list[str], LaunchContext], Launch]] = {
    "aider": _by_variables("aider", _OPENAI, _ANTHROPIC),
    "claude": _by_variables("claude", _ANTHROPIC),
    "codex": _codex,
    "gemini": _by_variables("gemini", _GEMINI),
    "goose": _by_variables("goose", _OPENAI),
    "llm": _by_variables("llm", _OPENAI, _ANTHROPIC),
    "mini": _by_variables("mini", _OPENAI, _ANTHROPIC),
    "opencode": _opencode,
    "pi": _pi,
    "qwen": _by_variables("qwen", _OPENAI),
}
"""The agents that `recto run` knows by name."""
SIGNED_IN = frozenset(AGENTS) - {"aider", "goose", "llm", "mini"}
"""Agents that have a login of their own, so that a missing key in the environment says nothing."""
