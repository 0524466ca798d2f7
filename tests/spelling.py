"""An embedder for tests that needs no weights: texts with common words and trigrams are near each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class SpellingEmbedder:
    """Signed feature hashing of words and their trigrams; zeros for a text without words."""

    dims: int = 384
    weight: float = 0.1
    means: Mapping[str, str] = field(default_factory=dict)
    """Texts mapped to another text of the same meaning."""

    @property
    def name(self) -> str:
        return f"spelling/1/{self.dims}"

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.zeros((len(texts), self.dims))
        for row, text in zip(rows, (self.means.get(text, text) for text in texts), strict=True):
            for word in text.lower().split():
                padded = f" {word} "
                for piece in (word, *(padded[at : at + 3] for at in range(len(padded) - 2))):
                    code = crc32(piece.encode("utf-8", "surrogatepass"))
                    row[(code >> 1) % self.dims] += 1 if code & 1 else -1
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths, lengths, 1)).astype(np.float32)

    def query(self, text: str) -> np.ndarray:
        return self.documents([text])
