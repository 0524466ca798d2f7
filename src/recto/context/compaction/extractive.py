"""What tells most of what was said: sentences and lines, verbatim, in their order, within so many tokens. No model.

A sentence counts by who said it and how it is worded, and by how many others say something like it (LexRank); what is
like something already picked counts less. Wording is known for English only, everything else for any language. What
the sentences mean is not known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nlargest
from math import log
from typing import TYPE_CHECKING, TypeAlias

from recto.context.facts.classifier import classify
from recto.context.facts.types import Mark, MessageView
from recto.text.analyzer import words_of
from recto.text.identifiers import clip_middle
from recto.text.secrets import mask_secrets
from recto.text.sentences import collapse_spaces, is_code, shorten, split_sentences
from recto.text.truncation import CountText

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float32]

CANDIDATES = 1_500
"""Sentences that are held against each other."""
_PER_MESSAGE = 60
"""Sentences of one message; of a longer one the first and the last."""
_PASTED = 3_000
"""Characters of a user's message beyond which it was pasted, and only its ends are the user's words."""
_OWN = 4
"""Sentences at each end of a long message that are surely the user's."""
_ANSWER = 40_000
"""Characters of an answer that are looked at."""
_OUTPUT = 6_000
"""Characters of a tool's output in which errors are looked for."""
_COMMON = 0.15
"""Words in more than this share of all sentences say nothing of any."""
_DAMPING = 0.5
"""How much the others say about a sentence, against how it looks by itself."""
_ROUNDS = 15
_LINKED = 0.08
"""Sentences that are less alike than this have nothing to do with each other."""
_ALIKE = 0.7
"""So alike to something picked, a sentence says the same."""
_CROWDED = 0.15
"""How much less each further sentence of one message counts."""
_MISSES = 24
"""After so many sentences that did not fit, nothing will."""

_WEIGHTY = Mark.CORRECTION | Mark.CONSTRAINT | Mark.DECISION | Mark.PREFERENCE | Mark.CRITICAL
_CONCLUDES = re.compile(
    r"\b(?:root cause|cause[ds]?\b|because|found|finding|fix(?:ed|es)?|problem|issue|bug|turns out|decided|decision"
    r"|chose|instead|implemented|added|removed|renamed|replaced|changed|updated|created|committed|merged|done"
    r"|complete[d]?|pass(?:es|ed)?\b|fail(?:s|ed|ing|ure)?|works|broken|result|conclusion|summary|therefore|so that"
    r"|remaining|next step|todo|must|should|needs? to|cannot|never|only|recommend)",
    re.IGNORECASE,
)
_IDLE = re.compile(
    r"(?:(?:now|ok(?:ay)?|great|perfect|good|excellent|sure|alright|right|yes|first|next|also|and|so|then|actually"
    r"|wait|hmm|got it|i see|thanks?(?: you)?)[,.!: —-]{1,3}){0,3}"
    r"(?:let me|let's|i'll|i will|i'm going to|i am going to|i need to|i should|i can see|now i|looking at|here's"
    r"|here is|hello|hi\b|hey|thank|you're (?:absolutely )?right|would you like|do you want|shall i|feel free|happy to"
    r"|glad)",
    re.IGNORECASE,
)
_WRONG = re.compile(
    r"(?:\b[Ee]rror\b|Error:|Exception\b|\bFAIL|\bfailed\b|\bfatal\b|\bpanic\b|Traceback|\bdenied\b|not found"
    r"|undefined|cannot |[Ee]xit code [1-9])"
)
_NAMES = re.compile(r"\d|`|[a-z][A-Z]|\w[._/]\w")


@dataclass(frozen=True, slots=True)
class Picked:
    """A sentence or a line, as it was said but for its white space and for secrets."""

    seq: int
    """The entry it stands in."""
    text: str
    score: float
    """How much it tells, against the others that were looked at; at most 1."""


def extract(
    told: Sequence[MessageView],
    *,
    goal: str = "",
    focus: str = "",
    tokens: int,
    count: CountText,
    vectors: Callable[[Sequence[str]], Matrix] | None = None,
) -> list[Picked]:
    """The sentences and lines that tell most, in their order, each once; together, a line each, within so many tokens.

    `goal` is what all of it is for and `focus` what is wanted now: what is close to them counts more. With `vectors`
    sentences are compared by meaning, else by their words.
    """
    if tokens <= 0:
        return []
    found = _candidates(told)
    if not found:
        return []
    graph = _Graph([one.text for one in found], vectors)
    priors = graph.drawn([one.score for one in found], ((goal, 0.5), (focus, 1.0)))
    scores = graph.ranks(priors)
    found = [replace(one, score=score) for one, score in zip(found, scores, strict=True)]
    chosen = _choose(found, graph, tokens, count)
    return [found[place] for place in sorted(chosen)]


