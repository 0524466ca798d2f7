"""The gate: which hits of a search are relevant enough to be quoted in a prompt that did not ask for them."""

from __future__ import annotations

from recto.recall.search import MAX_RANKED, Ranking
from recto.recall.types import Hit, SearchResult

SPARE_TOKENS = 300
"""Budget from which on a best hit below the threshold is quoted."""
_COMPANION_MARGIN = 0.1
"""Hits may be this much less relevant than the threshold if the best hit reaches it."""
_UNSURE_MARGIN = 0.1
"""The best hit may be this much below the threshold if there are tokens to spare."""
_CLOSE_TO_BEST = 0.85
"""Share of the best relevance from which on others are quoted with a best hit below the threshold."""
_MAX_UNSURE = 3
"""Hits that are quoted at most where the best is below the threshold."""
_STANDS_OUT = 4.0
"""Standard deviations above the other candidates by which a best hit below the threshold must match the words."""
_MIN_CANDIDATES = 32
"""Candidates from which on a hit can be distinguished: of a few, none is far from the others."""


def relevant_hits(result: SearchResult, threshold: float, *, spare: bool) -> list[Hit]:
    """Return the hits that are relevant enough to be quoted.

    Where the best one is just below the threshold and there are tokens to `spare`, it is quoted with the few that come
    close to it: a plain question is often answered by a message that shares few words with it. A question about
    something that was never mentioned has such a best hit too, but one that hardly differs from the other candidates.
    """
    best = max((hit.chance for hit in result.hits), default=0.0)
    if best >= threshold:
        return [hit for hit in result.hits if hit.chance >= threshold - _COMPANION_MARGIN]
    if not spare or best < threshold - _UNSURE_MARGIN or not _stands_out(result):
        return []
    return [hit for hit in result.hits if hit.chance >= _CLOSE_TO_BEST * best][:_MAX_UNSURE]


def least_relevance(ranking: Ranking, threshold: float, *, spare: bool) -> float | None:
    """Return the relevance below which no hit of a ranking would be quoted; None if nothing would be.

    Known before any text is read. `relevant_hits` decides about the hits that are left.
    """
    best = ranking.order[:MAX_RANKED]
    chance = ranking.best_chance
    if chance >= threshold:
        return threshold - _COMPANION_MARGIN
    if not spare or chance < threshold - _UNSURE_MARGIN:
        return None
    parts = ranking.scores.parts
    can_be_told = len(ranking.candidates) >= _MIN_CANDIDATES and not parts["meaning"][best].any()
    if can_be_told and parts["words"][best].max() < _STANDS_OUT:
        return None
    return _CLOSE_TO_BEST * chance


def _stands_out(result: SearchResult) -> bool:
    """Whether the words of one hit match far better than those of most candidates; true if that is unknown."""
    if result.candidates < _MIN_CANDIDATES or any(hit.parts.get("meaning") for hit in result.hits):
        return True
    return max((hit.parts.get("words", 0.0) for hit in result.hits), default=0.0) >= _STANDS_OUT
