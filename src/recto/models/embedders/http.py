"""An embedder behind any OpenAI-compatible `/embeddings` endpoint.

Sends texts in batches and validates every response. `recto.models.http` is the transport.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

from recto.errors import EmbedderFailed, SettingsError
from recto.models.http import Endpoint, Trouble, parsed
from recto.tokens.meter import replace_surrogates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recto.recall.protocols import Matrix


def rows_of(answer: bytes, *, count: int, dims: int = 0) -> Matrix:
    """Return the normalized vectors of a response in the order of the texts. Raises `ValueError`.

    With `dims`, vectors of another length are refused; they must have the same length in any case. A vector of zeros,
    which an endpoint returns for an empty text, stays zeros.
    """
    import numpy as np  # noqa: PLC0415  # imported only when something is embedded

    vectors = [_vector(item) for item in _in_order(_items(answer), count)]
    lengths = {len(vector) for vector in vectors}
    if len(lengths) > 1 or (dims and lengths != {dims}):
        expected = f"{dims:,}" if dims else "one number of"
        raise ValueError(
            f"vectors of {', '.join(f'{length:,}' for length in sorted(lengths))} dimensions came, expected {expected}"
        )
    rows = np.array(vectors, dtype=np.float64)
    if not rows.size or not np.isfinite(rows).all():
        raise ValueError("a vector holds something that is not a number")
    # Scaled first, so that no square overflows.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows /= np.where(largest > 0, largest, 1)
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return (rows / np.where(norms > 0, norms, 1)).astype(np.float32)


def _items(answer: bytes) -> list[Any]:
    tree = parsed(answer)
    items = tree.get("data") if isinstance(tree, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("the answer has no list of vectors under 'data'")
    return items


def _in_order(items: list[Any], count: int) -> list[Any]:
    if len(items) != count:
        raise ValueError(f"{len(items):,} vectors came for {count:,} texts")
    places = [item.get("index", place) for place, item in enumerate(items)]
    if not all(type(place) is int for place in places) or sorted(places) != list(range(count)):
        raise ValueError("the vectors are not numbered as the texts are")
    return [item for _, item in sorted(zip(places, items, strict=True), key=lambda pair: pair[0])]


def _vector(item: dict[str, Any]) -> list[float] | NDArray[np.float32]:
    import numpy as np  # noqa: PLC0415  # imported only when something is embedded

    value = item.get("embedding")
    if isinstance(value, str):
        try:
            return np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
        except ValueError:
            raise ValueError("a vector is not base64 of 32-bit numbers") from None
    if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
        raise ValueError("a vector is neither a list of numbers nor base64")
    try:
        return [float(number) for number in value]
    except OverflowError:
        raise ValueError("a vector holds a number that is out of range") from None


ANSWER_MOST = 64 * 1024 * 1024
"""Largest response that is read, in bytes."""
TEXT_MOST = 6_000
"""Characters sent of a text: one text that is too long for the model would fail its whole batch."""


@dataclass(slots=True, eq=False, kw_only=True)
class EndpointEmbedder:
    """Sends texts to an endpoint in batches. Blank texts are not sent; their row is zeros."""

    url: str = field(kw_only=False, repr=False)
    """Base URL, without `/embeddings`."""
    model: str
    key: str = field(default="", repr=False)
    known_dims: int = 0
    """Requested and checked. 0: the length of the first response's vectors."""
    seconds: float = 10.0
    """Time limit of one batch in seconds, including retries."""
    batch: int = 64
    retries: int = 2
    query_prefix: str = ""
    document_prefix: str = ""
    weight: float = 0.5
    wait: Callable[[float], object] = field(default=time.sleep, repr=False)
    name: str = field(init=False)
    _endpoint: Endpoint = field(init=False, repr=False)
    _asked_dims: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._endpoint = Endpoint(
            url=self.url,
            path="/embeddings",
            setting="recall.embedder",
            key=self.key,
            retries=self.retries,
            wait=self.wait,
        )
        if not self.model:
            raise SettingsError("recall.embedder.model", "an endpoint needs the name of its model")
        if self.seconds <= 0 or self.batch < 1 or self.retries < 0 or self.known_dims < 0:
            raise SettingsError("recall.embedder", "seconds and batch must be more than 0, retries and dims not below")
        self._asked_dims = self.known_dims
        length = f"/{self.known_dims}" if self.known_dims else ""
        prefix = f"/{crc32(self.document_prefix.encode(errors='replace')):08x}" if self.document_prefix else ""
        parts = self._endpoint.parts
        # The URL is part of the name: two servers may serve different models under one name.
        self.name = f"{self.model}@{parts.hostname}{f':{parts.port}' if parts.port else ''}{length}{prefix}"

    @property
    def dims(self) -> int:
        """Length of its vectors. Queries the endpoint if it was not configured. Raises `EmbedderFailed`."""
        if not self.known_dims:
            self._ask(["a"])
        return self.known_dims

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Embed texts: one unit row per text; zeros for a blank one. Raises `EmbedderFailed`."""
        return self._rows(self.document_prefix, texts)

    def query(self, text: str) -> Matrix:
        """Embed a question, as one row. Raises `EmbedderFailed`."""
        return self._rows(self.query_prefix, [text])

    def close(self) -> None:
        """Close its connections; the next use opens new ones."""
        self._endpoint.close()

    def _rows(self, prefix: str, texts: Sequence[str]) -> Matrix:
        import numpy as np  # noqa: PLC0415  # imported only when something is embedded

        places = [place for place, text in enumerate(texts) if text.strip()]
        found = []
        for start in range(0, len(places), self.batch):
            chosen = places[start : start + self.batch]
            found.append(self._ask([replace_surrogates(prefix + texts[place][:TEXT_MOST]) for place in chosen]))
        rows = np.zeros((len(texts), self.dims), dtype=np.float32)
        if found:
            rows[places] = np.concatenate(found)
        return rows

    def _ask(self, texts: list[str]) -> Matrix:
        body: dict[str, object] = {"model": self.model, "input": texts}
        if self._asked_dims:
            body["dimensions"] = self._asked_dims
        answer = self._endpoint.post(body, seconds=self.seconds, most=ANSWER_MOST)
        if isinstance(answer, Trouble):
            raise self._failed(answer.reason)
        try:
            rows = rows_of(answer, count=len(texts), dims=self.known_dims)
        except ValueError as error:
            raise self._failed(str(error)) from None
        self.known_dims = rows.shape[1]
        return rows

    def _failed(self, reason: str) -> EmbedderFailed:
        return EmbedderFailed(self.name, reason)
