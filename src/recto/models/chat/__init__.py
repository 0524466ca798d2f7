"""The models there are that write text, and which one is used. Nothing heavy is loaded before one is asked.

It does not know settings: whoever reads them makes a `ChatChoice` of them.
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

if TYPE_CHECKING:
    from recto.context.compaction.protocols import ChatModel

USES = ("none", "openai", "anthropic", "embedded")
SMALL = "smollm2"
"""The weights that are used where none are named."""
GROUP = "compress.model"
"""The settings a choice is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatChoice:
    """Which model is wanted. What it does not use is not looked at."""

    use: str = "none"
    """`openai`: any endpoint that speaks as that of OpenAI does. `embedded`: a model in this process."""
    url: str = ""
    """For `openai`: the address, without `/chat/completions`. For `anthropic`: only where it is not Anthropic's own."""
    model: str = ""
    """The model's name there; for `embedded`, the name of weights that `recto models list` shows."""
    key: str = field(default="", repr=False)
    path: str = ""
    """For `embedded`: a GGUF file of your own, instead of weights by name."""
    context: int = 0
    """Tokens of a question and its answer together. 0: for `embedded` 8192, or what the model was made for if that is
    less; for the others nobody knows."""
    seconds: float = 60.0
    """The longest that one answer may take."""

    def __post_init__(self) -> None:
        if self.use not in USES:
            nearest = get_close_matches(self.use, USES, n=1)
            raise SettingsError(f"{GROUP}.use", f"'{self.use}' is none of {', '.join(USES)}", *nearest)
        if self.context < 0:
            raise SettingsError(f"{GROUP}.context", "must not be below 0")
        if not 0 < self.seconds < float("inf"):
            raise SettingsError(f"{GROUP}.seconds", "must be more than 0")


def chat_model_for(choice: ChatChoice) -> ChatModel | None:
    """The model that was chosen; None where none is. Raises `SettingsError` with the cure."""
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
    _needs("httpx2", "an endpoint", "httpx2")
    return HostedModel(
        name=choice.model, window=choice.context, seconds=choice.seconds, endpoint=endpoint, dialect=dialect
    )


def embedded_model_for(choice: ChatChoice) -> EmbeddedModel:
    """A model in this process. Raises `SettingsError` with the cure."""
    _needs("xllamacpp", "a model in this process", "'recto[local]'")
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


def _needs(package: str, what: str, install: str) -> None:
    if find_spec(package) is None:
        raise SettingsError(
            f"{GROUP}.use", f"{what} needs the package {package}; install it with: pip install {install}"
        )
