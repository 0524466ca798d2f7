"""A very large session opens in every view: the page stays responsive and keeps only a small part in its document."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle, islice

import pytest
from playwright.sync_api import Page, expect
from tests.conftest import SCALE
from tests.web.browsing import DEADLINE
from tests.web.conftest import VisitFactory
from tests.web.worlds import SETTINGS, World, world

import recto
from recto.config import load
from recto.config.factory import open_store
from recto.formats import detect
from recto.testing import scripted_session
from recto.transcript.entries import Draft, to_json

pytestmark = pytest.mark.promise
LARGE = "agent:default:large"
ENTRIES = {"small": 8_000, "ci": 100_000, "release": 100_000}[SCALE]
BATCH = 2_000
MOST_NODES = 5_000
VIEWS = ("Window", "Chat", "Transcript", "Decisions", "Compare", "Budget", "Health", "Recall")
UNINDEXED = {"recall": {"enabled": False}}
"""Indexing so many entries would cost more than everything that is tested here."""


def drafts() -> Iterator[Draft]:
    """Messages of a scripted session, repeated, as an import stores them."""
    messages = [(message["role"], to_json(message)) for message in islice(scripted_session(exchanges=40), 1, None)]
    for number, (role, raw) in enumerate(cycle(messages)):
        counted = {"tokens": len(raw) // 4, "counter": "estimate"}
        yield Draft(id=uuid.uuid4().hex, ts=number, role=role, content=raw, wire=detect(raw), **counted)


@pytest.fixture(scope="module")
def large_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway over a store with one large session, whose last turns were appended message by message."""
    folder = tmp_path_factory.mktemp("large")
    made = drafts()
    store = str(folder / "transcript.db")
    with closing(open_store(load(environ={}, arguments={"store": store}))) as opened:
        for _ in range(ENTRIES // BATCH):
            opened.append(LARGE, list(islice(made, BATCH)))
    with recto.open(store, session=LARGE, **{**SETTINGS, **UNINDEXED}) as session:
        for message in islice(scripted_session(seed=8, exchanges=6), 1, None):
            session.append(message)
            if message["role"] == "user":
                session.prompt()
    with world(folder, **UNINDEXED) as running:
        yield running


def assert_responsive(page: Page) -> None:
    """Asserts that the page evaluates scripts and its document has not grown with the session."""
    assert page.evaluate("1 + 1") == 2
    assert page.evaluate("document.querySelectorAll('*').length") < MOST_NODES


def test_a_large_session_opens_in_every_view(open_visit: VisitFactory, large_world: World):
    with open_visit(large_world.url) as visit:
        page = visit.enter(large_world.key, "chat", LARGE)
        for title in VIEWS:
            visit.view(title)
            assert_responsive(page)
            expect(page.locator(".waiting")).to_have_count(0, timeout=4 * DEADLINE)
            assert_responsive(page)


def test_a_large_transcript_supports_search_and_jump_without_loading_all_of_it(
    open_visit: VisitFactory, large_world: World
):
    with open_visit(large_world.url) as visit:
        page = visit.enter(large_world.key, "transcript", LARGE)
        entries = page.get_by_role("list", name="Entries")
        page.get_by_label("Go to entry").fill(str(ENTRIES // 2))
        page.get_by_role("button", name="Go", exact=True).click()
        expect(entries.get_by_role("listitem", name=f"Entry {ENTRIES // 2}", exact=True)).to_be_visible()
        assert_responsive(page)
        page.get_by_label("Search the transcript").fill("no entry says this")
        page.get_by_role("button", name="Search", exact=True).click()
        expect(page.get_by_text("No entry says that.")).to_be_visible(timeout=4 * DEADLINE)
        assert_responsive(page)
