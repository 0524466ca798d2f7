"""An incrementally updated layout equals arranging and rendering the whole list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.arrangements import ADJACENCY, CHAT, EVENTS, WIRES, fine_conversations, lines_of, written
from tests.formats.test_edits import real_sessions

from recto.formats import format_named
from recto.formats.arrangement import Arrangement, Keep, SyntheticResult, arrange
from recto.formats.message import fields_of
from recto.formats.prompt_layout import LaidLine, LaidNote, PromptLayout, render_arrangement

NOTE = b'{"role": "user", "content": "[Recalled.]"}'
MANY = st.sampled_from([1, 3, 8, 32])
"""Number of new lines from which a layout adds them in bulk."""
OTHER = b'{"role": "user", "content": "[Handoff.]"}'


def laid(messages, wire):
    leads = format_named(wire).validation.leads_on
    lines = zip(lines_of(messages, wire), messages, strict=True)
    return [LaidLine(line._replace(leads=leads(fields_of(raw))), raw, len(raw)) for line, raw in lines]


def from_scratch(lines, wire, notes=()):
    """Returns the expected layout, built from the whole list."""
    arrangement = arrange([line.line for line in lines], ADJACENCY[wire])
    contents = {line.line.seq: line.raw for line in lines} | {note.seq: note.raw for note in notes}
    pieces = list(arrangement.pieces)
    results = {line.line.seq for line in lines if line.line.answers}
    for note in notes:
        places = [at for at, piece in enumerate(pieces) if piece.seq == note.entry]
        place = len(pieces) if not places else places[-1] + 1 if note.entry in results else places[0]
        pieces.insert(place, Keep(note.seq))
    arrangement = Arrangement(tuple(pieces), arrangement.omitted, arrangement.needs_opening)
    return arrangement, render_arrangement(arrangement, contents, wire)


def same(layout, lines, wire, notes=()):
    expected, messages = from_scratch(lines, wire, notes)
    found = layout.laid_out(notes)
    assert found.arrangement == expected
    assert found.messages == messages
    assert found.costs == [len(raw) for raw in messages]
    assert layout.seqs == [line.line.seq for line in lines]
    assert layout.missing() == [piece for piece in expected.pieces if isinstance(piece, SyntheticResult)]


@pytest.mark.parametrize("wire", WIRES)
@given(events=EVENTS | fine_conversations(), steps=st.lists(st.integers(1, 5), max_size=20), many=MANY)
def test_an_extended_layout_equals_one_built_from_scratch(wire, events, steps, many):
    lines = laid(written(events, wire), wire)
    layout, done = PromptLayout(wire, len, many), 0
    for step in [*steps, len(lines)]:
        layout.extend(lines[done : done + step])
        done = min(done + step, len(lines))
        same(layout, lines[:done], wire)


@pytest.mark.parametrize("wire", WIRES)
@given(events=EVENTS, more=EVENTS, many=MANY, data=st.data())
def test_an_edit_keeps_everything_before_it(wire, events, more, many, data):
    lines = laid(written([*events, *more], wire), wire)
    before = len(written(events, wire))
    layout = PromptLayout(wire, len, many)
    layout.extend(lines[:before])
    layout.laid_out()
    gone = data.draw(st.sets(st.sampled_from(range(len(lines))), max_size=6)) if lines else set()
    edited = data.draw(st.sets(st.sampled_from(range(len(lines))), max_size=2)) if lines else set()
    after = [
        line._replace(raw=line.raw.replace(b"says-", b"said-")) if at in edited else line
        for at, line in enumerate(lines)
        if at not in gone
    ]
    unchanged = layout.keep(after)
    assert unchanged >= min([*gone, *edited, before, len(after)])
    layout.extend(after[unchanged:])
    places = [line.line.seq for line in after if line.line.role == "user"] or [999]
    same(layout, after, wire, [LaidNote(-2, data.draw(st.sampled_from(places)), NOTE)])
    same(layout, after, wire)


@pytest.mark.parametrize("wire", WIRES)
@given(events=EVENTS, more=EVENTS, many=MANY, data=st.data())
def test_notes_stay_behind_their_entry_during_the_turn(wire, events, more, many, data):
    lines = laid(written([*events, ("user",), *more], wire), wire)
    questions = [line.line.seq for line in lines if line.line.role == "user"]
    layout, done = PromptLayout(wire, len, many), 0
    for _ in range(4):
        step = data.draw(st.integers(0, len(lines) - done))
        layout.extend(lines[done : done + step])
        done += step
        notes = [
            LaidNote(number, data.draw(st.sampled_from([*questions, 999])), raw)
            for number, raw in data.draw(st.sampled_from([(), [(-2, NOTE)], [(-2, NOTE), (-3, OTHER)]]))
        ]
        same(layout, lines[:done], wire, notes)


def test_growing_real_sessions_render_the_same_prompt(data, scale):
    every = scale(6, release=1)
    checked = 0
    for wire, messages in list(real_sessions(data))[::every]:
        lines = laid(messages, wire)
        layout, done, step = PromptLayout(wire, len), 0, max(len(lines) // 12, 1)
        while done < len(lines):
            layout.extend(lines[done : done + step])
            done += step
            same(layout, lines[:done], wire)
            checked += 1
        gone = set(range(len(lines) // 5, len(lines) // 3))
        after = [line for at, line in enumerate(lines) if at not in gone]
        layout.extend(after[layout.keep(after) :])
        same(layout, after, wire)
    assert checked > 50


def test_a_tool_loop_is_not_rearranged_from_its_question():
    loop = [("user",)]
    for number in range(50):
        loop += [("assistant", [f"c{number}"], "speaks"), ("results", [f"c{number}"], "")]
    for wire in WIRES:
        counted = []
        layout = PromptLayout(wire, lambda raw, counted=counted: counted.append(raw) or 1)
        lines = [line._replace(cost=None) for line in laid(written(loop, wire), wire)]
        for line in lines:  # every line is counted once, however often the prompt is rendered
            layout.extend([line])
            layout.laid_out()
        assert len(layout._parts) > 40
        assert len(counted) == len(set(counted))


def test_a_late_result_is_placed_behind_its_call_in_a_closed_part():
    events = [("user",), ("assistant", ["c1"], ""), ("user",), ("assistant", [], "speaks"), ("user",)]
    events += [("assistant", [], "speaks"), ("results", ["c1"], ""), ("user",)]
    lines = laid(written(events, CHAT), CHAT)
    layout = PromptLayout(CHAT, len)
    layout.extend(lines[:6])
    assert [result.reason for result in layout.missing()] == ["interrupted"]
    layout.extend(lines[6:])
    assert layout.missing() == []
    assert [piece.seq for piece in layout.laid_out().arrangement.pieces] == [1, 2, 7, 3, 4, 5, 6, 8]


@pytest.mark.parametrize("many", [1, 32])
def test_a_late_result_among_many_new_lines_is_placed_behind_its_call_in_a_closed_part(many):
    events = [("user",), ("assistant", ["c1"], ""), ("user",), ("assistant", [], "speaks"), ("user",)]
    events += [("assistant", [], "speaks"), ("results", ["c1"], ""), ("user",), ("assistant", [], "speaks"), ("user",)]
    lines = laid(written(events, CHAT), CHAT)
    layout = PromptLayout(CHAT, len, many)
    layout.extend(lines[:6])
    layout.extend(lines[6:])
    same(layout, lines, CHAT)


def test_a_note_before_a_reopened_part_replaces_nothing():
    events = [
        ("user",),
        ("assistant", [], "speaks"),
        ("user",),
        ("assistant", ["c1", "c2"], ""),
        ("results", ["c1"], ""),
    ]
    lines = laid(written(events, CHAT), CHAT)
    layout = PromptLayout(CHAT, len)
    layout.extend(lines)
    edited = [*lines[:-1], lines[-1]._replace(raw=lines[-1].raw.replace(b"gave-", b"give-"))]
    layout.extend(edited[layout.keep(edited) :])
    same(layout, edited, CHAT, [LaidNote(-2, 3, NOTE)])
