"""Extractive summaries: the most informative sentences and lines, verbatim, in order, within a token limit. No model.

A sentence is scored by its author and wording, and by its similarity to the others (LexRank); similarity to a sentence
already chosen lowers its score. Wording rules exist for English only, everything else works for any language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import nlargest
from math import log
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from recto.context.facts.classifier import classify
from recto.context.facts.types import Mark, MessageView
from recto.text.lazy_re import lazy_re
from recto.text.secrets import mask_secrets
from recto.text.sentences import collapse_spaces, is_code, shorten, split_sentences
from recto.text.terms import clip_middle, words_of
from recto.text.truncation import CountText

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float32]

MAX_CANDIDATES = 1_500
"""Maximum number of sentences compared with each other."""
_MAX_PER_MESSAGE = 60
"""Sentences of one message; of a longer one the first and the last."""
_PASTED_CHARS = 3_000
"""Characters of a user message beyond which it was pasted, and only its ends are the user's words."""
_OWN_SENTENCES = 4
"""Sentences at each end of a long message that are certainly the user's."""
_MAX_ANSWER_CHARS = 40_000
"""Characters of an answer that are read."""
_MAX_OUTPUT_CHARS = 6_000
"""Characters of a tool output that are searched for errors."""
_COMMON_SHARE = 0.15
"""Words in more than this share of all sentences are ignored."""
_DAMPING = 0.5
"""Weight of the other sentences relative to a sentence's own score."""
_ITERATIONS = 15
_MIN_LINK = 0.08
"""Less similar sentences are not linked."""
_SAME = 0.7
"""Similarity to a chosen sentence at which a sentence counts as a repetition."""
_CROWDING = 0.15
"""How much less each further sentence of one message counts."""
_MAX_MISSES = 24
"""Stop after this many sentences that did not fit."""

_IMPORTANT_MARKS = Mark.CORRECTION | Mark.CONSTRAINT | Mark.DECISION | Mark.PREFERENCE | Mark.CRITICAL
_CONCLUSION = lazy_re(
    r"\b(?:root cause|cause[ds]?\b|because|found|finding|fix(?:ed|es)?|problem|issue|bug|turns out|decided|decision"
    r"|chose|instead|implemented|added|removed|renamed|replaced|changed|updated|created|committed|merged|done"
    r"|complete[d]?|pass(?:es|ed)?\b|fail(?:s|ed|ing|ure)?|works|broken|result|conclusion|summary|therefore|so that"
    r"|remaining|next step|todo|must|should|needs? to|cannot|never|only|recommend)",
    re.IGNORECASE,
)
_FILLER = lazy_re(
    r"(?:(?:now|ok(?:ay)?|great|perfect|good|excellent|sure|alright|right|yes|first|next|also|and|so|then|actually"
    r"|wait|hmm|got it|i see|thanks?(?: you)?)[,.!: —-]{1,3}){0,3}"
    r"(?:let me|let's|i'll|i will|i'm going to|i am going to|i need to|i should|i can see|now i|looking at|here's"
    r"|here is|hello|hi\b|hey|thank|you're (?:absolutely )?right|would you like|do you want|shall i|feel free|happy to"
    r"|glad)",
    re.IGNORECASE,
)
_ERROR = lazy_re(
    r"(?:\b[Ee]rror\b|Error:|Exception\b|\bFAIL|\bfailed\b|\bfatal\b|\bpanic\b|Traceback|\bdenied\b|not found"
    r"|undefined|cannot |[Ee]xit code [1-9])"
)
_NAME_OR_NUMBER = lazy_re(r"\d|`|[a-z][A-Z]|\w[._/]\w")


class PickedSentence(Struct, frozen=True):
    """A sentence or a line, verbatim except for white space and secrets."""

    seq: int
    """The source entry."""
    text: str
    score: float
    """How informative it is relative to the other candidates; at most 1."""


def extract_sentences(
    messages: Sequence[MessageView],
    *,
    goal: str = "",
    focus: str = "",
    tokens: int,
    count: CountText,
    vectors: Callable[[Sequence[str]], Matrix] | None = None,
) -> list[PickedSentence]:
    """The most informative sentences and lines, in order, each once; together, one per line, within `tokens`.

    `goal` is what the conversation is for and `focus` what is requested now: sentences close to them score higher. With
    `vectors` sentences are compared by meaning, else by their words.
    """
    if tokens <= 0:
        return []
    candidates = _candidates(messages)
    if not candidates:
        return []
    graph = _SimilarityGraph([candidate.text for candidate in candidates], vectors)
    priors = graph.raise_priors([candidate.score for candidate in candidates], ((goal, 0.5), (focus, 1.0)))
    scores = graph.rank(priors)
    candidates = [replace(candidate, score=score) for candidate, score in zip(candidates, scores, strict=True)]
    chosen = _choose(candidates, graph, tokens, count)
    return [candidates[index] for index in sorted(chosen)]


