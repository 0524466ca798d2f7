"""An embedder that runs a model on this machine: any folder with `model.onnx` and `tokenizer.json`.

Each text is embedded alone: with dynamic quantization the vector of a text depends on the rest of its batch, and the
same text must always give the same row.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from recto.concurrency import stop_at_exit, undivided_by_fork
from recto.errors import EmbedderFailed, RectoError
from recto.tokens.meter import replace_surrogates
from recto.version import install_command

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recto.recall.protocols import Matrix

T = TypeVar("T")

Pooling = Literal["cls", "mean"]
"""How token vectors become one: the vector of the first token (`cls`), or the mean over all (`mean`)."""
MODEL_FILES = ("model.onnx", "onnx/model.onnx")
TOKENIZER_FILE = "tokenizer.json"
CHARACTERS_PER_TOKEN = 64
"""Characters per token of the model's limit; the rest of a text is ignored."""
_INPUTS: dict[str, Callable[[list[int]], list[int]]] = {
    "input_ids": lambda tokens: tokens,
    "attention_mask": lambda tokens: [1] * len(tokens),
    "token_type_ids": lambda tokens: [0] * len(tokens),
    "position_ids": lambda tokens: list(range(len(tokens))),
}
"""Inputs a model may have besides the tokens, all derived from them."""
_END = 1 << 20
"""Bytes at each end of a model file that identify it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """A loaded model and its inputs."""

    session: Any
    options: Any
    """Of every run. Setting its `terminate` ends the runs under way."""
    encode: Callable[[str], list[int]]
    inputs: tuple[tuple[str, str], ...]
    """Names and types."""
    after: int
    """Number of tokens that the tokenizer adds after a text."""


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class OnnxEmbedder:
    """Loaded once, when first used. Thread-safe.

    A text of which the tokenizer leaves nothing gets a row of zeros: it is like nothing.
    """

    folder: Path = field(kw_only=False)
    name: str
    query_prefix: str = ""
    document_prefix: str = ""
    max_tokens: int = 512
    """Longer texts are cut; the last token is still the end-of-text token."""
    pooling: Pooling = "cls"
    threads: int = 1
    """One by default, because the agent needs the machine too."""
    weight: float = 0.5
    known_dims: int = 0
    """If set, `dims` need not load the model."""
    prepare: Callable[[], object] | None = field(default=None, repr=False)
    """Called before the files are opened, to verify them; raises if they are wrong."""
    _model: _Model | None = field(default=None, init=False, repr=False)
    _loading: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def dims(self) -> int:
        """Length of its vectors. Loads the model if it was not configured. Raises `EmbedderFailed`."""
        if not self.known_dims:
            self.known_dims = self._told(lambda: len(self._run(self._loaded(), self._loaded().encode("a"))))
        return self.known_dims

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Embed texts: one unit row per text, independent of the other texts; zeros for an empty text."""
        return self._told(lambda: self._rows(self.document_prefix, texts))

    def query(self, text: str) -> Matrix:
        """Embed a question, as one row."""
        return self._told(lambda: self._rows(self.query_prefix, [text]))

    def _told(self, work: Callable[[], T]) -> T:
        """Run a call and raise every failure as `EmbedderFailed`."""
        try:
            return work()
        except (EmbedderFailed, KeyboardInterrupt, SystemExit):
            raise
        except RectoError as error:
            raise EmbedderFailed(self.name, str(error).rstrip(".")) from None
        except BaseException as error:  # noqa: BLE001  a panic inside a native tokenizer is not an Exception
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise EmbedderFailed(self.name, f"the model in '{self.folder}' failed: {reason}") from None

    def _rows(self, prefix: str, texts: Sequence[str]) -> Matrix:
        import numpy as np  # noqa: PLC0415  # imported only when something is embedded

        model = self._loaded()
        rows = np.zeros((len(texts), self.dims), dtype=np.float32)
        bare = model.encode(prefix)
        for place, text in enumerate(texts):
            tokens = self._tokens(model, prefix + text)
            if tokens != bare:
                rows[place] = self._unit(self._run(model, tokens))
        return rows

    def _tokens(self, model: _Model, text: str) -> list[int]:
        # Special tokens spelled out in a text are encoded as plain text, so that `[SEP]` in it does not end the text.
        tokens = model.encode(replace_surrogates(text[: self.max_tokens * CHARACTERS_PER_TOKEN]))
        if len(tokens) <= self.max_tokens:
            return tokens
        return tokens[: self.max_tokens - model.after] + tokens[len(tokens) - model.after :]

    def _run(self, model: _Model, tokens: list[int]) -> NDArray[np.float64]:
        import numpy as np  # noqa: PLC0415  # imported only when something is embedded

        inputs = {
            name: np.array([_INPUTS[name](tokens)], dtype=np.int32 if kind == "tensor(int32)" else np.int64)
            for name, kind in model.inputs
        }
        with undivided_by_fork():
            found: NDArray[np.float64] = model.session.run(None, inputs, model.options)[0][0].astype(np.float64)
        if found.ndim == 1:  # the model pools by itself
            return found
        pooled: NDArray[np.float64] = found[0] if self.pooling == "cls" else found.mean(axis=0)
        return pooled

    def _unit(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        import numpy as np  # noqa: PLC0415  # imported only when something is embedded

        length = float(np.sqrt((vector * vector).sum()))
        if len(vector) != self.dims or not 0 < length < float("inf"):
            raise EmbedderFailed(self.name, f"the model gave no usable vector of {self.dims} numbers")
        return vector / length

    def _loaded(self) -> _Model:
        if self._model is None:
            with undivided_by_fork(), self._loading:
                if self._model is None:
                    self._model = self._load()
        return self._model

    def _load(self) -> _Model:
        if self.prepare is not None:
            self.prepare()
        runtime = self._runtime()
        encode = importlib.import_module("splintr").from_json(str(self.folder / TOKENIZER_FILE)).encode_ordinary
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Idle threads sleep instead of spinning, and no memory plan is cached per text length.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_mem_pattern = False
        options.log_severity_level = 4
        session = runtime.InferenceSession(str(model_file(self.folder)), options, providers=["CPUExecutionProvider"])
        inputs = tuple((one.name, one.type) for one in session.get_inputs())
        unknown = ", ".join(name for name, _ in inputs if name not in _INPUTS)
        if unknown:
            raise EmbedderFailed(self.name, f"'{self.folder}' is no model of texts: it asks for {unknown}")
        stop_at_exit(self._terminate)
        return _Model(
            session=session, options=runtime.RunOptions(), encode=encode, inputs=inputs, after=_ending(encode)
        )

    def _terminate(self) -> None:
        """End the runs under way: the process ends, and would be aborted if one of them returned after it."""
        if self._model is not None:
            self._model.options.terminate = True

    def _runtime(self) -> Any:  # noqa: ANN401  # the package is untyped
        # By default the runtime sends telemetry over the network. It decides when it is first imported;
        # if a program has imported it already, everything but its first report is disabled.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            runtime = importlib.import_module("onnxruntime")
        except ImportError:
            reason = f"the package onnxruntime is missing; install it with: {install_command('recall')}"
            raise EmbedderFailed(self.name, reason) from None
        runtime.disable_telemetry_events()
        return runtime


def model_file(folder: Path) -> Path:
    """Return the model file in a folder; the default path if there is none, for the error message."""
    return next((folder / name for name in MODEL_FILES if (folder / name).is_file()), folder / MODEL_FILES[0])


def fingerprint(folder: Path, *more: str) -> str:
    """Return a fingerprint of a model's files without reading them completely. Raises `OSError`."""
    digest = hashlib.sha256("\0".join(more).encode(errors="replace"))
    digest.update((folder / TOKENIZER_FILE).read_bytes())
    with model_file(folder).open("rb") as file:
        size = file.seek(0, 2)
        for start in (0, max(size - _END, 0)):
            file.seek(start)
            digest.update(file.read(_END))
    digest.update(str(size).encode())
    return digest.hexdigest()[:12]


def _ending(encode: Callable[[str], list[int]]) -> int:
    """Return how many tokens the tokenizer adds after a text."""
    bare, filled = encode(""), encode("a")
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(bare, filled, strict=False)))
    return len(bare) - same
