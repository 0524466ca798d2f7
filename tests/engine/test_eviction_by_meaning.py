"""Eviction by embeddings: messages related to the goal stay, and paraphrases are merged."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spelling import SpellingEmbedder

from recto.config import load
from recto.config.factory import open_session
from recto.context.window.state import seqs_in
from recto.errors import EmbedderFailed
from recto.formats import problems
from recto.models import weights
from recto.models.embedders import EmbedderChoice, embedder_for
from recto.stores.memory import MemoryStore

TASK = "Prepare the release of the billing service for the customers in Norway."
UNIQUE = [
    "The tax authority wants the VAT number printed on the first page of each invoice.",
    "Oslo asked for receipts that can be read aloud by a screen reader for blind people.",
    "Our translator is ill until Thursday, so the Norwegian texts come later than planned.",
]
REPEATED = {
    "The nightly export fails because the disk of the build server is full. It has been like this for days, no one "
    "cleans up the old artefacts, and everyone who needs the figures in the morning has to start the export by hand, "
    "which takes most of an hour and often goes wrong. We want old artefacts to be deleted before the export begins.": (
        "For days our server that runs builds has had no free disk space, so the export at night keeps breaking. Old "
        "artefacts are never removed. Whoever wants the figures in the morning must run the export manually; that "
        "costs almost an hour and frequently fails. Please have old artefacts deleted before the export starts."
    ),
    "We agreed that the release is postponed until the security review is finished, whatever sales people say. The "
    "reviewers found that sessions do not expire, and they want to see the fix before it goes to customers. Until "
    "then only the test system gets new versions, and the changelog stays closed.": (
        "As was decided, the release waits for the end of the security review, no matter what people in sales say. The "
        "review showed that sessions never expire, and the reviewers must see that fixed before customers get any. "
        "Meanwhile new versions go to the test system only, and the changelog stays closed."
    ),
    "The customer wants the refund on the credit card and not as a voucher, and will not accept any other way. It "
    "was paid twice because the payment page hung, and support promised the money within a week. If that fails, the "
    "customer moves to a competitor, and with it the largest contract that we have in the north.": (
        "About the refund: the client insists on money back to the credit card; a voucher or anything else is refused. "
        "The payment page hung and so the order was paid two times; support promised to return the money in a week. If "
        "we do not, this customer leaves for a competitor, and our largest contract in the north goes with it."
    ),
}
SUBJECTS = """
    harbour glacier violin orchard satellite volcano library compass bakery telescope saffron lighthouse canyon
    microscope festival aquarium quarry meadow submarine cathedral windmill tapestry beehive locomotive pottery chess
    falcon marathon opera tundra origami geyser sailing papyrus accordion cactus