def _candidates(messages: Sequence[MessageView]) -> list[PickedSentence]:
    """The candidates with their own score, in order; each text once, at its last occurrence."""
    closing = _closing_messages(messages)
    known: dict[str, PickedSentence] = {}
    for index, message in enumerate(messages):
        recent = 0.3 * (index + 1) / len(messages)
        for text, weight in _scored_sentences(message, index in closing):
            score = weight + recent + (0.0 if message.role == "tool" else _wording_score(text))
            before = known.pop(text.lower(), None)
            known[text.lower()] = PickedSentence(message.seq, text, max(score, before.score if before else 0.0))
    candidates = list(known.values())
    best = nlargest(MAX_CANDIDATES, range(len(candidates)), key=lambda rank: (candidates[rank].score, -rank))
    return [candidates[rank] for rank in sorted(best)]


def _closing_messages(messages: Sequence[MessageView]) -> frozenset[int]:
    """Indexes of the last assistant message of each exchange."""
    closing, last = set[int](), -1
    for index, message in enumerate(messages):
        if message.role == "user" and last >= 0:
            closing.add(last)
            last = -1
        elif message.role == "assistant" and message.text.strip():
            last = index
    return frozenset(closing | {last})


def _scored_sentences(message: MessageView, closes: bool) -> list[tuple[str, float]]:
    """The sentences of a message and their weight by author."""
    if message.role == "user":
        return _user_sentences(message.text)
    if message.role == "assistant":
        sentences = _first_and_last(split_sentences(_mask_clipped(message.text, _MAX_ANSWER_CHARS), _MAX_ANSWER_CHARS))
        base = 0.9 if closes else 0.5
        informative = [
            text
            for text in sentences
            if _is_informative(text) and (_NAME_OR_NUMBER.search(text) or not is_filler(text))
        ]
        return [(text, base + (0.0 if index else 0.15)) for index, text in enumerate(informative)]
    return _tool_lines(message.text) if message.role == "tool" else []


def _user_sentences(text: str) -> list[tuple[str, float]]:
    """The user's own words are at the ends of a message; the middle of a long one was pasted."""
    sentences = _first_and_last(split_sentences(_mask_clipped(text, _PASTED_CHARS), _PASTED_CHARS))
    own_count = len(sentences) if len(sentences) <= 2 * _OWN_SENTENCES else _OWN_SENTENCES
    return [
        (sentence, (1.3 if index < own_count or index >= len(sentences) - own_count else 0.3) + _mark_bonus(sentence))
        for index, sentence in enumerate(sentences)
        if _is_informative(sentence)
    ]


def _mark_bonus(sentence: str) -> float:
    return 0.4 if classify(sentence, "user") & _IMPORTANT_MARKS else 0.0


def _tool_lines(output: str) -> list[tuple[str, float]]:
    """The error lines of an output, else its first finding."""
    errors = find_error_lines(output, 3)
    if errors or len(output) > _PASTED_CHARS:
        return [(line, 0.5) for line in errors]
    return [
        (sentence, 0.0)
        for sentence in split_sentences(_mask_clipped(output, _MAX_OUTPUT_CHARS))[:1]
        if sum(map(str.isalpha, sentence.split())) >= 4
    ]


def find_error_lines(output: str, max_lines: int) -> list[str]:
    """The first lines of an output that report an error, without secrets."""
    errors: list[str] = []
    for line in clip_middle(_mask_clipped(output, _MAX_OUTPUT_CHARS), _MAX_OUTPUT_CHARS).splitlines():
        plain = shorten(collapse_spaces(line), 240) if len(line) < 1_000 else ""
        if len(plain) >= 16 and plain not in errors and _ERROR.search(plain) and not is_code(line):
            errors.append(plain)
            if len(errors) == max_lines:
                break
    return errors


def _mask_clipped(text: str, max_chars: int) -> str:
    """The text without secrets, clipped with a margin so that no secret is cut at the end of what is read."""
    return mask_secrets(clip_middle(text, 2 * max_chars))


