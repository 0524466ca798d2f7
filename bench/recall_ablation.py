"""Measures what each rule and weight of recall contributes, by switching them off one by one.
The data are LongMemEval and BEAM, two public data sets, and recorded sessions of agents. Each variant is compared with
recall as it is.

Measured are the hits that a prompt would be offered, after duplicates are dropped and related messages added.
LongMemEval: the user's turns of 48 sessions, all evidence among the first 10 hits. BEAM: the share of the evidence in
the first 10 exchanges that hits belong to. Agents: at each request of the user, the names, paths and numbers that the
following actions use and that are only in messages older than the newest 64,000 characters; the share of them in the
first 3,000 characters of the first 10 hits. Differences are to recall as it is, with a 95 % interval, for which
conversations are resampled, not questions. "No effect" means that every question had the same result; a data set on
which a rule cannot have any effect is not measured.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from msgspec.structs import replace
from rich.progress import track

from bench.action_support import action_of
from bench.measure import figures, progress
from bench.recall import BEAM_MEASURES, WHEN, Difference, beam_row, embedder, key, searching, spoken
from bench.recall_data import DATA, chat_questions, chats, conversations, recall_all
from recto.formats import entry_text
from recto.formats.session_files import read_file
from recto.formats.session_files.types import SourceEntry
from recto.lab.moments import referents
from recto.recall import _selection, indexer, search
from recto.recall._selection import MessageReader, Selection
from recto.recall.documents import is_repetition
from recto.recall.indexer import Indexer
from recto.recall.search import Searcher
from recto.recall.stemmer import PorterLexicon
from recto.recall.types import Hit, Query
from recto.stores.memory import MemoryIndex, MemoryStore
from recto.transcript.entries import MESSAGE, Draft, to_json

RECENT = 64_000
"""Characters of the newest messages, which a prompt has anyway."""
SHOWN = 3_000
"""Characters of a message that count as found."""
SHORT = 40
"""Characters below which a request is searched for with the one before it, as in a session."""
_MIN_OLDER = 20
Switch = Callable[[Searcher], None]


def _as_it_is(searcher: Searcher) -> None:
    """Change nothing."""


def _weight(**weights: float) -> Switch:
    def switch(searcher: Searcher) -> None:
        searcher.weights = replace(searcher.weights, **weights)

    return switch


CHATS, BEAM, AGENTS = "LongMemEval", "BEAM", "agents"


@dataclass(frozen=True, slots=True)
class Variant:
    """Recall with one thing switched off: by names of modules, or in the search itself."""

    names: Mapping[tuple[Any, str], object]
    switch: Switch = _as_it_is
    sets: Collection[str] = (CHATS, BEAM, AGENTS)
    """Where it can change anything."""


_DATED = (CHATS,)
"""The other sets have no dates."""
_LONG = (BEAM, AGENTS)
"""Of LongMemEval, short questions are asked about short messages of users, each of which has a vector."""
AS_IT_IS = "recall as it is"
VARIANTS = {
    AS_IT_IS: Variant({}),
    "nothing off for many passages": Variant({(search, "PASSAGE_PENALTY"): 0.0}),
    "rules and preferences of the user count nothing": Variant({}, _weight(standing=0.0)),
    "messages of one form keep their rank": Variant({(_selection, "_SIMILAR_PENALTY"): 0.0}),
    "duplicates stay": Variant({(_selection, "_DUPLICATE_SIMILARITY"): 2.0}),
    "no output comes along with its request": Variant({(_selection, "_MIN_OUTPUT_SHARE"): 10.0**6}, sets=(AGENTS,)),
    "no output comes along with its call or request": Variant(
        {(Selection, "_outputs_of"): lambda self, best: {}}, sets=(AGENTS,)
    ),
    "no words of the request before a short one": Variant({(search, "CONTEXT_WEIGHT"): 0.0}, sets=(AGENTS,)),
    "the first passage of a long question": Variant({(search, "_MAX_QUERY_PASSAGES"): 1}, sets=_LONG),
    "words of an assistant count 1 instead of 0.6": Variant({(search, "ASSISTANT_WEIGHT"): 1.0}, sets=_LONG),
    "words of a message without a vector count 0.3": Variant({}, _weight(words_alone=0.3), (AGENTS,)),
    "corrected statements keep their rank": Variant({}, _weight(superseded=0.0)),
    "corrections are not looked for": Variant({(_selection, "_MAX_CORRECTIONS"): 0}),
    "days count nothing": Variant({}, _weight(date=0.0), _DATED),
    "days propose nothing": Variant({(search, "_by_date"): lambda searched, spans: None}, sets=_DATED),
    "the whole question, not its subject": Variant({(search, "subject_of"): lambda question: question}),
    "50 candidates instead of 200": Variant({(search, "MAX_CANDIDATES"): 50}),
    "vectors 0.5 instead of 0.7": Variant({}, _weight(meaning=0.5)),
    "no vectors": Variant({}, _weight(meaning=0.0)),
    "one vector for a user message": Variant({(indexer, "STATEMENT_CHARACTERS"): 10**6}),
}


def run(quick: bool) -> list[dict]:
    if not DATA.is_dir():
        return [figures("recall_ablation", {"questions": 0}, "the sets are not here")]
    step = 10 if quick else 1
    measured = {CHATS: _chats, BEAM: _beam, AGENTS: _agents}
    found = {
        name: {set_: measure(variant, step) for set_, measure in measured.items() if set_ in variant.sets}
        for name, variant in track(VARIANTS.items(), "ablation", console=progress())
    }
    return [_row(name, of, found[AS_IT_IS]) for name, of in found.items()]


Scores = dict[str, list[float]]
"""What each question came to, by conversation."""


def _row(name: str, of: Mapping[str, Scores], before: Mapping[str, Scores]) -> dict:
    means = {set_: _mean([_mean(some) for some in of[set_].values()]) if set_ in of else None for set_ in before}
    notes = []
    for set_, scores in of.items():
        ours, theirs = ([_mean(some) for some in each.values()] for each in (scores, before[set_]))
        notes.append(f"{set_} {'no effect' if scores == before[set_] else Difference.of(ours, theirs)}")
    return figures(name, means, "" if of is before else "; ".join(notes))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@contextmanager
def _switched(variant: Variant) -> Iterator[None]:
    before = {(module, name): getattr(module, name) for module, name in variant.names}
    for (module, name), value in variant.names.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


@cache
def _searchers(statement: int) -> dict[str, Searcher]:
    """By session of an agent, conversation of BEAM, or empty for all chats; made once for a size of statements."""
    with _switched(Variant({(indexer, "STATEMENT_CHARACTERS"): statement})):
        said = {key(chat.name): [(turn, chat.ts) for _, turn in spoken(chat)] for chat in chats().values()}
        made = {"": searching(said, _embedder())}
        for talk in conversations():
            made[talk.name] = searching({key(talk.name): [(turn, WHEN) for turn in talk.turns]}, _embedder())
        for name, (entries, _) in _sessions().items():
            store, index = MemoryStore(), MemoryIndex()
            words = Indexer(store, index, lexicon=PorterLexicon(), embedder=_embedder(), in_background=False)
            store.append(key(name), [_draft(place, entry) for place, entry in enumerate(entries)])
            words.catch_up(key(name))
            made[name] = Searcher(words)
    return made


@contextmanager
def _searching(variant: Variant, name: str) -> Iterator[Searcher]:
    statement = variant.names.get((indexer, "STATEMENT_CHARACTERS"), indexer.STATEMENT_CHARACTERS)
    searcher = _searchers(statement)[name]
    weights = searcher.weights
    with _switched(variant):
        variant.switch(searcher)
        try:
            yield searcher
        finally:
            searcher.weights = weights


def _hits(searcher: Searcher, query: Query, sessions: Sequence[str], limit: int = 10) -> list[Hit]:
    """What a search returns, without its gate."""
    found = searcher.find(query, sessions)
    chosen = Selection(
        MessageReader(searcher, None),
        found,
        sessions[0],
        superseded_weight=searcher.weights.superseded,
        shown=(),
        hidden=(),
        query=query.text,
        judged={},
    )
    return chosen.hits(limit, own_session_only=False)


def _chats(variant: Variant, step: int) -> Scores:
    turns = {key(chat.name): [(chat.name, place) for place, _ in spoken(chat)] for chat in chats().values()}
    scores: Scores = defaultdict(list)
    with _searching(variant, "") as searcher:
        for asked in [one for one in chat_questions() if one.strict][::step]:
            found = _hits(searcher, Query(text=asked.text, now=asked.ts), list(map(key, asked.haystack)))
            order = [turns[one.session][one.seq - 1] for one in found]
            scores[asked.name].append(recall_all(order, asked.said_by_user, 10))
    return scores


def _beam(variant: Variant, step: int) -> Scores:
    at, scores = BEAM_MEASURES.index("share@10"), defaultdict[str, list[float]](list)
    for talk in conversations()[::step]:
        with _searching(variant, talk.name) as searcher:
            for question in talk.questions:
                found = _hits(searcher, Query(text=question.text, now=WHEN), [key(talk.name)], 40)
                order = list(dict.fromkeys(talk.exchanges[one.seq - 1] for one in found))
                scores[talk.name].append(beam_row(talk, order, question.gold)[at])
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What a user asks an agent for, and what its actions then use of the older history."""

    text: str
    context: str
    """The request before, where this one is short."""
    before: int
    """The entry up to which there is nothing newer than `RECENT`."""
    needed: frozenset[str]