def _candidates(told: Sequence[MessageView]) -> list[Picked]:
    """What may be picked, with how it looks by itself, in order; each text once, where it was said last."""
    closing = _closing(told)
    known: dict[str, Picked] = {}
    for place, one in enumerate(told):
        recent = 0.3 * (place + 1) / len(told)
        for text, weight in _said(one, place in closing):
            score = weight + recent + (0.0 if one.role == "tool" else _look(text))
            before = known.pop(text.lower(), None)
            known[text.lower()] = Picked(one.seq, text, max(score, before.score if before else 0.0))
    listed = list(known.values())
    best = nlargest(CANDIDATES, range(len(listed)), key=lambda at: (listed[at].score, -at))
    return [listed[at] for at in sorted(best)]


def _closing(told: Sequence[MessageView]) -> frozenset[int]:
    """The places of the last words of each exchange."""
    found, last = set[int](), -1
    for place, one in enumerate(told):
        if one.role == "user" and last >= 0:
            found.add(last)
            last = -1
        elif one.role == "assistant" and one.text.strip():
            last = place
    return frozenset(found | {last})


def _said(one: MessageView, closes: bool) -> list[tuple[str, float]]:
    """The sentences of a message and what each counts for who said it."""
    if one.role == "user":
        return _by_user(one.text)
    if one.role == "assistant":
        said = _ends(split_sentences(_shown(one.text, _ANSWER), _ANSWER))
        base = 0.9 if closes else 0.5
        telling = [text for text in said if _is_telling(text) and (_NAMES.search(text) or not is_idle(text))]
        return [(text, base + (0.0 if at else 0.15)) for at, text in enumerate(telling)]
    return _by_tool(one.text) if one.role == "tool" else []


def _by_user(text: str) -> list[tuple[str, float]]:
    """The user's own words stand at the ends of a message; what is between them in a long one was pasted."""
    said = _ends(split_sentences(_shown(text, _PASTED), _PASTED))
    own = len(said) if len(said) <= 2 * _OWN else _OWN
    return [
        (one, (1.3 if at < own or at >= len(said) - own else 0.3) + _weighty(one))
        for at, one in enumerate(said)
        if _is_telling(one)
    ]


def _weighty(sentence: str) -> float:
    return 0.4 if classify(sentence, "user") & _WEIGHTY else 0.0


def _by_tool(output: str) -> list[tuple[str, float]]:
    """What went wrong, in the words of the output, else its first finding."""
    wrong = errors_in(output, 3)
    if wrong or len(output) > _PASTED:
        return [(line, 0.5) for line in wrong]
    return [
        (one, 0.0) for one in split_sentences(_shown(output, _OUTPUT))[:1] if sum(map(str.isalpha, one.split())) >= 4
    ]


def errors_in(output: str, most: int) -> list[str]:
    """The first lines of an output that say what went wrong, without its secrets."""
    found: list[str] = []
    for line in clip_middle(_shown(output, _OUTPUT), _OUTPUT).splitlines():
        plain = shorten(collapse_spaces(line), 240) if len(line) < 1_000 else ""
        if len(plain) >= 16 and plain not in found and _WRONG.search(plain) and not is_code(line):
            found.append(plain)
            if len(found) == most:
                break
    return found


def _shown(text: str, most: int) -> str:
    """The text without its secrets, as far as it is looked at and further: no secret is cut where the look ends."""
    return mask_secrets(clip_middle(text, 2 * most))


