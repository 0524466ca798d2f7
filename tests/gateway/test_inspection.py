"""The inspection API: what it returns and changes, for which keys, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.context.worked_sessions import messages
from tests.gateway.inspecting import ALL, CANARIES, KEYS, MAIN, ODD, example, named, world

from recto.config.factory import SystemClock, open_memory
from recto.engine.relief import pressure_of
from recto.engine.views.codec import to_builtins
from recto.gateway.inspection.operations import PREFIX
from recto.testing import FakeClock
from recto.transcript.entries import event, requested_by
from recto.transcript.session_keys import TenantStore, stored_key
from recto.transcript.sources import SessionSource, SessionSources

READS = [operation for operation in ALL if operation.right == "read"]
CHANGES = [operation for operation in ALL if operation.right == "change"]
LATE = "zoo"
"""A name that sorts after those of all tenants."""
OF_SESSIONS = [operation for operation in ALL if "session" in operation.query]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Two tenants and a key without one, with sessions of the same names. Tests that share it change nothing."""
    with world(tmp_path_factory.mktemp("shared")) as made:
        for who in CANARIES:
            made.talk(who, MAIN, 24)
            made.talk(who, ODD, 2, words=1)
        made.talk("none", LATE, 1, words=1)
        yield made


@pytest.fixture(scope="module")
def talked(tmp_path_factory):
    """A folder with a store that contains the session of one tenant."""
    folder = tmp_path_factory.mktemp("talked")
    with world(folder) as made:
        made.talk("anna", MAIN, 24)
    return folder


@pytest.fixture
def fresh(talked, tmp_path):
    """A world of its own, for tests that change something."""
    shutil.copytree(talked, tmp_path, dirs_exist_ok=True)
    with world(tmp_path) as made:
        yield made


def entries_of(made, who: str = "anna", name: str = MAIN):
    return list(made.store.read(stored_key(name, KEYS[who].tenant)))


def evicted_in(made) -> int:
    """Messages that decisions have evicted, without those that the next prompt would evict."""
    with made.sessions.use(KEYS["anna"], MAIN) as session:
        return session.window.state.evicted_messages


def who_is(made, who: str = "anna") -> str:
    return f"{who} (key {made.keys[who].id})"


def test_sessions_are_listed_in_pages_by_their_tenants_names(shared):
    whole = shared.get("/sessions")
    assert [row["session"] for row in whole["sessions"]] == sorted([MAIN, ODD])
    assert whole["next"] is None
    first = shared.get("/sessions", limit=1)
    second = shared.get("/sessions", limit=1, after=first["next"])
    assert first["sessions"] + second["sessions"] == whole["sessions"]
    assert second["next"] is None


def test_a_session_in_the_list_names_its_agent_and_project_for_its_tenant_alone(fresh):
    store, source = TenantStore(fresh.store, KEYS["anna"].tenant), SessionSource(agent="codex", project="/srv/shop")
    fresh.talk("none", MAIN, 1)
    SessionSources(store).record(SystemClock(), store.key(MAIN), source)
    for who, source_of_it in (("anna", ("codex", "/srv/shop")), ("none", ("", ""))):
        (listed,) = [row for row in fresh.get("/sessions", who=who)["sessions"] if row["session"] == MAIN]
        assert (listed["agent"], listed["project"]) == source_of_it


def test_a_key_without_a_tenant_sees_no_session_of_a_tenant_on_any_page(shared):
    for limit in (1, 2, 200):
        names, after = [], ""
        while after is not None:
            page = shared.get("/sessions", who="none", after=after, limit=limit)
            names += [row["session"] for row in page["sessions"]]
            after = page["next"]
        assert names == sorted([MAIN, ODD, LATE])


def test_internal_sessions_are_not_listed_and_not_found(tmp_path):
    with world(tmp_path) as made:
        made.talk("none", MAIN, 1)
        assert made.store.head("recto:keys").seq
        assert [row["session"] for row in made.get("/sessions", who="none")["sessions"]] == [MAIN]
        unknown = made.ask("none", "GET", "/session", session="nothing")
        assert made.ask("none", "GET", "/session", session="recto:keys").content == unknown.content


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_of_a_transcript_contain_every_entry_once_and_in_order(shared, order):
    seqs, start = [], None
    while True:
        page = shared.get(
            "/session/transcript", session=MAIN, limit=17, order=order, **({"from": start} if start else {})
        )
        seqs += [entry["seq"] for entry in page["entries"]]
        start = page["next"]
        if start is None:
            break
    expected = [entry.seq for entry in entries_of(shared)]
    assert seqs == (expected if order == "asc" else expected[::-1])


