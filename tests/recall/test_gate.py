"""The relevance gate: which hits are recalled automatically."""

from __future__ import annotations

import pytest

from recto.context.facts.types import Mark
from recto.recall.recall import relevant_hits
from recto.recall.types import Hit, SearchResult

THRESHOLD = 0.4


def found(*chances: float, candidates: int = 100, words: float = 5.0, meaning: float = 0.0) -> SearchResult:
    """Returns a search result whose best hit is this many standard deviations above the other candidates."""
    hits = tuple(
        Hit(
            session="agent:a:main",
            seq=seq,
            pointer=f"recto://agent:a:main/{seq}",
            role="user",
            ts=0,
            text="",
            score=chance,
            chance=chance,
            parts={"words": words if seq == 1 else 0.0, "meaning": meaning},
            marks=Mark.NONE,
        )
        for seq, chance in enumerate(chances, 1)
    )
    return SearchResult(query="", scope="session", hits=hits, searched=1000, candidates=candidates)


def quoted(result: SearchResult, *, spare: bool = True) -> list[int]:
    return [hit.seq for hit in relevant_hits(result, THRESHOLD, spare=spare)]


def test_a_best_hit_at_the_threshold_admits_hits_slightly_below_it():
    assert quoted(found(0.4, 0.31, 0.29)) == [1, 2]
    assert quoted(found(0.4, 0.31, words=0.5), spare=False) == [1, 2]


def test_a_best_hit_just_below_the_threshold_admits_hits_close_to_it():
    assert quoted(found(0.39, 0.38, 0.35, 0.34, 0.2)) == [1, 2, 3]
    assert quoted(found(0.29)) == []
    assert quoted(found(0.39), spare=False) == []
    assert quoted(found()) == []


@pytest.mark.parametrize(("words", "seqs"), [(4.0, [1]), (3.9, [])])
def test_a_hit_below_the_threshold_must_stand_out_among_the_candidates(words, seqs):
    assert quoted(found(0.39, words=words)) == seqs


def test_without_outliers_the_chance_decides():
    assert quoted(found(0.39, words=2.0, candidates=31)) == [1]
    assert quoted(found(0.39, words=2.0, meaning=1.0)) == [1]