def _agents(variant: Variant, step: int) -> Scores:
    scores: Scores = defaultdict(list)
    for name, (entries, requests) in list(_sessions().items())[::step]:
        texts = [entry_text(entry) for entry in entries]
        with _searching(variant, name) as searcher:
            for request in requests:
                about = {"context": request.context, "before": request.before}
                found = _hits(searcher, Query(text=request.text, now=WHEN, **about), [key(name)])
                shown = "\n".join(texts[one.seq - 1][:SHOWN] for one in found)
                scores[name].append(_mean([one in shown for one in request.needed]))
    return scores


@cache
def _sessions() -> dict[str, tuple[list[SourceEntry], list[_Request]]]:
    found = {}
    for file in sorted(DATA.glob("agent_sessions/*/*.jsonl")):
        with file.open("rb") as stream:
            chunks = iter(lambda stream=stream: stream.read(65_536), b"")
            entries = [entry for entry in read_file(chunks, file.name) if entry.kind == MESSAGE]
        if requests := list(_requests(entries)):
            found[file.stem] = entries, requests
    return found


def _requests(entries: Sequence[SourceEntry]) -> Iterator[_Request]:
    texts = [entry_text(entry) for entry in entries]
    asked = [at for at, entry in enumerate(entries) if _typed(entry) and not is_repetition(to_json(entry.meta))]
    typed = [_typed(entries[at])[:4000] for at in asked]
    for number, (at, end) in enumerate(zip(asked, [*asked[1:], len(entries)], strict=True)):
        first, left = at, RECENT
        while first and len(texts[first - 1]) <= left:
            first -= 1
            left -= len(texts[first])
        if first < _MIN_OLDER:
            continue
        older = "\n".join(
            text for text, one in zip(texts[:first], entries, strict=False) if not is_repetition(to_json(one.meta))
        )
        recent = "\n".join(texts[first : at + 1])
        used = set().union(*(referents(_action(entry)) for entry in entries[at:end]))
        needed = frozenset(name for name in used if name not in recent and name in older)
        if needed:
            text, before = typed[number], typed[number - 1][:600]
            context = before if len(text) < SHORT else ""
            yield _Request(text=text, context=context, before=first, needed=needed)


def _draft(place: int, entry: SourceEntry) -> Draft:
    about = {"role": entry.role, "content": entry.content, "wire": entry.wire, "meta": to_json(entry.meta)}
    return Draft(id=str(place), ts=entry.ts or WHEN, **about)


def _typed(entry: SourceEntry) -> str:
    """What a person typed; empty for results and for others."""
    content = json.loads(entry.content)["content"] if entry.role == "user" else ""
    if isinstance(content, str):
        return content.strip()
    if any(block["type"] == "tool_result" for block in content):
        return ""
    return "\n".join(block.get("text", "") for block in content if block["type"] == "text").strip()


def _action(entry: SourceEntry) -> str:
    return action_of(entry.content) if entry.role == "assistant" else ""


@cache
def _embedder() -> Any:  # noqa: ANN401
    return embedder()
