"""The layout of a summary: the most important first, within its tokens, and safe against injected text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.context.compaction.layout import (
    FOOTER,
    LayoutShares,
    append_names,
    bullet,
    favor_facts,
    fill_layout,
    header,
    lay_out,
)
from recto.context.facts.types import Fact, WorkedFile
from recto.context.window.state import Note, Summary, SummaryPart, limit_notes, render_notes
from recto.continuity.checkpoints.builder import checkpoint_of
from recto.continuity.checkpoints.handoff import handoff_of
from recto.tokens.meter import plain_estimate as count

POINTER = "recto://agent:default:main/N"
TEXT = st.text(max_size=300)


def fact(text, kind="constraint", seq=7, **more):
    return Fact(kind=kind, text=text, seq=seq, role="user", **more)


facts = st.lists(st.builds(fact, TEXT, st.sampled_from(["constraint", "decision", "error", "question"])), max_size=12)
parts = st.lists(
    st.builds(lambda text: SummaryPart(first=1, last=9, level="title", turn=1, text=bullet(text)), TEXT), max_size=6
)


@given(known=facts, earlier=parts, happened=st.lists(TEXT, max_size=20), most=st.integers(150, 2_000))
def test_a_layout_stays_within_its_tokens_and_has_a_complete_frame(known, earlier, happened, most):
    layout = lay_out(known, (), earlier, pointer=POINTER, max_tokens=most, count=count)
    text = fill_layout(layout, [bullet(line) for line in happened], most, count)
    assert count(text) <= most
    assert text.startswith(header(POINTER))
    assert text.endswith(FOOTER)


@given(text=st.text(min_size=1, max_size=400))
def test_no_quoted_line_can_pass_for_the_frame(text):
    line = bullet(text)
    assert line.startswith("- ")
    assert len(line.splitlines()) <= 1
    assert "\x1b" not in line
    assert "<|" not in line


def test_constraints_come_before_questions_if_both_do_not_fit():
    known = [fact("Which port shall it be, and why that one?", "question"), fact("Never touch migrations/.")]
    layout = lay_out(
        known,
        (),
        (),
        pointer=POINTER,
        max_tokens=count(header(POINTER)) + 70,
        count=count,
        shares=LayoutShares(facts=0.6),
    )
    assert any("Never touch migrations/." in line for line in layout.before)
    assert not any("Which port" in line for line in layout.before)


def test_closed_facts_are_left_out():
    layout = lay_out([fact("Use port 80.", open=False)], (), (), pointer=POINTER, max_tokens=900, count=count)
    assert not any("port 80" in line for line in layout.before)


def test_files_are_named_with_their_entries():
    touched = [WorkedFile(path="src/app.py", reads=1, edits=2, last=41, last_read=40)]
    text = fill_layout(lay_out((), touched, (), pointer=POINTER, max_tokens=900, count=count), (), 900, count)
    assert "app.py" in text
    assert "(edited, 40)" in text  # the entry with its newest content


def test_facts_get_a_larger_share_after_a_loss():
    assert favor_facts(LayoutShares()).facts > LayoutShares().facts


def test_secrets_are_masked_in_lines():
    assert "AKIAIOSFODNN7EXAMPLE" not in bullet("The key is AKIAIOSFODNN7EXAMPLE.")


def test_a_summary_survives_a_round_trip():
    summary = Summary(
        decision_seq=9,
        text="text",
        covered_until=8,
        parts=(SummaryPart(first=1, last=2, level="title", turn=1, text="- x (1 to 2)"),),
        facts=(fact("Never touch migrations/."),),
        files=(WorkedFile(path="a.py", reads=1, edits=0, last=2),),
    )
    stored = summary.to_json()
    stored["parts"][0]["newer"] = "ignored"
    assert Summary.from_json(9, stored) == summary


@given(
    notes=st.lists(
        st.builds(Note, seq=st.integers(1, 99), kind=st.just("misc"), text=st.text(max_size=50), critical=st.booleans())
    ),
    most=st.integers(0, 200),
)
@pytest.mark.requirement("compress.notes")
def test_notes_are_bounded_and_critical_ones_are_dropped_last(notes, most):
    remaining = limit_notes(notes, most)
    assert sum(len(note.text) for note in remaining) <= most
    if any(note.critical for note in notes) and not any(note.critical for note in remaining):
        assert all(len(note.text) > most for note in notes if note.critical)
    assert len(render_notes(notes, most)) <= len(remaining) + 2


def test_a_handoff_says_what_holds_and_what_is_open_within_its_tokens():
    known = [
        fact("Never touch migrations/."),
        fact("ValueError: no such column", "error"),
        fact("[in progress] rename the helper", "progress"),
        fact("We use sqlite because there is no server.", "decision"),
    ]
    made = checkpoint_of(known, (), (), goal="Rename the helper.", version=3, window=1, last=40)
    text = handoff_of(made, "Next I run the tests.", most=300, count=count)
    for expected in ("Rename the helper.", "Never touch migrations/.", "no such column", "Next I run the tests."):
        assert expected in text
    assert count(text) <= 300
    assert count(handoff_of(made, "x " * 5_000, most=120, count=count)) <= 120
    assert made.to_json()["version"] == 3


@given(names=st.lists(st.text(min_size=1, max_size=30), max_size=30), most=st.integers(150, 400))
def test_missing_names_are_appended_within_the_token_limit(names, most):
    text = fill_layout(lay_out((), (), (), pointer=POINTER, max_tokens=most, count=count), (), most, count)
    named = append_names(text, names, most, count)
    assert count(named) <= most
    assert named.startswith(header(POINTER))
    assert named.endswith(FOOTER)


def test_the_most_important_name_comes_first():
    text = fill_layout(lay_out((), (), (), pointer=POINTER, max_tokens=400, count=count), (), 400, count)
    assert "- src/app.py, parse_header\n" in append_names(text, ["src/app.py", "parse_header"], 400, count)


def test_a_fact_is_not_repeated_among_the_events():
    layout = lay_out([fact("Never touch migrations/.", seq=7)], (), (), pointer=POINTER, max_tokens=400, count=count)
    text = fill_layout(layout, [bullet("Never touch migrations/.", 7), bullet("The tests run.", 8)], 400, count)
    assert text.count("Never touch migrations/.") == 1
    assert "The tests run." in text
