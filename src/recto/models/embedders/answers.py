"""What an `/embeddings` endpoint answers, checked and turned into rows. It knows JSON and nothing of HTTP."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from recto.models.http import parsed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recto.ports import Matrix


def rows_of(answer: bytes, *, count: int, dims: int = 0) -> Matrix:
    """The vectors of an answer in the order of the texts, each of length 1. Raises `ValueError` in plain words.

    With `dims`, vectors of another length are refused; they must have one length in any case. A vector of zeros,
    with which the endpoint says that there is nothing in a text, stays one.
    """
    import numpy as np  # noqa: PLC0415  # only for who embeds

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
    # Scaled first, so that no square is out of range.
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
    import numpy as np  # noqa: PLC0415  # only for who embeds

    given = item.get("embedding")
    if isinstance(given, str):
        try:
            return np.frombuffer(base64.b64decode(given, validate=True), dtype="<f4")
        except ValueError:
            raise ValueError("a vector is not base64 of 32-bit numbers") from None
    if not isinstance(given, list) or not all(type(number) in (int, float) for number in given):
        raise ValueError("a vector is neither a list of numbers nor base64")
    try:
        return [float(number) for number in given]
    except OverflowError:
        raise ValueError("a vector holds a number that is out of range") from None
