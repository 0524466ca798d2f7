"""An embedder behind any OpenAI-compatible `/embeddings` endpoint.

It sends texts in batches and trusts no answer before it is checked. How they get there is known in `models/http.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from recto.core.estimates import whole
from recto.errors import EmbedderFailed, SettingsError
from recto.models.embedders.answers import rows_of
from recto.models.http import Endpoint, Trouble

if TYPE_CHECKING:
    from recto.ports import Matrix

ANSWER_MOST = 64 * 1024 * 1024
"""Bytes of an answer that are read at most."""
TEXT_MOST = 6_000
"""Characters of a text that are sent: one text that is too long for the model would fail its whole batch."""


@dataclass(slots=True, eq=False, kw_only=True)
class EndpointEmbedder:
    """Sends texts in batches. Blank texts are not sent; their row is zeros."""

    url: str = field(kw_only=False, repr=False)
    """Without `/embeddings`, which is added."""
    model: str
    key: str = field(default="", repr=False)
    known_dims: int = 0
    """Asked for and insisted on. 0: as long as the first answer's."""
    seconds: float = 10.0
    """The longest that one batch may take, other attempts and waits included."""
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
        # Two servers may serve two models under one name.
        self.name = f"{self.model}@{parts.hostname}{f':{parts.port}' if parts.port else ''}{length}{prefix}"

    @property
    def dims(self) -> int:
        """How long its vectors are. Asks the endpoint where nobody said. Raises `EmbedderFailed`."""
        if not self.known_dims:
            self._ask(["a"])
        return self.known_dims

    def documents(self, texts: Sequence[str]) -> Matrix:
        """One row of length 1 for each text; zeros for a blank one. Raises `EmbedderFailed`."""
        return self._rows(self.document_prefix, texts)

    def query(self, text: str) -> Matrix:
        """The vector of a question, as one row. Raises `EmbedderFailed`."""
        return self._rows(self.query_prefix, [text])

    def close(self) -> None:
        """Lets go of its connections; the next use makes new ones."""
        self._endpoint.close()

    def _rows(self, prefix: str, texts: Sequence[str]) -> Matrix:
        import numpy as np  # noqa: PLC0415  # only for who embeds

        places = [place for place, text in enumerate(texts) if text.strip()]
        found = []
        for start in range(0, len(places), self.batch):
            chosen = places[start : start + self.batch]
            found.append(self._ask([whole(prefix + texts[place][:TEXT_MOST]) for place in chosen]))
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
