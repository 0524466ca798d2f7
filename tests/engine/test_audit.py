"""The audit: one line per change of a session, in order, bound to the hash chain, without message text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

import recto
from recto.engine import audit as auditing
from recto.engine.audit import TOPICS, audit, audit_line, check_kinds, differences, make_closing, tenant_sessions
from recto.engine.projection import DECISIONS
from recto.errors import InputError
from recto.stores.memory import MemoryStore
from recto.testing import scripted_session
from recto.transcript.audit import AuditClosing, AuditFilter, Topic, table_cells
from recto.transcript.entries import Draft
from recto.transcript.session_keys import stored_key

KEY = "agent:a:main"
SMALL = {"models": {"gpt-4o": {"window": 12_000, "max_input": 12_000}}, "recall": {"background": False}}


def driven(store: MemoryStore, **more) -> None:
    """Runs a session that outgrows its window several times and undoes one decision."""
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
def test_a_decision_reports_what_it_evicted_why_its_scores_and_its_undo(store):
    lines = list(audit(store, KEY, AuditFilter(kinds=("decision",))))
    payloads = {entry.seq: json.loads(entry.content) for entry in store.read(KEY) if entry.kind in DECISIONS}
    assert [line.seq for line in lines] == list(payloads)
    for line in lines:
        payload = payloads[line.seq]
        assert (line.policy, line.reason, line.freed) == (payload["policy"], payload["reason"], payload["frees"])
        assert [list(pair) for pair in line.entries] == payload["left"]
        assert (line.tokens_before, line.tokens_after) == (payload["tokens_before"], payload["tokens_after"])
        assert line.scores == payload["scores"]
    assert any(line.scores for line in lines)
    restored = next(entry.seq for entry in store.read(KEY) if entry.kind == "restored")
    assert [line.undone_by for line in lines] == [restored, *[None] * (len(lines) - 1)]
    row = lines[0].row()
    assert row["entries"][0][0] == f"recto://{KEY}/{lines[0].entries[0][0]}"


def test_newest_first_is_the_reverse_of_oldest_first(store):
    forwards = list(audit(store, KEY))
    assert forwards == list(audit(store, KEY, AuditFilter(newest=True)))[::-1]


@pytest.mark.parametrize("newest", [False, True])
def test_pages_add_up_to_the_whole_audit(store, newest, monkeypatch):
    whole = list(audit(store, KEY, AuditFilter(newest=newest)))
    monkeypatch.setattr(auditing, "_PAGE", 7)
    got, past = [], None
    while page := list(audit(store, KEY, AuditFilter(newest=newest, limit=5, past=past))):
        got += page
        past = page[-1].seq
    assert got == whole


def test_lines_are_filtered_by_time_kind_policy_and_author(store):
    whole = list(audit(store, KEY))
    middle = whole[len(whole) // 2].ts
    early, late = list(audit(store, KEY, AuditFilter(until=middle))), list(audit(store, KEY, AuditFilter(since=middle)))
    assert sorted([*early, *late], key=lambda line: line.seq) == whole
    assert early
    assert {line.kind for line in audit(store, KEY, AuditFilter(kinds=("pinned",)))} == {"pinned"}
    assert {line.policy for line in audit(store, KEY, AuditFilter(policy="evict.hybrid"))} == {"evict.hybrid"}
    assert list(audit(store, KEY, AuditFilter(by="somebody"))) == []
    assert "window_snapshot" not in {line.kind for line in whole}


def test_message_text_is_left_out_unless_requested(store):
    every = tuple(dict.fromkeys((*TOPICS.values(), "other")))
    assert "xylophone" not in json.dumps([line.row() for line in audit(store, KEY, AuditFilter(kinds=every))])
    assert "xylophone" in json.dumps([line.row() for line in audit(store, KEY, AuditFilter(kinds=every, text=True))])


def test_events_of_a_program_are_listed_by_default_and_imported_events_are_not():
    store = MemoryStore()
    for surface in ("library", "import"):
        store.append(KEY, [Draft(id=surface, ts=1, role="event", kind="deployed", content=b"{}", surface=surface)])
    assert [line.surface for line in audit(store, KEY)] == ["library"]
    assert [line.surface for line in audit(store, KEY, AuditFilter(kinds=("other",)))] == ["library", "import"]


def test_a_line_reports_the_cost_of_a_summary():
    payload = {
        "policy": "compact", "reason": "r", "left": [[1, 3]], "shrunk": {"5": {"text": "t", "tokens": 1}}, "frees": 4,
        "scores": {}, "compression": {"attempts": [{"picodollars": 1_500_000_000_000}, {"picodollars": 5}]},
    }  # fmt: skip
    made = MemoryStore().append(
        KEY, [Draft(id="x", ts=1, role="event", kind="compaction", content=json.dumps(payload).encode())]
    )
    line = audit_line(made[0])
    assert (line.picodollars, line.messages, line.shrunk) == (1_500_000_000_005, 4, ((5, 5),))
    assert line.row()["dollars"] == pytest.approx(1.5)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"left": 3, "scores": [1], "shrunk": "x"}', b"\xff", b"[" * 10_000])
@pytest.mark.parametrize("kind", ["compaction", "restored", "pinned", "recall_injected", "unheard_of"])
def test_every_event_has_a_line_whatever_its_content(kind, content):
    store = MemoryStore()
    store.append(KEY, [Draft(id="x", ts=1, role="event", kind=kind, content=content)])
    for newest in (False, True):
        (line,) = audit(store, KEY, AuditFilter(kinds=(kind,), newest=newest))
        assert line.messages == 0
        assert (line.topic == "other") == (kind == "unheard_of")


def test_every_known_kind_is_a_filter_and_another_is_refused_with_the_nearest():
    check_kinds((*get_args(Topic), *TOPICS), lambda kind: False)
    with pytest.raises(InputError, match="Did you mean 'decision'"):
        check_kinds(["decisions"], lambda kind: False)
    check_kinds(["deployed"], lambda kind: True)  # recorded by another program


def test_an_audit_of_a_tenant_lists_only_its_own_sessions():
    store = MemoryStore()
    keys = [stored_key("agent:a:x", "t1"), stored_key("agent:b:y", "t1"), stored_key("agent:a:x", "t2"), "agent:a:x"]
    for key in keys:
        store.append(key, [Draft(id="1", ts=1, role="user", content=b"{}")])
    assert list(tenant_sessions(store, keys[0])) == sorted(keys[:2])
    assert list(tenant_sessions(store, keys[3])) == ["agent:a:x"]


def exported(store: MemoryStore, audit_filter: AuditFilter) -> list[dict]:
    lines = [line.row() for line in audit(store, KEY, audit_filter)]
    return json.loads(json.dumps([*lines, make_closing(store.head(KEY), KEY, audit_filter, len(lines)).row()]))


def differ(store: MemoryStore, rows: list[dict]) -> list[str]:
    def same(line, row):
        return json.loads(json.dumps(line.row())) == row

    return [difference.says for difference in differences(store, lambda: iter(rows), same)]


@pytest.mark.requirement("report.audit")
def test_an_export_is_checked_against_the_transcript(store):
    audit_filter = AuditFilter(kinds=("decision", "undo"), newest=True)
    rows = exported(store, audit_filter)
    assert differ(store, rows) == []
    assert differ(store, [rows[0] | {"freed": 1}, *rows[1:]])
    assert differ(store, [rows[0] | {"hash": "00" * 32}, *rows[1:]])
    assert differ(store, rows[1:]), "a line was taken out"
    assert differ(store, [*rows[:-2], rows[-1]]), "the last line was taken out"
    assert differ(store, [*rows[:-1], rows[-1] | {"hash": "00" * 32}])
    with pytest.raises(InputError, match="head"):
        differ(store, rows[:-1])


def test_an_export_stays_valid_after_the_session_continues():
    store = MemoryStore()
    driven(store)
    rows = exported(store, AuditFilter())
    with recto.open(store, session=KEY, model="gpt-4o", **SMALL) as session:
        last = [entry for entry in session.read() if entry.kind in DECISIONS][-1]
        session.restore(last.seq)
    assert differ(store, rows) == []


def test_a_closing_row_round_trips_through_json_and_table_cells(store):
    made = make_closing(store.head(KEY), KEY, AuditFilter(kinds=("pin",), limit=3), 2)
    assert AuditClosing.of(json.loads(json.dumps(made.row()))) == made
    from recto.transcript.audit import COLUMNS

    assert AuditClosing.of(dict(zip(COLUMNS, table_cells(made.row()), strict=True))) == made


@pytest.mark.parametrize("first", [*"=+-@\t\r\n", "＝", "＋", "－", "＠", " =", "\x00="])
def test_no_cell_starts_a_formula(store, first):
    line = next(iter(audit(store, KEY, AuditFilter(kinds=("decision",)))))
    hostile = f"{first}cmd|'/c calc'!A0\r\n=1+1"
    row = replace(line, reason=hostile, policy=hostile, by=hostile, details={}, scores={}).row()
    for cell in table_cells(row):
        assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
        assert cell.isprintable()
