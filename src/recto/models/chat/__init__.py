"""Selects and creates the chat model. Nothing heavy is loaded before it is used.

Does not read settings: the caller builds a `ChatChoice` from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from recto.errors import SettingsError
from recto.models import weights
from recto.models.chat import anthropic, openai
from recto.models.chat.gguf import trained_context
from recto.models.chat.http import HostedModel
from recto.models.chat.llama_cpp import USUAL_CONTEXT, EmbeddedModel
from recto.models.http import Endpoint
from recto.version import install_command

if TYPE_CHECKING:
    from recto.context.compaction.protocols import ChatModel

USES = ("none", "openai", "anthropic", "embedded")
SMALL = "smollm2"
"""Default weights."""
GROUP = "compress.model"
"""Name of the settings group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatChoice:
    """Configuration of a chat model. Fields that the chosen kind does not use are ignored."""

    use: str = "none"
    """`openai`: any OpenAI-compatible endpoint. `embedded`: a model in this process."""
    url: str = ""
    """For `openai`: the URL, without `/chat/completions`. For `anthropic`: only if it is not Anthropic's own."""
    model: str = ""
    """Name of the model; for `embedded`, the name of weights that `recto models list` shows."""
    key: str = field(default="", repr=False)
    path: str = ""
    """For `embedded`: your own GGUF file, instead of weights by name."""
    context: int = 0
    """Context length in tokens. 0: for `embedded` 8192, or the model's own limit if that is
    less; unknown for the others."""
    seconds: float = 60.0
    """Time limit of one response in seconds."""

    def __post_init__(self) -> None:
        if self.use not in USES:
            nearest = get_close_matches(self.use, USES, n=1)
            raise SettingsError(f"{GROUP}.use", f"'{self.use}' is none of {', '.join(USES)}", *nearest)
        if self.context < 0:
            raise SettingsError(f"{GROUP}.context", "must not be below 0")
        if not 0 < self.seconds < float("inf"):
            raise SettingsError(f"{GROUP}.seconds", "must be more than 0")


def chat_model_for(choice: ChatChoice) -> ChatModel | None:
    """Create the configured model; None if there is none. Raises `SettingsError` with the fix."""
    match choice.use:
        case "none":
            return None
        case "embedded":
            return embedded_model_for(choice)
        case "anthropic":
            endpoint = Endpoint(
                url=choice.url or anthropic.URL,
                path=anthropic.PATH,
                setting=GROUP,
                key=choice.key,
                key_header=anthropic.KEY_HEADER,
                headers=anthropic.HEADERS,
            )
            return _hosted(choice, endpoint, anthropic.AnthropicDialect(model=choice.model))
        case _:
            endpoint = Endpoint(url=choice.url, path=openai.PATH, setting=GROUP, key=choice.key)
            return _hosted(choice, endpoint, openai.OpenAIDialect(model=choice.model))


def _hosted(
    choice: ChatChoice, endpoint: Endpoint, dialect: openai.OpenAIDialect | anthropic.AnthropicDialect
) -> ChatModel:
    if not choice.model:
        raise SettingsError(f"{GROUP}.model", "an endpoint needs the name of its model")
    _needs("httpx2", "an endpoint", "recall")
    return HostedModel(
        name=choice.model, window=choice.context, seconds=choice.seconds, endpoint=endpoint, dialect=dialect
    )


def embedded_model_for(choice: ChatChoice) -> EmbeddedModel:
    """Create an embedded model. Raises `SettingsError` with the fix."""
    _needs("xllamacpp", "a model in this process", "local")
    if choice.path:
        file = Path(choice.path).expanduser().absolute()
        if not file.is_file():
            raise SettingsError(f"{GROUP}.path", f"there is no file '{file}'")
        return _from_file(choice, file, choice.model or file.stem)
    name = choice.model or SMALL
    folder = weights.find(name)
    file_name = weights.known(name).files[0].to
    if not file_name.endswith(".gguf"):
        raise SettingsError(f"{GROUP}.model", f"the weights '{name}' are not of a model that writes text")
    if folder is None:
        reason = f"the weights of {name} are not here; fetch them with: recto models get {name}"
        raise SettingsError(f"{GROUP}.model", reason)
    return _from_file(choice, folder / file_name, name, prepare=lambda: weights.checked(name))


def _from_file(choice: ChatChoice, file: Path, name: str, prepare: Callable[[], object] | None = None) -> EmbeddedModel:
    try:
        trained = trained_context(file)
    except ValueError as error:
        raise SettingsError(f"{GROUP}.path", str(error)) from None
    window = choice.context or USUAL_CONTEXT
    return EmbeddedModel(
        file, name=name, window=min(window, trained or window), seconds=choice.seconds, prepare=prepare
    )


def _needs(package: str, what: str, extra: str) -> None:
    if find_spec(package) is None:
        raise SettingsError(
            f"{GROUP}.use", f"{what} needs the package {package}; install it with: {install_command(extra)}"
        )
