"""`recto lab mine`: the cost and loss of a smaller window in the user's own sessions, without showing their content."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.cli.calling import called, called_at
from tests.hostile_texts import MARKUP
from tests.lab.test_compare_command import entries_of, session_messages
from tests.lab.test_html_report import WORDS_OF_ELEMENTS, WORDS_OF_PAGES, Looked

import recto
from recto.config import Settings
from recto.lab.backtest import Backtest
from recto.lab.commands._mine_page import lost_statements, mine_page
from recto.lab.comparison import MEASURES, Share, WayMeasures, compare
from recto.lab.own_sessions import WayResult, WindowResult, sum_windows
from recto.lab.results import Way
from recto.lab.variants import MODES, variants
from recto.text.unicode import one_line

COMMAND = ("lab", "mine", "secret_plan.json", "--window", "4k", "--model", "gpt-4o")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("mine")
    (home / "secret_plan.json").write_text(json.dumps(session_messages()))
    return home


@pytest.fixture(scope="module")
def result(home):
    return json.loads(called_at(home, *COMMAND, "--json"))


def test_every_mode_shows_its_cost_and_losses_next_to_the_whole_history(result):
    (window,) = result["windows"]
    assert [row["way"] for row in window["ways"]] == list(MODES)
    assert window["fits"] in MODES
    assert (window["sessions"], window["fitting"]) == (1, 0)
    for row in window["ways"]:
        assert row["tokens"] < window["whole"]["tokens"]
        assert 0 <= row["survival"] <= 1
        assert 0 < row["dollars"] < window["whole"]["dollars"]
        assert set(MEASURES) < set(row)
    assert "sessions" not in result


def test_nothing_of_the_content_is_shown_unless_requested(home, result):
    shown = called_at(home, *COMMAND, "--html", "mine.html")
    page = (home / "mine.html").read_text()
    for text in (shown, page, json.dumps(result)):
        for content in ("secret_plan", "8731", "8744", "billing"):
            assert content not in text
    looked = Looked(page)
    assert looked.open == []
    assert looked.elements <= set(WORDS_OF_PAGES.split())
    assert looked.attributes <= set(WORDS_OF_ELEMENTS.split())
    assert page.count("<svg") > 2
    assert "fits: " in shown


def test_with_content_sessions_are_named(home):
    command = (*COMMAND, "--mode", "sliding_window", "--with-content")
    assert [row["session"] for row in json.loads(called_at(home, *command, "--json"))["sessions"]] == [
        "secret_plan.json"
    ]
    assert "secret_plan.json, window of 4,000" in called_at(home, *command, "--html", "named.html")
    assert "secret_plan.json" in (home / "named.html").read_text()


def test_statements_that_are_not_in_the_last_prompt_are_collected():
    ways = variants(Settings(), model="gpt-4o", window=4_000, modes=["sliding_window"], against="trim")
    trimmed, sliding = compare(entries_of(session_messages()), ways)
    assert len(trimmed.lacking) > len(sliding.lacking)
    assert (trimmed + sliding).lacking == (*trimmed.lacking, *sliding.lacking)


def test_without_arguments_the_longest_stored_sessions_are_used_and_nothing_is_written(tmp_path):
    store = tmp_path / "a.db"
    lengths = {}
    for name, exchanges in (("agent:me:long", 3), ("agent:me:short", 2)):
        with recto.open(store, session=name, model="gpt-4o") as session:
            session.append_all(session_messages(exchanges))
            lengths[name] = len(session)
    command = ("--store", str(store), "lab", "mine", "--most", "1", "--window", "4k", "--mode", "zones")
    shown = called(*command, "--with-content", "--json")
    assert [row["session"] for row in json.loads(shown.stdout)["sessions"]] == ["agent:me:long"]
    for name, length in lengths.items():
        with recto.open(store, session=name, model="gpt-4o") as session:
            assert len(session) == length


def test_an_empty_store_prints_a_hint(tmp_path):
    with recto.open(tmp_path / "a.db", model="gpt-4o"):
        pass
    shown = called("--store", str(tmp_path / "a.db"), "lab", "mine", "--html", str(tmp_path / "a.html"))
    assert "recto import" in shown.stdout
    assert "There was no session" in (tmp_path / "a.html").read_text()


def way(name, *, tokens=100, refused=0, survival=100, facts=100):
    return WayResult(
        way=Way(name=name, mode=name),
        result=Backtest(
            turns=1, tokens=tokens, refused=refused, picodollars=None, entities_used=100, entities_there=survival
        ),
        measures=WayMeasures(way=name, window=4_000, shares={"facts": Share(facts, 100)}, lacking=(MARKUP[3],)),
    )


def window_of(*ways):
    return WindowResult(window=4_000, sessions=1, fitting=0, whole=Backtest(tokens=1_000, picodollars=None), ways=ways)


@pytest.mark.parametrize(
    ("ways", "fits"),
    [
        ([way("a", tokens=200), way("b", tokens=100)], "b"),
        ([way("a", tokens=200), way("b", tokens=100, survival=98)], "a"),
        ([way("a", tokens=200), way("b", tokens=100, survival=99)], "b"),
        ([way("a", tokens=200), way("b", tokens=100, facts=97)], "a"),
        ([way("a", tokens=200), way("b", tokens=100, refused=1)], "a"),
        ([way("a", refused=1)], None),
    ],
)
def test_the_recommended_mode_is_the_cheapest_of_those_with_the_least_loss(ways, fits):
    best = window_of(*ways).best
    assert (best.way.name if best else None) == fits


def test_sessions_add_up_by_window():
    window = window_of(way("a"), way("b"))
    (total,) = sum_windows([window, replace(window, fitting=1)])
    assert (total.sessions, total.fitting, total.whole.tokens) == (2, 1, 2_000)
    assert [way.result.tokens for way in total.ways] == [200, 200]
    assert total.ways[0].measures.shares["facts"] == Share(200, 200)


def test_content_on_the_page_is_text():
    result = window_of(way("a"))
    page = mine_page([result], [(MARKUP[3], result)], model=MARKUP[3])
    looked = Looked(page)
    assert looked.elements <= set(WORDS_OF_PAGES.split())
    assert looked.open == []
    assert lost_statements(result) == [MARKUP[3]]
    assert looked.words.count(one_line(MARKUP[3], 300)) >= 1
