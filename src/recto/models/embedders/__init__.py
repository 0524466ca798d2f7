"""Selects and creates the embedder. Nothing heavy is loaded before a text is embedded.

Does not read settings: the caller builds an `EmbedderChoice` from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from recto.errors import SettingsError
from recto.models import weights
from recto.models.embedders.http import EndpointEmbedder
from recto.models.embedders.onnx import TOKENIZER_FILE, OnnxEmbedder, Pooling, fingerprint, model_file
from recto.version import install_command

if TYPE_CHECKING:
    from recto.recall.protocols import Embedder

USES = ("auto", "arctic", "multilingual", "onnx", "endpoint", "none")
ARCTIC = "arctic-embed-s"
"""Name of its weights."""
ARCTIC_PREFIX = "Represent this sentence for searching relevant passages: "
"""Prefix that the model expects before questions only."""
ARCTIC_NAME = "arctic-embed-s-int8/1"
"""Name stored with its vectors."""
ARCTIC_WEIGHT = 0.7
"""Weight of its cosines relative to words, measured with the passages that `EmbeddingRules` embeds."""
MULTILINGUAL = "multilingual-e5-small"
"""Name of its weights."""
MULTILINGUAL_NAME = "multilingual-e5-small-int8/1"
"""Name stored with its vectors."""
_EXTRA = f"install it with: {install_command('recall')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderChoice:
    """Configuration of an embedder. Fields that the chosen embedder does not use are ignored."""

    use: str = "auto"
    """`auto`: `arctic` if its package and weights are installed, else `none`: search by words only."""
    path: str = ""
    """For `onnx`, and for `arctic` with the publisher's own files: a folder with model.onnx and tokenizer.json."""
    url: str = ""
    """For `endpoint`: an OpenAI-compatible URL, without `/embeddings`."""
    model: str = ""
    """For `endpoint`: the name of the model."""
    key: str = field(default="", repr=False)
    dims: int = 0
    """For `endpoint`: the length of its vectors. 0: the model's default."""
    seconds: float = 10.0
    """For `endpoint`: the time limit of one batch in seconds."""
    query_prefix: str = ""
    document_prefix: str = ""
    """For `onnx` and `endpoint`: the prefixes that the model expects before questions and before documents."""
    pooling: Pooling = "cls"
    """For `onnx`: `cls` or `mean`, as the model card says."""
    weight: float | None = None
    """Weight of vector similarity relative to words, from 0 to 1. None: the embedder's default."""

    def __post_init__(self) -> None:
        if self.use not in USES:
            nearest = get_close_matches(self.use, USES, n=1)
            raise SettingsError("recall.embedder.use", f"'{self.use}' is none of {', '.join(USES)}", *nearest)
        if self.pooling not in get_args(Pooling):
            raise SettingsError("recall.embedder.pooling", f"is {' or '.join(get_args(Pooling))}")
        if self.weight is not None and not 0 <= self.weight <= 1:
            raise SettingsError("recall.embedder.weight", "is a number from 0 to 1")


def embedder_for(choice: EmbedderChoice) -> Embedder | None:
    """Create the configured embedder; None if only words are searched. Raises `SettingsError` with the fix."""
    match choice.use:
        case "none":
            return None
        case "endpoint":
            return _endpoint(choice)
        case "onnx":
            return _from_folder(choice)
        case "arctic":
            return _arctic(choice)
        case "multilingual":
            return _multilingual(choice)
        case _:
            return _arctic(replace(choice, path="")) if _arctic_is_here() else None


def known_embedder(name: str) -> Embedder | None:
    """Create the embedder of a stored lane, if it needs no settings and everything it needs is installed."""
    if name == ARCTIC_NAME and _arctic_is_here():
        return _arctic(EmbedderChoice(use="arctic"))
    if name == MULTILINGUAL_NAME and _is_installed("onnxruntime") and weights.find(MULTILINGUAL) is not None:
        return _multilingual(EmbedderChoice(use="multilingual"))
    return None


def _endpoint(choice: EmbedderChoice) -> Embedder:
    if not _is_installed("httpx2"):
        raise SettingsError("recall.embedder.use", f"an endpoint needs the package httpx2; {_EXTRA}")
    return EndpointEmbedder(
        choice.url,
        model=choice.model,
        key=choice.key,
        known_dims=choice.dims,
        seconds=choice.seconds,
        query_prefix=choice.query_prefix,
        document_prefix=choice.document_prefix,
        weight=_usual(choice),
    )


def _arctic(choice: EmbedderChoice) -> Embedder:
    _needs_runtime()
    if choice.path:
        folder = _folder(choice)
        name, prepare = f"{ARCTIC}/{fingerprint(folder)}", None
    else:
        folder, name, prepare = _installed(ARCTIC), ARCTIC_NAME, partial(weights.checked, ARCTIC)
    return OnnxEmbedder(
        folder,
        name=name,
        query_prefix=ARCTIC_PREFIX,
        known_dims=384,
        weight=_usual(choice, ARCTIC_WEIGHT),
        prepare=prepare,
    )


def _multilingual(choice: EmbedderChoice) -> Embedder:
    _needs_runtime()
    return OnnxEmbedder(
        _installed(MULTILINGUAL),
        name=MULTILINGUAL_NAME,
        query_prefix="query: ",
        document_prefix="passage: ",
        pooling="mean",
        known_dims=384,
        weight=_usual(choice),
        prepare=partial(weights.checked, MULTILINGUAL),
    )


def _installed(name: str) -> Path:
    found = weights.find(name)
    if found is None:
        reason = f"the weights of {name} are not here; fetch them with: recto models get {name}"
        raise SettingsError("recall.embedder.use", reason)
    return found


def _from_folder(choice: EmbedderChoice) -> Embedder:
    _needs_runtime()
    folder = _folder(choice)
    return OnnxEmbedder(
        folder,
        name=f"{folder.name}/{fingerprint(folder, choice.pooling, choice.document_prefix)}",
        query_prefix=choice.query_prefix,
        document_prefix=choice.document_prefix,
        pooling=choice.pooling,
        weight=_usual(choice),
    )


def _folder(choice: EmbedderChoice) -> Path:
    if not choice.path:
        raise SettingsError("recall.embedder.path", "expects a folder with model.onnx and tokenizer.json")
    folder = Path(choice.path).expanduser().absolute()
    for file in (model_file(folder), folder / TOKENIZER_FILE):
        if not file.is_file():
            raise SettingsError("recall.embedder.path", f"there is no file '{file}'")
    return folder


def _usual(choice: EmbedderChoice, default: float = 0.5) -> float:
    return default if choice.weight is None else choice.weight


def _arctic_is_here() -> bool:
    return _is_installed("onnxruntime") and weights.find(ARCTIC) is not None


def _needs_runtime() -> None:
    if not _is_installed("onnxruntime"):
        raise SettingsError(
            "recall.embedder.use", f"a model of your own machine needs the package onnxruntime; {_EXTRA}"
        )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