""".split()  # noqa: SIM905
SYNONYMS = SpellingEmbedder(means=dict(REPEATED))
ANSWER = "Noted."
TIGHT: dict[str, int] = {"window": 1_850, "ceiling_percent": 98, "floor_percent": 95, "record_percent": 0}
"""A window in which merging alone frees enough."""


@pytest.fixture(params=["spelling", "arctic"])
def embedder(request):
    """A fake embedder that maps each paraphrase to its original, and the real embedding model."""
    if request.param == "spelling":
        return SYNONYMS
    if weights.find("arctic-embed-s") is None:
        pytest.skip("the weights are not here; 'make weights' fetches them")
    return embedder_for(EmbedderChoice(use="arctic"))


def opened(store, embedder, *, policy="semantic_merge", window=3_000, scorer=None, **more):
    settings = load(
        arguments={
            "model": "gpt-4o",
            "models": {"gpt-4o": {"window": window, "max_input": window}},
            "window": {"policy": policy, "scorer": scorer or {}, "min_recent_messages": 4, "reserve": 200} | more,
            "recall": {"inject": False, "background": False} | ({} if embedder else {"embedder": {"use": "none"}}),
        }
    )
    return open_session(settings, store, embedder=embedder)


def say(session, *texts):
    for text in texts:
        session.append({"role": "user", "content": text})
        session.append({"role": "assistant", "content": ANSWER})


def chatter(number):
    """Returns unrelated texts."""
    rng = random.Random(7)
    words = [rng.sample(SUBJECTS, 6) for _ in range(number)]
    return ["Then {} and {}, near {} with {}; after {}, only {}.".format(*some) for some in words]


def talk(session):
    """Appends statements, paraphrases of some of them, and enough other text to fill the window."""
    say(session, TASK, *UNIQUE, *REPEATED, *chatter(24), *REPEATED.values(), *chatter(27)[24:])
    session.append({"role": "user", "content": "What is next?"})


def embed(session):
    session.window.recall_engine.indexer.catch_up(session.key)


def decisions(session, kind):
    return [(entry.seq, json.loads(entry.content)) for entry in session.read() if entry.kind == kind]


def shown(prompt):
    return [str(message["content"]) for message in prompt.messages]


@pytest.mark.requirement("evict.merge")
def test_paraphrases_are_merged_into_the_newer_message_and_nothing_else_is_evicted(embedder):
    with opened(MemoryStore(), embedder, **TIGHT) as session:
        talk(session)
        embed(session)
        seq_of = {json.loads(entry.content)["content"]: entry.seq for entry in session.read()}
        texts = shown(session.prompt())
        [(_, merged)] = decisions(session, "units_merged")
        assert [(unit["first"], unit["ranges"], unit["kept"]) for unit in merged["merged"]] == [
            (seq_of[before], [[seq_of[before], seq_of[before] + 1]], seq_of[after])
            for before, after in REPEATED.items()
        ]
        assert not decisions(session, "units_evicted")
        assert {TASK, *UNIQUE, *REPEATED.values()} <= set(texts)
        assert not set(REPEATED) & set(texts)
        marker = next(text for text in texts if "earlier messages" in text)
        for before, after in REPEATED.items():
            assert f"- {seq_of[before]}-{seq_of[before] + 1}: as {seq_of[after]}, “{after[:40]}" in marker


@pytest.mark.requirement("evict.merge")
def test_without_an_embedder_the_oldest_are_evicted_and_paraphrases_are_not_merged():
    with opened(MemoryStore(), None, **TIGHT) as session:
        talk(session)
        texts = shown(session.prompt())
        assert not decisions(session, "units_merged")
        assert not set(UNIQUE) & set(texts)


@pytest.mark.requirement("evict.merge")
def test_eviction_after_merging_is_a_decision_of_its_own():
    with opened(MemoryStore(), SYNONYMS, window=2_400, ceiling_percent=80, floor_percent=60) as session:
        talk(session)
        embed(session)
        prompt = session.prompt()
        [(merging, merged)], [(_, evicted)] = decisions(session, "units_merged"), decisions(session, "units_evicted")
        assert not set(seqs_in(merged["left"])) & set(seqs_in(evicted["left"]))
        assert merged["frees"] + evicted["frees"] == sum(
            entry.tokens
            for entry in session.read()
            if entry.seq in {*seqs_in(merged["left"]), *seqs_in(evicted["left"])}
        )
        assert prompt.tokens < merged["tokens_before"]
        session.restore(merging)
        texts = shown(session.prompt())
        assert set(REPEATED) <= set(texts)
        assert not any("said again below" in text for text in texts)


@pytest.mark.requirement("evict.merge")
def test_a_merge_survives_a_restart_and_can_be_undone_and_redone():
    store = MemoryStore()
    with opened(store, SYNONYMS, **TIGHT) as session:
        talk(session)
        before = session.window.state.messages.keys() - set()
        embed(session)
        prompt = session.prompt()
        session.window.pin([1])  # takes a snapshot
    with opened(store, SYNONYMS, **TIGHT) as session:
        assert session.prompt().raw == prompt.raw
        [(decision, _)] = decisions(session, "units_merged")
        restored = session.restore(decision)
        assert session.window.state.messages.keys() == before
        assert session.window.state.merged == ()
        session.redo(restored.seq)
        assert session.prompt().raw == prompt.raw


@pytest.mark.requirement("evict.merge")
def test_a_merge_target_passes_its_units_on_and_drops_their_lines_when_evicted():
    from recto.context.window.state import WindowState
    from recto.context.window.units import MergedUnit, WindowMessage
    from recto.engine.prompt_builder import render_marker

    state = WindowState.of([WindowMessage(seq=seq, id=str(seq), role="user", tokens=50) for seq in range(1, 6)])

    def merge(first, into):
        state.evict([first])
        state.merge([MergedUnit(first=first, ranges=((first, first),), kept=into, digest=f"text {into}")], first + 10)

    merge(1, 2)
    assert "- 1: as 2, “text 2”" in render_marker(state)
    merge(2, 4)
    assert "- 1-2: as 4, “text 4”" in render_marker(state)
    merged = replace(state)
    state.evict([4])
    assert "said again" not in render_marker(state)
    merged.forget_merges(12)
    merged.restore([WindowMessage(seq=2, id="2", role="user", tokens=50)])
    assert "- 1: as 2, “text 2”" in render_marker(merged)


@pytest.mark.requirement("evict.relevance")
def test_messages_related_to_the_goal_stay_even_without_shared_words(embedder):
    related = [
        "Parcels to Bergen are weighed by the courier and billed by the kilogram.",
        "Fjord ferries carry our freight twice a week in winter.",
    ]
    goal = "Work out what shipping goods to the Norwegian coast costs us."
    if isinstance(embedder, SpellingEmbedder):
        embedder = SpellingEmbedder(means=dict.fromkeys(related, goal))

    def remaining(by) -> set[str]:
        scorer = {"recency": 0.2, "relevance": 1.0, "source": 0, "reuse": 0, "mark": 0}
        with opened(MemoryStore(), by, policy="priority", scorer=scorer, window=800, floor_percent=50) as session:
            say(session, goal, *related, *chatter(20))
            session.append({"role": "user", "content": "What is next?"})
            if by is not None:
                embed(session)
            return set(shown(session.prompt())) & set(related)

    assert remaining(embedder) == set(related)
    assert remaining(None) == set()


class Counting(SpellingEmbedder):
    """Records the texts it embeds."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "embedded", [])

    __slots__ = ("embedded",)

    def documents(self, texts):
        self.embedded.extend(texts)
        return super().documents(texts)