def test_a_transcript_can_be_searched_for_words_and_case_does_not_matter(shared):
    page = shared.get("/session/transcript", session=MAIN, q="SHELF 13 OF")
    assert [entry["text"] for entry in page["entries"]] == [f"{CANARIES['anna']} asks for shelf 13 of the library"]


def test_lines_of_a_transcript_are_searched_with_context(shared):
    page = shared.get("/session/grep", session=MAIN, pattern=r"shelf 1[37] of", regex="true", order="asc")
    assert [line["text"] for match in page["matches"] for line in match["lines"]] == [
        f"canarynorth asks for shelf {number} of the library" for number in (13, 17)
    ]
    pointer = page["matches"][0]["pointer"]
    assert pointer.endswith(f"/{page['matches'][0]['seq']}")
    refused = shared.ask("anna", "GET", "/session/grep", session=MAIN, pattern="(a", regex="true")
    assert refused.status_code == 422
    assert "without its ')'" in refused.json()["error"]["message"]


def test_entries_are_outlined_by_range(shared):
    page = shared.get("/session/outline", session=MAIN, limit=2, **{"from": 3})
    assert [entry["seq"] for entry in page["entries"]] == [3, 4]
    assert page["next"] == 5
    whole = shared.get("/session/entry", session=MAIN, seq=page["entries"][0]["seq"])
    assert page["entries"][0]["characters"] == len(whole["text"])
    assert whole["text"].startswith(page["entries"][0]["first_line"])


def test_work_queries_return_the_librarys_result(fresh):
    with fresh.sessions.use(KEYS["anna"], "worked") as session:
        for message in messages("openai.chat"):
            session.append(message)
        library = {
            "file": session.work.file("src/parser.py"),
            "command": session.work.command("pytest tests"),
            "error": session.work.error("KeyError"),
            "number": session.work.number("passed in"),
        }
    queries = {"file": {"file": "src/parser.py"}, "command": {"text": "pytest tests"}, "error": {"text": "KeyError"}}
    queries["number"] = {"text": "passed in"}
    for kind, query in queries.items():
        assert fresh.get(f"/session/work/{kind}", session="worked", **query) == to_builtins(library[kind])