def _first_and_last(sentences: list[str]) -> list[str]:
    if len(sentences) <= _MAX_PER_MESSAGE:
        return sentences
    return sentences[: _MAX_PER_MESSAGE // 2] + sentences[-_MAX_PER_MESSAGE // 2 :]


def _is_informative(text: str) -> bool:
    """Whether it is understandable alone: at least three words, or as much in a script without spaces."""
    if text.startswith("[") and text.endswith("]"):
        return False  # a program's note
    return len(text.split(maxsplit=3)) >= 3 or (not text.isascii() and len(text) >= 6)


def is_filler(text: str) -> bool:
    """Whether a sentence only announces an action or is a courtesy."""
    return _FILLER.match(text) is not None


def _wording_score(text: str) -> float:
    """Score of a sentence for its wording alone."""
    score = 0.3 if _CONCLUSION.search(text) else 0.0
    if _NAME_OR_NUMBER.search(text):
        score += 0.15
    if is_filler(text):
        score -= 0.7
    if text.endswith((":", "：")):
        score -= 0.5
    if text.endswith(("?", "？", "؟")):
        score -= 0.1
    return score - (0.2 if len(text) < 30 else 0.0)


class _SimilarityGraph:
    """Pairwise similarities of the sentences."""

    def __init__(self, texts: Sequence[str], vectors: Callable[[Sequence[str]], Matrix] | None) -> None:
        import numpy as np  # noqa: PLC0415  only when something is extracted

        self._np = np
        self._bags = [Counter(map(_stem, words_of(text))) for text in texts]
        spread: Counter[str] = Counter()
        for bag in self._bags:
            spread.update(bag.keys())
        max_spread = max(3.0, _COMMON_SHARE * len(texts))
        self._rarity = {word: log(1 + len(texts) / n) for word, n in spread.items() if n <= max_spread}
        self.word_similarities = self._word_cosines()
        self.similarities = self.word_similarities if vectors is None else self._vector_cosines(vectors(texts))

    def _word_cosines(self) -> Matrix:
        """Cosines by words: for each word that two sentences share, its weight in both."""
        np = self._np
        indexes: dict[str, list[int]] = {}
        weights: dict[str, list[float]] = {}
        for index, bag in enumerate(self._bags):
            known = [(word, (1 + log(n)) * self._rarity[word]) for word, n in bag.items() if word in self._rarity]
            length = sum(weight * weight for _, weight in known) ** 0.5
            for word, weight in known:
                indexes.setdefault(word, []).append(index)
                weights.setdefault(word, []).append(weight / length)
        cosines: Matrix = np.zeros((len(self._bags), len(self._bags)), dtype=np.float32)
        for word, rows in indexes.items():
            if len(rows) > 1:
                row_weights = np.array(weights[word], dtype=np.float32)
                cosines[np.ix_(rows, rows)] += np.outer(row_weights, row_weights)
        np.fill_diagonal(cosines, 0.0)
        return cosines

    def _vector_cosines(self, rows: Matrix) -> Matrix:
        """Cosines of vectors, measured from the median similarity of two sentences: vectors are never far apart."""
        np = self._np
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        cosines = rows @ rows.T
        median = min(0.9, float(np.median(cosines)))
        scaled: Matrix = np.asarray(np.clip((cosines - median) / max(1e-6, 1.0 - median), 0.0, 1.0), dtype=np.float32)
        np.fill_diagonal(scaled, 0.0)
        return scaled

    def raise_priors(self, priors: list[float], towards: Sequence[tuple[str, float]]) -> list[float]:
        """The priors, raised for sentences that share words with the given texts, by each text's weight."""
        for text, weight in towards:
            words = set(map(_stem, words_of(clip_middle(text, _PASTED_CHARS))))
            matching = {word: rarity for word, rarity in self._rarity.items() if word in words}
            shares = [sum(matching[word] for word in bag if word in matching) for bag in self._bags]
            top = max(shares) or 1.0
            priors = [prior + weight * share / top for prior, share in zip(priors, shares, strict=True)]
        return priors

    def rank(self, priors: list[float]) -> list[float]:
        """LexRank: each sentence passes its weight on to those similar to it, and receives theirs."""
        np = self._np
        own = np.maximum(np.array(priors, dtype=np.float32), np.float32(0.02))
        own /= own.sum()
        links = np.where(self.similarities >= _MIN_LINK, self.similarities, np.float32(0.0))
        link_sums = links.sum(axis=1, keepdims=True)
        links = np.divide(links, link_sums, out=np.zeros_like(links), where=link_sums > 0)
        rank = own
        for _ in range(_ITERATIONS):
            rank = _DAMPING * (rank @ links) + (1 - _DAMPING * (rank @ (link_sums[:, 0] > 0))) * own
        # A sentence's own score counts once more: filler is often repeated.
        scores = rank * own**0.5
        return [round(float(score), 6) for score in scores / scores.max()]


def _choose(candidates: Sequence[PickedSentence], graph: _SimilarityGraph, tokens: int, count: CountText) -> list[int]:
    """Indexes of the chosen sentences: the best that fits, then the best of the rest."""
    redundancy = [0.0] * len(candidates)
    chosen: list[int] = []
    misses = 0
    chosen_per_entry: Counter[int] = Counter()

    def value(index: int) -> tuple[float, int]:
        return candidates[index].score * (1 - redundancy[index]) / (
            1 + _CROWDING * chosen_per_entry[candidates[index].seq]
        ), -index

    remaining = set(range(len(candidates)))
    while remaining and misses < _MAX_MISSES:
        best = max(remaining, key=value)
        remaining.discard(best)
        if redundancy[best] >= _SAME:
            continue
        cost = count(candidates[best].text) + 1
        if cost > tokens:
            misses += 1
            continue
        tokens -= cost
        chosen.append(best)
        chosen_per_entry[candidates[best].seq] += 1
        similar = graph.similarities[best].tolist()
        word_similar = graph.word_similarities[best].tolist()
        redundancy = [
            max(before, by_meaning, by_word)
            for before, by_meaning, by_word in zip(redundancy, similar, word_similar, strict=True)
        ]
    return chosen


@lru_cache(8_192)
def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word