@pytest.mark.requirement("evict.relevance")
@pytest.mark.parametrize(("policy", "expected"), [("prune", []), ("lru", []), ("priority", [TASK]), ("hybrid", [TASK])])
def test_a_plan_embeds_at_most_the_goal_once(policy, expected):
    counting = Counting()
    with opened(MemoryStore(), counting, policy=policy, window=1_000) as session:
        say(session, TASK)
        for texts in (chatter(24), [f"{text} Indeed." for text in chatter(24)]):
            say(session, *texts)
            session.append({"role": "user", "content": "What is next?"})
            embed(session)
            counting.embedded.clear()
            assert session.prompt().decisions
            assert counting.embedded == expected
            expected = []  # the second relief has it cached


class Broken(SpellingEmbedder):
    """Fails to embed any query."""

    __slots__ = ()

    def query(self, text):
        raise EmbedderFailed(self.name, "it is down")


@pytest.mark.requirement("evict.relevance")
def test_relevance_falls_back_to_words_if_the_embedder_is_down():
    with opened(MemoryStore(), Broken(), policy="priority", window=1_000) as session:
        say(session, TASK, *chatter(24))
        embed(session)
        session.append({"role": "user", "content": "What is next?"})
        assert session.prompt().decisions


FORMATS = ["openai.chat", "anthropic.messages", "openai.responses", "google.gemini"]


@pytest.mark.requirement("evict.merge")
@settings(max_examples=25)
@given(
    order=st.lists(st.sampled_from([*REPEATED, *REPEATED.values(), *UNIQUE, *chatter(10)]), min_size=20, max_size=60),
    wire=st.sampled_from(FORMATS),
    window=st.integers(900, 2_500),
)
def test_merged_prompts_are_valid_smaller_and_the_same_every_time(order, wire, window):
    def run(store):
        with opened(store, SYNONYMS, window=window, min_recent_messages=2) as session:
            prompts = []
            say(session, TASK)
            for text in order:
                session.append({"role": "user", "content": text})
                embed(session)
                prompt = session.prompt(wire=wire)
                assert prompt.tokens <= session.window.budget.input_budget
                assert problems(prompt.raw, prompt.built.wire) == []
                for entry in prompt.decisions:
                    decision = json.loads(entry.content)
                    assert decision["tokens_after"] < decision["tokens_before"]
                prompts.append(prompt.raw)
                session.append({"role": "assistant", "content": ANSWER})
            remaining = session.window.state.messages.keys()
            for _, decision in decisions(session, "units_merged"):
                evicted = set(seqs_in(decision["left"]))
                assert evicted == {seq for unit in decision["merged"] for seq in seqs_in(unit["ranges"])}
                assert all(unit["kept"] > max(seqs_in(unit["ranges"])) for unit in decision["merged"])
            assert all(into in remaining for into in session.window.state.merged_into())
            return prompts, session.window.state

    store = MemoryStore()
    prompts, state = run(store)
    assert run(MemoryStore())[0] == prompts
    with opened(store, SYNONYMS, window=window, min_recent_messages=2) as session:
        assert session.window.state == state