def test_a_page_shows_for_each_message_whether_it_is_in_the_prompt(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        lines = session.window.state.messages.keys()
        assert session.window.state.evicted_messages
    found = fresh.get("/session/transcript", session=MAIN, limit=200)["entries"]
    for entry in found:
        expected = {"event"} if entry["role"] == "event" else {"in"} if entry["seq"] in lines else {"out", "recalled"}
        assert entry["place"] in expected
    assert {"in", "out", "event"} <= {entry["place"] for entry in found}


def test_messages_recalled_for_the_current_question_are_marked(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        session.append({"role": "user", "content": "What did we find on shelf 2 of the library, book 14?"})
        recalled = {hit.seq for hit in session.prompt().recalled}
    marked = {
        entry["seq"]
        for entry in fresh.get("/session/transcript", session=MAIN, limit=200)["entries"]
        if entry["place"] == "recalled"
    }
    assert recalled
    assert marked == recalled


def test_a_long_text_is_truncated_on_a_page_and_whole_in_its_entry(fresh):
    text = "é" * 5_000
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        entry = session.append({"role": "user", "content": text})
    shown = fresh.get("/session/transcript", session=MAIN, **{"from": entry.seq})["entries"][0]
    assert shown["cut"]
    assert text.startswith(shown["text"])
    whole = fresh.get("/session/entry", session=MAIN, seq=entry.seq)
    assert whole["text"] == text
    assert whole["content"].encode() == entry.content
    assert whole["hash"] == entry.hash.hex()


def test_text_with_a_lone_surrogate_is_returned_without_an_error(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        entry = session.append(b'{"role":"user","content":"half \\ud83d of one"}')
    assert fresh.get("/session/entry", session=MAIN, seq=entry.seq)["text"] == "half \ud83d of one"
    fresh.get("/session/transcript", session=MAIN, **{"from": entry.seq})
    fresh.get("/session/prompt", session=MAIN)


def test_the_prompt_that_is_shown_is_the_one_that_is_sent(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        session.prompt()
        shown = fresh.get("/session/prompt", session=MAIN)
        sent = session.prompt()
    assert shown["messages"] == sent.messages
    assert shown["tokens"] == sent.tokens
    assert shown["fits"]
    assert len(shown["costs"]) == len(shown["messages"])


def test_the_prompt_of_the_past_is_the_one_that_was_sent(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        session.append({"role": "user", "content": "And the last shelf?"})
        sent, seq = session.prompt(), session.head.seq
        session.append({"role": "assistant", "content": "It is empty. " * 400})
        session.append({"role": "user", "content": "Then we are done."})
        session.prompt()
    shown = fresh.get("/session/prompt", session=MAIN, at=seq)
    assert shown["tokens"] == sent.tokens
    assert [message for message in shown["messages"] if message in sent.messages] == shown["messages"]
    assert fresh.ask("anna", "GET", "/session/prompt", session=MAIN, at=10_000).status_code == 404


def test_two_prompts_are_compared_side_by_side(shared):
    decision = shared.get("/session/decisions", session=MAIN)["decisions"][-1]
    shown = shared.get("/session/compare", session=MAIN, first=decision["seq"] - 1, second=decision["seq"])
    left = [line for line in shown["lines"] if line["side"] == "first"]
    assert len(left) == decision["messages"]
    assert shown["first_tokens"] - shown["second_tokens"] <= decision["frees"]
    for side in ("first", "second"):
        assert sum(line[f"{side}_tokens"] or 0 for line in shown["lines"]) == shown[f"{side}_tokens"]
        seq = decision["seq"] - (side == "first")
        assert shared.get("/session/prompt", session=MAIN, at=seq)["tokens"] == shown[f"{side}_tokens"]
    for missing in ({"first": 1, "second": 10_000}, {"first": 10_000, "second": 1}):
        assert shared.ask("anna", "GET", "/session/compare", session=MAIN, **missing).status_code == 404


def test_the_report_matches_the_librarys(shared):
    with shared.sessions.use(KEYS["anna"], MAIN) as session:
        report = session.report()
    shown = shared.get("/session/context", session=MAIN)
    assert (shown["tokens"], shown["session"]) == (report.tokens, MAIN)
    assert [decision["seq"] for decision in shown["decisions"]] == [decision.seq for decision in report.decisions]


def test_every_view_of_a_session_that_was_never_sent_counts_what_the_next_prompt_evicts(fresh):
    with fresh.sessions.use(KEYS["anna"], ODD) as session:
        session.append_all([{"role": "user", "content": f"shelf {number} " * 100} for number in range(60)])
    overview, report = fresh.get("/session", session=ODD), fresh.get("/session/context", session=ODD)
    view = fresh.get("/session/window", session=ODD)
    assert overview["left_messages"] == report["left_messages"] == view["evicted"] > 0
    assert overview["messages"] == report["messages"] == view["messages"] == 60 - view["evicted"]


def test_the_timeline_ends_at_the_current_window_and_marks_every_decision(shared):
    shown = shared.get("/session/timeline", session=MAIN)
    with shared.sessions.use(KEYS["anna"], MAIN) as session:
        window = session.window
        now = pressure_of(window.state, window.builder_for(), window.rules, window.budget.input_budget)
        assert shown["points"][-1]["tokens"] == now.tokens
        decisions = {decision.seq for decision in session.report().decisions}
    assert {mark["seq"] for point in shown["points"] for mark in point["decisions"]} == decisions
    assert [point["turn"] for point in shown["points"]] == list(range(1, 25))
    assert all(point["peak"] >= point["tokens"] for point in shown["points"])


def test_a_paged_timeline_equals_the_whole_one(shared):
    whole = shared.get("/session/timeline", session=MAIN)["points"]
    ends, start = {}, 1
    while start is not None:
        page = shared.get("/session/timeline", session=MAIN, limit=13, **{"from": start})
        ends |= {point["turn"]: point["tokens"] for point in page["points"]}
        start = page["next"]
    assert ends == {point["turn"]: point["tokens"] for point in whole}


def test_a_timeline_of_the_end_of_a_long_session_begins_at_a_snapshot(tmp_path):
    with world(tmp_path) as made:
        with made.sessions.use(KEYS["anna"], MAIN) as session:
            for part in range(5):
                session.append_all({"role": "user", "content": f"question {part}.{turn}"} for turn in range(230))
                session.prompt()
        whole = made.get("/session/timeline", session=MAIN, **{"from": 1})["points"]
        late = made.get("/session/timeline", session=MAIN, **{"from": whole[-2]["first"]})["points"]
        assert late == whole[-2:]
        assert late[0]["messages"] > 1


def test_decisions_are_listed_newest_first_in_pages_and_with_their_scores_on_request(shared):
    whole = shared.get("/session/decisions", session=MAIN, scores=True)["decisions"]
    assert len(whole) > 2
    assert [decision["seq"] for decision in whole] == sorted((decision["seq"] for decision in whole), reverse=True)
    seqs, start = [], whole[0]["seq"]
    while start is not None:
        page = shared.get("/session/decisions", session=MAIN, limit=1, **{"from": start})
        seqs += [decision["seq"] for decision in page["decisions"]]
        assert all(decision["scores"] == {} for decision in page["decisions"])
        start = page["next"]
    assert seqs == [decision["seq"] for decision in whole]


def test_a_decision_is_undone_redone_and_listed_as_undone(fresh):
    newest = fresh.get("/session/decisions", session=MAIN)["decisions"][0]
    before = evicted_in(fresh)
    undone = fresh.post("/session/restore", {"decision": newest["seq"]}, session=MAIN)
    assert evicted_in(fresh) == before - newest["messages"]
    decisions = fresh.get("/session/decisions", session=MAIN)["decisions"]
    assert next(decision for decision in decisions if decision["seq"] == newest["seq"])["undone"]
    later = fresh.get("/session/decisions", session=MAIN, **{"from": newest["seq"]})["decisions"]
    assert later[0]["undone"], "even where the page begins after it was undone"
    fresh.post("/session/redo", {"restored": undone["seq"]}, session=MAIN)
    assert evicted_in(fresh) == before


@pytest.mark.requirement("recall.diagnostics")
def test_recall_explains_its_scores_and_names_sessions_as_their_tenant_does(shared):
    found = shared.post("/session/recall", {"query": "book 14 on shelf 2", "most": 3, "scope": "tenant"}, session=MAIN)
    assert found["scope"] == "tenant"
    assert found["hits"]
    for hit in found["hits"]:
        assert hit["session"] in (MAIN, ODD)
        assert abs(sum(hit["parts"].values()) - hit["score"]) < 1e-6
        whole = shared.get("/session/entry", session=hit["session"], seq=hit["seq"])
        assert whole["text"].startswith(hit["text"][:200])


def test_pins_are_added_listed_and_removed(fresh):
    out = next(
        entry["seq"]
        for entry in fresh.get("/session/transcript", session=MAIN)["entries"]
        if entry["place"] == "out" and entry["role"] == "user"
    )
    pinned = fresh.post("/session/pins", {"entries": [out]}, session=MAIN)
    assert fresh.post("/session/pins", {"entries": [out]}, session=MAIN) == pinned
    assert [pin["seq"] for pin in fresh.get("/session/pins", session=MAIN)["pins"]] == [out]
    assert fresh.get("/session/pins", session=MAIN)["pins"][0]["place"] == "in"
    answer = fresh.ask("anna", "DELETE", "/session/pins", session=MAIN, seq=out)
    assert answer.status_code == 200
    assert fresh.get("/session/pins", session=MAIN)["pins"] == []
    assert fresh.ask("anna", "DELETE", "/session/pins", session=MAIN, seq=out).status_code == 404


def test_only_existing_messages_can_be_pinned_and_a_refusal_stores_nothing(fresh):
    head = len(entries_of(fresh))
    events = [entry.seq for entry in entries_of(fresh) if entry.role == "event"]
    assert fresh.ask("anna", "POST", "/session/pins", body={"entries": [1, head + 9]}, session=MAIN).status_code == 404
    assert fresh.ask("anna", "POST", "/session/pins", body={"entries": [events[0]]}, session=MAIN).status_code == 422
    assert len(entries_of(fresh)) == head


def test_a_compaction_reports_its_decisions_and_can_be_undone(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        before = session.report().tokens
    made = fresh.post("/session/compact", {"focus": "the shelves"}, session=MAIN)
    assert made["decisions"]
    assert made["tokens"] < before
    assert made["compressions"][0]["tokens_to"] < made["compressions"][0]["tokens_from"]
    fresh.post("/session/restore", {"decision": made["decisions"][-1]["seq"]}, session=MAIN)


def test_checkpoints_are_written_listed_and_read_and_a_stale_change_is_refused(fresh):
    first = fresh.post("/session/checkpoints", {"goal": "Find all books", "done": ["shelf 1"]}, session=MAIN)
    second = fresh.post("/session/checkpoints", {"expect": first["version"], "plan": ["shelf 2"]}, session=MAIN)
    assert second["version"] == first["version"] + 1
    listed = fresh.get("/session/checkpoints", session=MAIN, limit=1)
    assert [checkpoint["version"] for checkpoint in listed["checkpoints"]] == [second["version"]]
    following = fresh.get("/session/checkpoints", session=MAIN, **{"from": listed["next"]})
    assert following["checkpoints"][0]["version"] == first["version"]
    whole = fresh.get("/session/checkpoint", session=MAIN, version=second["version"])
    assert (whole["goal"], whole["session"]) == ("Find all books", MAIN)
    assert {task["text"]: task["status"] for task in whole["subtasks"]} == {"shelf 1": "done", "shelf 2": "planned"}
    stale = fresh.ask("anna", "POST", "/session/checkpoints", body={"expect": first["version"]}, session=MAIN)
    assert stale.status_code == 409
    assert "stale" in stale.json()["error"]["message"]


def test_notes_are_stored_and_listed(fresh):
    fresh.post("/session/notes", {"kind": "bugs", "text": "shelf 3 is empty", "critical": True}, session=MAIN)
    assert [(note["kind"], note["critical"]) for note in fresh.get("/session/notes", session=MAIN)["notes"]] == [
        ("bugs", True)
    ]


@pytest.fixture(scope="module")
def waiting(talked, tmp_path_factory):
    """A question waits for its prompt, for which messages would have to be evicted."""
    folder = tmp_path_factory.mktemp("waiting")
    shutil.copytree(talked, folder, dirs_exist_ok=True)
    with world(folder) as made:
        with made.sessions.use(KEYS["anna"], MAIN) as session:
            session.append({"role": "user", "content": "What about shelf 2? " + "It is a long question. " * 250})
        yield made


@pytest.mark.parametrize("operation", READS, ids=named)
def test_reading_stores_nothing(waiting, operation):
    heads = {summary.session: summary.entries for summary in waiting.store.sessions()}
    query, body = example(operation)
    waiting.ask("anna", operation.method, operation.path, body=body, **query)
    assert {summary.session: summary.entries for summary in waiting.store.sessions()} == heads


def test_every_change_records_the_key_that_requested_it(fresh):
    head = len(entries_of(fresh))
    fresh.post("/session/notes", {"kind": "misc", "text": "hello"}, session=MAIN)
    fresh.post("/session/pins", {"entries": [1]}, session=MAIN)
    fresh.post("/session/compact", {}, session=MAIN)
    fresh.post("/session/checkpoints", {}, session=MAIN)
    new = entries_of(fresh)[head:]
    assert {entry.kind for entry in new} >= {"note", "pinned", "compaction", "checkpoint_saved"}
    assert {(entry.surface, entry.metadata["asked_by"]) for entry in new} == {("gateway api", who_is(fresh))}
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        assert session.note("misc", "said by a program").metadata == {}, "only for the duration of the change"


def test_the_requester_is_recorded_only_inside_its_request():
    clock = FakeClock()
    with requested_by("ada", "gateway api"):
        assert event(clock, "note", {}).metadata == {"asked_by": "ada"}
    after = event(clock, "note", {})
    assert (after.metadata, after.surface) == ({}, "window")


def test_an_audit_lists_every_change_in_pages(fresh):
    fresh.post("/session/notes", {"kind": "misc", "text": "hello"}, session=MAIN)
    whole = fresh.get("/session/audit", session=MAIN, limit=200)["lines"]
    assert (whole[0]["kind"], whole[0]["by"]) == ("note", who_is(fresh))
    assert {line["session"] for line in whole} == {MAIN}
    seqs, start = [], None
    while True:
        page = fresh.get("/session/audit", session=MAIN, limit=3, **({"from": start} if start else {}))
        seqs += [line["seq"] for line in page["lines"]]
        start = page["next"]
        if start is None:
            break
    assert seqs == [line["seq"] for line in whole]
    only = fresh.get("/session/audit", session=MAIN, kind="decision")["lines"]
    assert {line["topic"] for line in only} == {"decision"}


def test_an_audit_of_an_unknown_kind_is_refused_with_the_nearest_name(fresh):
    refused = fresh.ask("anna", "GET", "/session/audit", session=MAIN, kind="decisons")
    assert refused.status_code == 422
    assert "Did you mean 'decision'" in refused.text


def test_an_audit_page_ends_even_without_a_match(tmp_path):
    with world(tmp_path) as made:
        with made.sessions.use(KEYS["anna"], MAIN) as session:
            session.note("misc", "at the beginning")
            for _ in range(25):
                session.append_all({"role": "user", "content": "hello"} for _ in range(500))
        pages, lines, start = 0, [], None
        while pages == 0 or start is not None:
            page = made.get("/session/audit", session=MAIN, kind="note", **({"from": start} if start else {}))
            pages, lines, start = pages + 1, lines + page["lines"], page["next"]
        assert pages == 2, "more entries than one page scans, although none of them matches"
        assert [line["seq"] for line in lines] == [1]


def test_health_of_a_long_unmeasured_session_has_no_turns(tmp_path):
    with world(tmp_path) as made:
        with made.sessions.use(KEYS["anna"], MAIN) as session:
            session.append_all({"role": "assistant", "content": "hello"} for _ in range(6_000))
        assert made.get("/session/health", session=MAIN)["turns"] == []


def propose(made, text: str, who: str = "anna"):
    with made.sessions.use(KEYS[who], MAIN) as session:
        return session.memory.propose("preference", text)


def test_an_approval_is_bound_to_the_bytes_that_were_shown_and_counts_once(fresh):
    propose(fresh, "Books go back on the 5th.")
    shown = fresh.get("/memory/proposals")["proposals"][0]
    assert hashlib.sha256(shown["text"].encode()).hexdigest() == shown["digest"]
    other = hashlib.sha256(b"something else").hexdigest()
    wrong = {"proposal": shown["id"], "digest": other}
    assert fresh.ask("anna", "POST", "/memory/proposals/approve", body=wrong).status_code == 409
    assert fresh.get("/memory")["memories"] == []
    approved = fresh.post("/memory/proposals/approve", {"proposal": shown["id"], "digest": shown["digest"]})
    assert approved["by"] == who_is(fresh)
    assert [memory["memory"]["id"] for memory in fresh.get("/memory")["memories"]] == [approved["memory"]]
    again = fresh.ask(
        "anna", "POST", "/memory/proposals/approve", body={"proposal": shown["id"], "digest": shown["digest"]}
    )
    assert again.status_code == 409
    assert fresh.get("/memory/proposals")["proposals"] == []


def test_a_rejected_proposal_cannot_be_approved_and_its_reason_is_stored(fresh):
    made = propose(fresh, "Books go back on the 6th.")
    fresh.post("/memory/proposals/reject", {"proposal": made.id, "reason": "only that week"})
    late = {"proposal": made.id, "digest": made.digest}
    assert fresh.ask("anna", "POST", "/memory/proposals/approve", body=late).status_code == 409
    lines = fresh.get("/session/audit", session="agent:books:memory", kind="memory_rejected")["lines"]
    assert (lines[0]["by"], lines[0]["reason"]) == (who_is(fresh), "only that week")


def test_an_approval_is_undone_and_an_unknown_one_is_not_found(fresh):
    propose(fresh, "Books go back on the 7th.")
    shown = fresh.get("/memory/proposals")["proposals"][0]
    fresh.post("/memory/proposals/approve", {"proposal": shown["id"], "digest": shown["digest"]})
    fresh.post("/memory/proposals/undo", {"proposal": shown["id"]})
    assert fresh.get("/memory")["memories"] == []
    lines = fresh.get("/session/audit", session="agent:books:memory", kind="memory_approval_undone")["lines"]
    assert lines[0]["by"] == who_is(fresh)
    assert fresh.ask("anna", "POST", "/memory/proposals/undo", body={"proposal": shown["id"]}).status_code == 409
    assert fresh.ask("anna", "POST", "/memory/proposals/undo", body={"proposal": "0" * 16}).status_code == 404


def test_a_judged_hit_carries_its_verdict_and_ranks_by_it(fresh):
    before = fresh.post("/session/recall", {"query": "which shelf", "most": 50}, session=MAIN)["hits"]
    first = before[0]
    assert first["reasons"]
    assert first["verdict"] is None
    judged = {"pointer": first["pointer"], "verdict": "not_helpful", "question": 1}
    assert fresh.post("/session/recall/judge", judged, session=MAIN)["kind"] == "recall_judged"
    after = {
        hit["pointer"]: hit
        for hit in fresh.post("/session/recall", {"query": "which shelf", "most": 50}, session=MAIN)["hits"]
    }
    assert after[first["pointer"]]["verdict"] == "not_helpful"
    assert after[first["pointer"]]["score"] < first["score"]
    nowhere = {"pointer": f"recto://{MAIN}/99999", "verdict": "helpful"}
    assert fresh.ask("anna", "POST", "/session/recall/judge", body=nowhere, session=MAIN).status_code == 422
    lines = fresh.get("/session/audit", session=MAIN, kind="recall_judged")["lines"]
    assert [line["topic"] for line in lines] == ["recall"]


def test_proposals_are_listed_in_pages(fresh):
    made = {propose(fresh, f"Books of shelf {number} go back on the {number}th.").id for number in range(3, 8)}
    ids, after = [], ""
    while after is not None:
        page = fresh.get("/memory/proposals", limit=2, after=after)
        ids += [proposal["id"] for proposal in page["proposals"]]
        after = page["next"]
    assert ids == sorted(made)


@pytest.mark.parametrize("operation", [operation for operation in CHANGES if "session" in operation.query], ids=named)
def test_the_session_of_a_memory_can_be_read_and_is_changed_by_approvals_alone(memory_world, operation):
    query, body = example(operation, "agent:books:memory")
    answer = memory_world.ask("anna", operation.method, operation.path, body=body, **query)
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "reserved"


@pytest.fixture(scope="module")
def memory_world(tmp_path_factory):
    with world(tmp_path_factory.mktemp("memory")) as made:
        made.talk("anna", MAIN, 1)
        propose(made, "Books go back on the 5th.")
        kinds = {row["session"]: row["kind"] for row in made.get("/sessions")["sessions"]}
        assert kinds == {MAIN: "conversation", "agent:books:memory": "memory"}
        yield made


@pytest.mark.parametrize("operation", ALL, ids=named)
def test_a_key_can_do_only_what_its_rights_allow(shared, operation):
    query, body = example(operation, "nothing")
    assert shared.ask("", operation.method, operation.path, body=body, **query).status_code == 401
    assert shared.ask("asks", operation.method, operation.path, body=body, **query).status_code == 403
    expected = {403} if operation.right in ("change", "erase") else {200, 404}
    assert shared.ask("look", operation.method, operation.path, body=body, **query).status_code in expected


def unguarded(made) -> TestClient:
    """The routes without the guard; a request header names the key."""
    bare = Starlette(routes=made.routes)

    async def keyed(scope, receive, send):
        scope["recto.key"] = KEYS.get(dict(scope["headers"]).get(b"who", b"").decode())
        await bare(scope, receive, send)

    return TestClient(keyed)


def test_rights_are_enforced_even_without_the_guard(shared):
    client = unguarded(shared)
    for operation in ALL:
        query, body = example(operation, "nothing")
        expected = {"": 401, "asks": 403, "look": 403 if operation.right in ("change", "erase") else None}
        for who, status in expected.items():
            headers = {"who": who, "content-type": "application/json"}
            answer = client.request(operation.method, PREFIX + operation.path, params=query, json=body, headers=headers)
            assert answer.status_code == status if status else answer.status_code in (200, 404)


@pytest.mark.parametrize("operation", ALL, ids=named)
def test_no_response_contains_data_of_another_tenant(shared, operation):
    query, body = example(operation)
    for who, canary in CANARIES.items():
        if operation.right in ("change", "erase"):
            continue
        answer = shared.ask(who, operation.method, operation.path, body=body, **query)
        for other in set(CANARIES.values()) - {canary}:
            assert other not in answer.text
        for other in set(CANARIES) - {who}:
            tenant = KEYS[other].tenant
            assert not tenant or f"tenant:{tenant}/" not in answer.text


@pytest.mark.parametrize("operation", OF_SESSIONS, ids=named)
def test_a_session_of_another_tenant_is_reported_like_a_missing_one(own_names, operation):
    query, body = example(operation, "nothing at all")
    for who, foreign in (("anna", "only bert"), ("bert", "only anna"), ("none", "only anna")):
        unknown = own_names.ask(who, operation.method, operation.path, body=body, **query)
        assert unknown.status_code == 404
        spelled = [
            foreign,
            f"tenant:north/{foreign}",
            f"tenant:south/{foreign}",
            "tenant:",
            "recto:keys",
            "\u202e",
            " ",
        ]
        for name in spelled:
            answer = own_names.ask(who, operation.method, operation.path, body=body, **(query | {"session": name}))
            assert (answer.status_code, answer.content) == (404, unknown.content)
            assert dict(answer.headers) == dict(unknown.headers)


@pytest.fixture(scope="module")
def own_names(tmp_path_factory):
    with world(tmp_path_factory.mktemp("names")) as made:
        for who in ("anna", "bert"):
            made.talk(who, f"only {who}", 1)
            made.propose = propose(made, "Books go back on the 5th.", who) if who == "bert" else None
        yield made


def test_a_proposal_of_another_tenant_is_reported_like_a_missing_one(own_names):
    theirs = own_names.propose
    assert own_names.get("/memory/proposals", who="bert")["proposals"]
    for path, more in (("approve", {"digest": theirs.digest}), ("reject", {})):
        body = {"proposal": "0" * 16, **more}
        unknown = own_names.ask("anna", "POST", f"/memory/proposals/{path}", body=body)
        foreign = own_names.ask("anna", "POST", f"/memory/proposals/{path}", body=body | {"proposal": theirs.id})
        assert (
            (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content) == (404, foreign.content)
        )
    assert own_names.get("/memory/proposals", who="bert")["proposals"], "no decision was recorded for it"


def test_changes_of_one_tenant_do_not_affect_another(tmp_path):
    with world(tmp_path) as made:
        for who in ("anna", "bert"):
            made.talk(who, MAIN, 3)
        before = entries_of(made, "bert")
        made.post("/session/pins", {"entries": [1]}, session=MAIN)
        made.post("/session/notes", {"kind": "misc", "text": "north"}, session=MAIN)
        made.post("/session/checkpoints", {"goal": "north"}, session=MAIN)
        assert entries_of(made, "bert") == before
        assert made.get("/session/notes", who="bert", session=MAIN)["notes"] == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({}, "'session' is missing"),
        ({"session": MAIN, "sesion": "x"}, "'sesion'"),
        ({"session": [MAIN, MAIN]}, "given twice"),
        ({"session": "x" * 257}, "1 to 256"),
        ({"session": MAIN, "limit": "201"}, "1 to 200"),
        ({"session": MAIN, "limit": "0"}, "1 to 200"),
        ({"session": MAIN, "limit": "٣"}, "whole number"),
        ({"session": MAIN, "limit": "9" * 5_000}, "whole number"),
        ({"session": MAIN, "limit": ""}, "whole number"),
        ({"session": MAIN, "from": "1.5"}, "whole number"),
        ({"session": MAIN, "order": "up"}, "asc, desc"),
        ({"session": MAIN, "q": "x" * 201}, "0 to 200"),
        ({"session": MAIN} | {f"x{number}": "1" for number in range(30)}, "at most 20"),
    ],
    ids=str,
)
def test_an_invalid_parameter_is_refused_by_name(shared, query, says):
    answer = shared.ask("anna", "GET", "/session/transcript", **query)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_a_query_that_is_not_utf8_is_refused(shared):
    answer = shared.client.get("/api/v1/session?session=%ff", headers=shared.headers("anna"))
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"kind":"misc","text":"a","more":1}', 400),
        (b'{"kind":"misc","text":"a","text":"b"}', 400),
        (b'{"kind":"misc","text":5}', 400),
        (b'{"kind":"misc","text":""}', 400),
        (b'{"kind":"misc","text":"' + b"a" * 2_001 + b'"}', 400),
        (b'{"kind":"odd","text":"a"}', 400),
        (b'{"kind":"misc","text":"a","critical":1}', 400),
        (b'{"kind":"misc","text":"\\ud83d"}', 400),
        (b'{"kind":"misc","text":NaN}', 400),
        (b'{"kind":"misc","text":' + b"9" * 5_000 + b"}", 400),
        (b'{"kind":"misc","text":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b'{"kind":"misc","text":"\xff"}', 400),
        (b'{"kind":"misc","text":"' + b"a" * 300_000 + b'"}', 413),
        (b'{"kind":"misc","text":"   "}', 422),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_body_is_refused_and_stores_nothing(shared, body, status):
    head = len(entries_of(shared))
    answer = shared.client.post(
        "/api/v1/session/notes", params={"session": MAIN}, content=body, headers=shared.headers("anna")
    )
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert len(entries_of(shared)) == head


def test_a_body_without_a_json_content_type_is_refused(shared):
    headers = shared.headers("anna", "text/plain")
    body = json.dumps({"kind": "misc", "text": "a"})
    answer = shared.client.post("/api/v1/session/notes", params={"session": MAIN}, content=body, headers=headers)
    assert answer.status_code == 415, "a foreign web page could send it without a preflight request"


def test_a_failing_store_is_reported_without_naming_its_files(tmp_path):
    with world(tmp_path) as made:
        made.talk("anna", MAIN, 1)
        made.store.close()
        for answer in (
            made.ask("anna", "GET", "/session", session=MAIN),
            unguarded(made).get(f"{PREFIX}/session", params={"session": MAIN}, headers={"who": "anna"}),
        ):
            assert answer.status_code == 503
            assert str(tmp_path) not in answer.text


def test_a_session_is_measured_for_the_model_that_was_used_last(tmp_path):
    with world(tmp_path) as made:
        for model in ("gpt-4o", "gpt-4.1"):
            with made.sessions.use(KEYS["anna"], MAIN, model) as session:
                session.append({"role": "user", "content": "hello"})
                session.prompt()
                session.append({"role": "assistant", "content": "hello"})
            assert made.get("/session", session=MAIN)["model"] == model


def test_health_matches_the_librarys_under_the_tenants_session_name(shared):
    with shared.sessions.use(KEYS["anna"], MAIN) as session:
        report = session.health.report(5)
    shown = shared.get("/session/health", session=MAIN, turns=5)
    assert [turn["tokens"] for turn in shown["turns"]] == [turn.tokens for turn in report.turns]
    assert len(shown["turns"]) == 5
    assert {shown["session"], *(alert["session"] for alert in shown["alerts"])} == {MAIN}


def test_memory_is_read_from_the_named_agent(fresh):
    settings = fresh.settings
    from dataclasses import replace

    open_memory(replace(settings, session="agent:garden:main", tenant="north"), fresh.store).propose(
        "preference", "Water at dawn."
    )
    assert fresh.get("/memory/proposals")["proposals"] == []
    found = fresh.get("/memory/proposals", agent="garden")
    assert (found["agent"], len(found["proposals"])) == ("garden", 1)
