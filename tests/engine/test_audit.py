"""The audit: every change of a session as a line, in order, bound to the chain, and without anybody's words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import recto
from recto.engine import audit as auditing
from recto.engine.audit import TOPICS, audit, audit_line, differences, make_closing, tenant_sessions
from recto.engine.projection import DECISIONS
from recto.errors import InputError
from recto.stores.memory import MemoryStore
from recto.testing import scripted_session
from recto.transcript.audit import AuditClosing, AuditFilter, table_cells
from recto.transcript.entries import Draft
from recto.transcript.session_keys import stored_key

KEY = "agent:a:main"
SMALL = {"models": {"gpt-4o": {"window": 12_000, "max_input": 12_000}}, "recall": {"background": False}}


def driven(store: MemoryStore, **more) -> None:
    """A session that outgrows its window several times, with one decision undone."""
    with recto.open(store, session=KEY, model="gpt-4o", **(SMALL | more)) as session:
        for message in scripted_session(exchanges=12):
            session.append(message)
            if message["role"] == "assistant" and "tool_calls" not in message:
                session.prompt()
        session.pin(2)
        session.note("learnings", "The secret word is xylophone.")
        first = next(entry for entry in session.read() if entry.kind in DECISIONS)
        session.restore(first.seq)
        session.checkpoint(goal="the xylophone")


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    made = MemoryStore()
    driven(made, window={"policy": "hybrid", "shorten_outputs": False})
    return made


@pytest.mark.requirement("transcript.events")
def test_every_event_is_a_line_and_every_line_is_bound_to_its_entry(store):
    entries = {entry.seq: entry for entry in store.read(KEY)}
    every = tuple(dict.fromkeys((*TOPICS.values(), "other")))
    lines = list(audit(store, KEY, AuditFilter(kinds=every)))
    assert [line.seq for line in lines] == [seq for seq, entry in entries.items() if entry.kind != "message"]
    assert all(line.hash == entries[line.seq].hash.hex() and line.ts == entries[line.seq].ts for line in lines)
    assert {"decision", "undo", "pin", "note", "continuity", "pressure"} <= {line.topic for line in lines}


@pytest.mark.requirement("window.decisions")
def test_a_decision_says_what_left_why_with_which_scores_and_that_it_was_undone(store):
    lines = list(audit(store, KEY, AuditFilter(kinds=("decision",))))
    about = {entry.seq: json.loads(entry.content) for entry in store.read(KEY) if entry.kind in DECISIONS}
    assert [line.seq for line in lines] == list(about)
    for line in lines:
        told = about[line.seq]
        assert (line.policy, line.reason, line.freed) == (told["policy"], told["reason"], told["frees"])
        assert [list(pair) for pair in line.entries] == told["left"]
        assert (line.tokens_before, line.tokens_after) == (told["tokens_before"], told["tokens_after"])
        assert line.scores == told["scores"]
    assert any(line.scores for line in lines)
    restored = next(entry.seq for entry in store.read(KEY) if entry.kind == "restored")
    assert [line.undone_by for line in lines] == [restored, *[None] * (len(lines) - 1)]
    row = lines[0].row()
    assert row["entries"][0][0] == f"recto://{KEY}/{lines[0].entries[0][0]}"


def test_the_newest_first_is_the_oldest_first_backwards(store):
    forwards = list(audit(store, KEY))
    assert forwards == list(audit(store, KEY, AuditFilter(newest=True)))[::-1]


@pytest.mark.parametrize("newest", [False, True])
def test_pages_together_are_the_whole(store, newest, monkeypatch):
    whole = list(audit(store, KEY, AuditFilter(newest=newest)))
    monkeypatch.setattr(auditing, "_PAGE", 7)
    got, past = [], None
    while page := list(audit(store, KEY, AuditFilter(newest=newest, limit=5, past=past))):
        got += page
        past = page[-1].seq
    assert got == whole


def test_lines_are_chosen_by_time_kind_policy_and_who_asked(store):
    whole = list(audit(store, KEY))
    middle = whole[len(whole) // 2].ts
    early, late = list(audit(store, KEY, AuditFilter(until=middle))), list(audit(store, KEY, AuditFilter(since=middle)))
    assert sorted([*early, *late], key=lambda line: line.seq) == whole
    assert early
    assert {line.kind for line in audit(store, KEY, AuditFilter(kinds=("pinned",)))} == {"pinned"}
    assert {line.policy for line in audit(store, KEY, AuditFilter(policy="evict.hybrid"))} == {"evict.hybrid"}
    assert list(audit(store, KEY, AuditFilter(by="somebody"))) == []
    assert "window_snapshot" not in {line.kind for line in whole}


def test_nobodys_words_are_told_unless_they_are_asked_for(store):
    every = tuple(dict.fromkeys((*TOPICS.values(), "other")))
    assert "xylophone" not in json.dumps([line.row() for line in audit(store, KEY, AuditFilter(kinds=every))])
    assert "xylophone" in json.dumps([line.row() for line in audit(store, KEY, AuditFilter(kinds=every, text=True))])


def test_what_a_program_recorded_is_told_and_lines_of_imported_files_are_not():
    store = MemoryStore()
    for surface in ("library", "import"):
        store.append(KEY, [Draft(id=surface, ts=1, role="event", kind="deployed", content=b"{}", surface=surface)])
    assert [line.surface for line in audit(store, KEY)] == ["library"]
    assert [line.surface for line in audit(store, KEY, AuditFilter(kinds=("other",)))] == ["library", "import"]


def test_what_a_summary_cost_is_told():
    about = {
        "policy": "compact", "reason": "r", "left": [[1, 3]], "shrunk": {"5": {"text": "t", "tokens": 1}}, "frees": 4,
        "scores": {}, "compression": {"attempts": [{"picodollars": 1_500_000_000_000}, {"picodollars": 5}]},
    }  # fmt: skip
    made = MemoryStore().append(
        KEY, [Draft(id="x", ts=1, role="event", kind="compaction", content=json.dumps(about).encode())]
    )
    line = audit_line(made[0])
    assert (line.picodollars, line.messages, line.shrunk) == (1_500_000_000_005, 4, ((5, 5),))
    assert line.row()["dollars"] == pytest.approx(1.5)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"left": 3, "scores": [1], "shrunk": "x"}', b"\xff", b"[" * 10_000])
@pytest.mark.parametrize("kind", ["compaction", "restored", "pinned", "recall_injected", "unheard_of"])
def test_whatever_an_event_holds_there_is_a_line(kind, content):
    store = MemoryStore()
    store.append(KEY, [Draft(id="x", ts=1, role="event", kind=kind, content=content)])
    for newest in (False, True):
        (line,) = audit(store, KEY, AuditFilter(kinds=(kind,), newest=newest))
        assert line.messages == 0
        assert (line.topic == "other") == (kind == "unheard_of")


def test_an_audit_of_a_tenant_stays_with_it():
    store = MemoryStore()
    keys = [stored_key("agent:a:x", "t1"), stored_key("agent:b:y", "t1"), stored_key("agent:a:x", "t2"), "agent:a:x"]
    for key in keys:
        store.append(key, [Draft(id="1", ts=1, role="user", content=b"{}")])
    assert list(tenant_sessions(store, keys[0])) == sorted(keys[:2])
    assert list(tenant_sessions(store, keys[3])) == ["agent:a:x"]


def exported(store: MemoryStore, asked: AuditFilter) -> list[dict]:
    lines = [line.row() for line in audit(store, KEY, asked)]
    return json.loads(json.dumps([*lines, make_closing(store.head(KEY), KEY, asked, len(lines)).row()]))


def differ(store: MemoryStore, rows: list[dict]) -> list[str]:
    def same(line, row):
        return json.loads(json.dumps(line.row())) == row

    return [one.says for one in differences(store, lambda: iter(rows), same)]


@pytest.mark.requirement("report.audit")
def test_an_export_is_held_against_the_transcript(store):
    asked = AuditFilter(kinds=("decision", "undo"), newest=True)
    rows = exported(store, asked)
    assert differ(store, rows) == []
    assert differ(store, [rows[0] | {"freed": 1}, *rows[1:]])
    assert differ(store, [rows[0] | {"hash": "00" * 32}, *rows[1:]])
    assert differ(store, rows[1:]), "a line was taken out"
    assert differ(store, [*rows[:-2], rows[-1]]), "the last line was taken out"
    assert differ(store, [*rows[:-1], rows[-1] | {"hash": "00" * 32}])
    with pytest.raises(InputError, match="head"):
        differ(store, rows[:-1])


def test_an_export_holds_also_when_the_session_went_on():
    store = MemoryStore()
    driven(store)
    rows = exported(store, AuditFilter())
    with recto.open(store, session=KEY, model="gpt-4o", **SMALL) as session:
        last = [entry for entry in session.read() if entry.kind in DECISIONS][-1]
        session.restore(last.seq)
    assert differ(store, rows) == []


def test_a_closing_comes_back_as_it_was_from_both_forms(store):
    made = make_closing(store.head(KEY), KEY, AuditFilter(kinds=("pin",), limit=3), 2)
    assert AuditClosing.of(json.loads(json.dumps(made.row()))) == made
    from recto.transcript.audit import COLUMNS

    assert AuditClosing.of(dict(zip(COLUMNS, table_cells(made.row()), strict=True))) == made


@pytest.mark.parametrize("first", [*"=+-@\t\r\n", "＝", "＋", "－", "＠", " =", "\x00="])
def test_no_cell_begins_as_a_formula(store, first):
    line = next(iter(audit(store, KEY, AuditFilter(kinds=("decision",)))))
    hostile = f"{first}cmd|'/c calc'!A0\r\n=1+1"
    row = replace(line, reason=hostile, policy=hostile, by=hostile, details={}, scores={}).row()
    for cell in table_cells(row):
        assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
        assert cell.isprintable()
