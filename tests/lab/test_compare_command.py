"""Compares a session in several modes and windows by the contents of its prompts."""

from __future__ import annotations

import json

import pytest
from tests.cli.calling import called, called_at

import recto
from recto.config import Settings
from recto.context.facts.types import Fact
from recto.formats.session_files import read_file
from recto.lab.comparison import EXAMINED, MEASURES, Recording, compare, contains, retention, statement_of
from recto.lab.variants import variants
from recto.stores.memory import MemoryStore
from recto.testing import scripted_session
from recto.transcript.entries import MESSAGE

WAYS = ["trim", "sliding_window", "auto_compact", "zones"]
PORTS = ("The billing server listens on port 8731.", "No, that was wrong: it listens on port 8744, not on 8731.")


def session_messages(exchanges=8):
    """Returns a session whose second and third user messages are a statement and its correction."""
    messages = list(scripted_session(exchanges=exchanges))
    start = next(place for place, message in enumerate(messages) if message["role"] == "user" and place > 1)
    port_messages = [
        {"role": role, "content": text} for port in PORTS for role, text in (("user", port), ("assistant", "Noted."))
    ]
    return [*messages[:start], *port_messages, *messages[start:]]


def entries_of(messages):
    with recto.open(MemoryStore(), model="gpt-4o", recall={"enabled": False}) as session:
        session.append_all(messages)
        return [entry for entry in session.read() if entry.kind == MESSAGE]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("compared")
    (home / "chat.json").write_text(json.dumps(session_messages()))
    return home


@pytest.fixture(scope="module")
def result(home):
    given = ("lab", "compare", "chat.json", "--window", "4k", "--model", "gpt-4o", "--json")
    return json.loads(called_at(home, *given))


@pytest.mark.requirement("compare.measures")
def test_four_variants_are_compared_by_the_named_and_defined_measures(result):
    assert [row["way"] for row in result["ways"]] == WAYS
    assert set(result["measures"]) == set(MEASURES)
    titles = [measure["title"] for measure in result["measures"].values()]
    for title in ("factual retention", "source traceability", "correction retention", "explainability"):
        assert title in titles
    for row in result["ways"]:
        assert row["evicted"] > 0
        for name in MEASURES:
            assert 0 <= row[name]["part"] <= row[name]["of"]


@pytest.mark.requirement("compare.measures")
def test_trimming_retains_least_without_explanation_and_recto_explains_everything_and_invents_nothing(result):
    trim, *ways = result["ways"]
    assert (trim["explained"]["value"], trim["traceable"]["value"], trim["invented"]["value"]) == (0, None, None)
    assert trim["corrections"]["value"] < 1
    for row in ways:
        assert row["explained"]["value"] == 1
        assert row["invented"]["value"] == 0
        assert row["facts"]["value"] > trim["facts"]["value"]
        assert row["corrections"]["value"] == 1
        assert row["traceable"]["of"] > 0


@pytest.mark.requirement("compare.measures")
def test_the_text_output_has_a_table_per_window_with_only_the_selected_variants(home):
    shown = called_at(home, "lab", "compare", "chat.json", "--window", "4k", "--window", "8k", "--mode", "trim")
    assert "4,000" in shown
    assert "8,000" in shown
    assert "sliding_window" not in shown
    assert "hallucinated continuity: Of those lines" in shown


def test_a_session_of_the_store_is_compared_and_nothing_is_written_to_it(tmp_path):
    store = tmp_path / "a.db"
    with recto.open(store, model="gpt-4o") as session:
        session.append_all(session_messages(exchanges=3))
        before = len(session)
    given = (
        "--store",
        str(store),
        "lab",
        "compare",
        "agent:default:main",
        "--window",
        "4k",
        "--mode",
        "sliding_window",
    )
    shown = called(*given, "--json")
    assert [row["way"] for row in json.loads(shown.stdout)["ways"]] == ["sliding_window"]
    with recto.open(store, model="gpt-4o") as session:
        assert len(session) == before
    assert called("--store", str(store), "lab", "compare", "agent:nobody:main").returncode != 0


def test_a_correction_counts_if_present_and_an_outdated_statement_if_it_is_alone():
    wrong = Fact(kind="circumstance", text="It listens on port 8731", seq=1, role="user", open=False, superseded_by=3)
    right = Fact(kind="correction", text="No, it listens on port 8744", seq=3, role="user")
    for text, corrections, outdated in (
        ("it listens on port 8731", 0, 1),
        ("It listens on port 8731. No, it listens on port 8744!", 1, 0),
        ("no, it listens on  port 8744", 1, 0),
        ("nothing of it", 0, 0),
    ):
        shares, lacking, found = retention([wrong, right], text)
        assert (shares["corrections"].part, shares["corrections"].total, found) == (corrections, 1, outdated)
        assert lacking == (() if corrections else (right,))


def test_invented_names_and_numbers_are_found():
    recording = Recording(entries_of(session_messages()))
    known = recording.known_before(recording.entries[-1].seq)
    assert known.supports("The server listens on port 8744")
    assert not known.supports("The server listens on port 9999")
    assert not known.has("src/invented.py")
    assert len(recording.examined) == EXAMINED


@pytest.mark.parametrize(
    ("line", "statement"),
    [
        ("- Never touch migrations/. (12)", "Never touch migrations/."),
        ("- src: app.py (edited, 40), b.py (7 to 9)", "src: app.py, b.py"),
        ("- not begun: Run the tests (3)", "Run the tests"),
        ("- pytest -q tests/very_lo … ng/test_a.py -x → ok (8)", "pytest -q   -x"),
    ],
)
def test_a_statement_is_a_line_without_its_frame(line, statement):
    assert statement_of(line).split() == statement.split()


def test_a_source_contains_a_statement_with_all_its_numbers_and_most_of_its_words():
    source = "The billing server listens on port 8731, behind nginx."
    assert contains(source, "billing server listens on port 8731")
    assert not contains(source, "billing server listens on port 8732")
    assert not contains(source, "nothing of these words occurs there except port 8731")


@pytest.mark.requirement("compare.measures")
def test_a_real_session_is_compared(data):
    file = sorted(data.glob("agent_sessions/*/*.jsonl"), key=lambda file: file.stat().st_size)[3]
    with file.open("rb") as stream:
        entries = [entry for entry in read_file(stream, file.name) if entry.kind == MESSAGE][:120]
    with recto.open(MemoryStore(), model="gpt-4o", recall={"enabled": False}) as session:
        for entry in entries:
            session.append_all([entry.content], wire=entry.wire)
        entries = [entry for entry in session.read() if entry.kind == MESSAGE]
    ways = variants(Settings(), model="gpt-4o", window=16_000, against="trim")
    measured = compare(entries, ways)
    assert [result.way for result in measured] == WAYS
    for result in measured[1:]:
        assert result.shares["explained"].value in (None, 1)
        assert not result.shares["invented"].value
