"""Measures the bundled embedder: latency by text length, resident memory, and recall quality by CPU time.
Latency is measured on made-up texts of 20 to 500 tokens. Quality compares rules for which passages get vectors, and
search by words alone: the CPU time of an agent's turn under each rule, and how often the evidence for the questions of
LongMemEval and BEAM, two public data sets, is found.

Vectors are kept between runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.progress import track

from bench.measure import figures, percentile, progress, row, seconds
from bench.recall import BEAM_MEASURES, WHEN, beam_row, draft, embedder, key, ranked_exchanges, ranked_sessions, spoken
from bench.recall_data import DATA, ChatQuestion, Conversation, Turn, chat_questions, chats, conversations, recall_all
from bench.turns import exchanges
from recto import open as open_session
from recto.models import weights
from recto.models.embedders import ARCTIC, EmbedderChoice, embedder_for
from recto.recall.indexer import EmbeddingRules, Indexer
from recto.recall.search import Searcher
from recto.recall.stemmer import PorterLexicon
from recto.recall.types import Query
from recto.stores.memory import MemoryIndex, MemoryStore

LENGTHS = (20, 60, 200, 500)
TEXT = "the ledger is written before the queue is told so that a crash between the two loses nothing of it"


def run(quick: bool) -> list[dict]:
    if weights.find(ARCTIC) is None:
        return [row("arctic", 0, "", f"its weights are not here: recto models get {ARCTIC}")]
    before = resident_mb()
    embedder = embedder_for(EmbedderChoice(use="arctic"))
    first = seconds(partial(embedder.query, "a"))
    rows = [row("arctic: first text", first * 1e3, "ms", "with loading", 1)]
    for length in LENGTHS:
        times = [seconds(partial(embedder.documents, [text])) for text in texts(length, 5 if quick else 40)]
        rows.append(row(f"arctic: text of {length} tokens, p50", percentile(times, 0.5) * 1e3, "ms", "", 2))
    rows.append(row("arctic: resident memory", resident_mb() - before, "MB", "added to the process"))
    return rows


def texts(tokens: int, count: int) -> list[str]:
    """Texts of so many tokens, each word of which is one; two more stand at the ends of every text."""
    words = TEXT.split()
    return [" ".join(words[(start + place) % len(words)] for place in range(tokens - 2)) for start in range(count)]


def resident_mb() -> float:
    """What the process holds in memory now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


RULES: Mapping[str, EmbeddingRules | None] = {
    "words alone": None,
    "everything: 6 passages, tool results": EmbeddingRules(passages=6, characters=1000, tool_results=True),
    "6 passages": EmbeddingRules(passages=6, characters=1000),
    "first passage": EmbeddingRules(characters=1000),
    "first 512 characters (default)": EmbeddingRules(),
}
TURNS = 8


def quality(quick: bool) -> list[dict]:
    """Recall at 10 against the CPU time of a turn, rule by rule."""
    if not DATA.is_dir() or weights.find(ARCTIC) is None:
        return [figures("embedding rules", {"questions": 0}, "the sets or the weights are not here")]
    talks, asked = conversations()[:: 10 if quick else 1], chat_questions()[:: 10 if quick else 1]
    rows = []
    for name, rules in RULES.items():
        found = {"CPU of a turn, s": cost_of_a_turn(rules, 1 if quick else TURNS)}
        found["BEAM share@10"] = _mean(
            [score for talk in track(talks, name, console=progress()) for score in _beam(talk, rules)]
        )
        found |= _chats(asked, rules, name)
        rows.append(figures(name, found))
    return rows


def cost_of_a_turn(rules: EmbeddingRules | None, turns: int) -> float:
    """CPU seconds that the vectors of an agent's turn cost: about 7 messages, half of them tool results."""
    if rules is None:
        return 0.0
    usual = embedder_for(EmbedderChoice(use="arctic"))
    usual.query("a")
    spent = 0.0
    for exchange in list(exchanges(turns)):
        with open_session("memory:", model="gpt-4o", recall={"embedder": {"use": "none"}}) as session:
            for message in exchange:
                session.append(message)
            passages = [piece for entry in session.read() for piece in rules.passages_of(entry)]
        start = time.thread_time()
        usual.documents(passages)
        spent += time.thread_time() - start
    return spent / turns


def _searching(sessions: Mapping[str, Sequence[Turn]], rules: EmbeddingRules | None) -> Searcher:
    store, meaning = MemoryStore(), embedder() if rules is not None else None
    lexicon = PorterLexicon()
    indexer = Indexer(store, MemoryIndex(), lexicon=lexicon, embedder=meaning, in_background=False, embedding=rules)
    for session, turns in sessions.items():
        store.append(session, [draft(f"{session}-{place}", turn, WHEN) for place, turn in enumerate(turns)])
        indexer.catch_up(session)
    return Searcher(indexer)


def _beam(talk: Conversation, rules: EmbeddingRules | None) -> list[float]:
    session, at = key(talk.name), BEAM_MEASURES.index("share@10")
    searcher = _searching({session: talk.turns}, rules)
    scores = []
    for question in talk.questions:
        ranking = searcher.find(Query(text=question.text, now=WHEN), [session])
        order = [exchange - 1 for _, exchange in ranked_exchanges(ranking)]
        scores.append(beam_row(talk, order, question.gold)[at])
    return scores


def _chats(asked: Sequence[ChatQuestion], rules: EmbeddingRules | None, name: str) -> dict[str, float]:
    said = {key(chat.name): [(chat.name, place, turn) for place, turn in spoken(chat)] for chat in chats().values()}
    searcher = _searching({session: [turn for *_, turn in turns] for session, turns in said.items()}, rules)
    sessions, turns = [], []
    for question in track([one for one in asked if one.strict], f"LongMemEval, {name}", console=progress()):
        ranking = searcher.find(Query(text=question.text, now=WHEN), [key(one) for one in question.haystack])
        order = [said[session][0][0] for session, _ in ranked_sessions(ranking)[:10]]
        sessions.append(recall_all(order, question.sessions, 10))
        turns.append(
            recall_all([said[one.session][one.seq - 1][:2] for one in ranking.best(10)], question.said_by_user, 10)
        )
    return {"LME session all@10": _mean(sessions), "LME turn all@10": _mean(turns)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