def _ends(said: list[str]) -> list[str]:
    if len(said) <= _PER_MESSAGE:
        return said
    return said[: _PER_MESSAGE // 2] + said[-_PER_MESSAGE // 2 :]


def _is_telling(text: str) -> bool:
    """Whether it can stand alone: at least three words, or as much in a script without spaces."""
    if text.startswith("[") and text.endswith("]"):
        return False  # a note of a program
    return len(text.split(maxsplit=3)) >= 3 or (not text.isascii() and len(text) >= 6)


def is_idle(text: str) -> bool:
    """Whether a sentence only says that something is about to be done, or is said out of politeness."""
    return _IDLE.match(text) is not None


def _look(text: str) -> float:
    """What a sentence counts for its wording alone."""
    score = 0.3 if _CONCLUDES.search(text) else 0.0
    if _NAMES.search(text):
        score += 0.15
    if is_idle(text):
        score -= 0.7
    if text.endswith((":", "：")):
        score -= 0.5
    if text.endswith(("?", "？", "؟")):
        score -= 0.1
    return score - (0.2 if len(text) < 30 else 0.0)


class _Graph:
    """How alike the sentences are, each to each."""

    def __init__(self, texts: Sequence[str], vectors: Callable[[Sequence[str]], Matrix] | None) -> None:
        import numpy as np  # noqa: PLC0415  only when something is extracted

        self._np = np
        self._bags = [Counter(map(_stem, words_of(text))) for text in texts]
        spread: Counter[str] = Counter()
        for bag in self._bags:
            spread.update(bag.keys())
        most = max(3.0, _COMMON * len(texts))
        self._rarity = {word: log(1 + len(texts) / n) for word, n in spread.items() if n <= most}
        self.by_words = self._compared()
        self.alike = self.by_words if vectors is None else self._by_meaning(vectors(texts))

    def _compared(self) -> Matrix:
        """Cosines by words: for each word that two sentences share, its weight in both."""
        np = self._np
        places: dict[str, list[int]] = {}
        weights: dict[str, list[float]] = {}
        for place, bag in enumerate(self._bags):
            known = [(word, (1 + log(n)) * self._rarity[word]) for word, n in bag.items() if word in self._rarity]
            length = sum(weight * weight for _, weight in known) ** 0.5
            for word, weight in known:
                places.setdefault(word, []).append(place)
                weights.setdefault(word, []).append(weight / length)
        found: Matrix = np.zeros((len(self._bags), len(self._bags)), dtype=np.float32)
        for word, at in places.items():
            if len(at) > 1:
                by = np.array(weights[word], dtype=np.float32)
                found[np.ix_(at, at)] += np.outer(by, by)
        np.fill_diagonal(found, 0.0)
        return found

    def _by_meaning(self, rows: Matrix) -> Matrix:
        """Cosines of vectors, counted from the usual likeness of two sentences on: vectors are never far apart."""
        np = self._np
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        cosines = rows @ rows.T
        usual = min(0.9, float(np.median(cosines)))
        found: Matrix = np.asarray(np.clip((cosines - usual) / max(1e-6, 1.0 - usual), 0.0, 1.0), dtype=np.float32)
        np.fill_diagonal(found, 0.0)
        return found

    def drawn(self, priors: list[float], towards: Sequence[tuple[str, float]]) -> list[float]:
        """The priors, raised for sentences that share words with a text, as much as is said beside it."""
        for text, weight in towards:
            words = set(map(_stem, words_of(clip_middle(text, _PASTED))))
            wanted = {word: rarity for word, rarity in self._rarity.items() if word in words}
            shares = [sum(wanted[word] for word in bag if word in wanted) for bag in self._bags]
            top = max(shares) or 1.0
            priors = [prior + weight * share / top for prior, share in zip(priors, shares, strict=True)]
        return priors

    def ranks(self, priors: list[float]) -> list[float]:
        """How much each sentence tells: it passes its weight on to those it is like, and gets theirs."""
        np = self._np
        own = np.maximum(np.array(priors, dtype=np.float32), np.float32(0.02))
        own /= own.sum()
        links = np.where(self.alike >= _LINKED, self.alike, np.float32(0.0))
        given = links.sum(axis=1, keepdims=True)
        links = np.divide(links, given, out=np.zeros_like(links), where=given > 0)
        rank = own
        for _ in range(_ROUNDS):
            rank = _DAMPING * (rank @ links) + (1 - _DAMPING * (rank @ (given[:, 0] > 0))) * own
        # How a sentence looks by itself counts once more: what is idle is often said.
        told = rank * own**0.5
        return [round(float(score), 6) for score in told / told.max()]


def _choose(found: Sequence[Picked], graph: _Graph, tokens: int, count: CountText) -> list[int]:
    """The places of what is picked: the best that fits, then the best beside it."""
    same = [0.0] * len(found)
    chosen: list[int] = []
    misses = 0
    spoken: Counter[int] = Counter()

    def worth(at: int) -> tuple[float, int]:
        return found[at].score * (1 - same[at]) / (1 + _CROWDED * spoken[found[at].seq]), -at

    left = set(range(len(found)))
    while left and misses < _MISSES:
        best = max(left, key=worth)
        left.discard(best)
        if same[best] >= _ALIKE:
            continue
        cost = count(found[best].text) + 1
        if cost > tokens:
            misses += 1
            continue
        tokens -= cost
        chosen.append(best)
        spoken[found[best].seq] += 1
        near = graph.alike[best].tolist()
        words = graph.by_words[best].tolist()
        same = [max(before, one, other) for before, one, other in zip(same, near, words, strict=True)]
    return chosen


@lru_cache(8_192)
def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word
