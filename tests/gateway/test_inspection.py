"""What the inspection API tells and changes, whom it tells it, and what it refuses."""

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
from recto.engine.gauge import pressure_of
from recto.engine.views.codec import to_builtins
from recto.gateway.inspection.operations import PREFIX
from recto.testing import FakeClock
from recto.transcript.events import event, requested_by
from recto.transcript.session_keys import stored_key
from recto.transcript.sources import SessionSource, SessionSources
from recto.transcript.tenancy import TenantStore

READS = [one for one in ALL if one.right == "read"]
CHANGES = [one for one in ALL if one.right == "change"]
LATE = "zoo"
"""A name behind those of all tenants."""
OF_SESSIONS = [one for one in ALL if "session" in one.query]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Two tenants and nobody, who talk alike in sessions of the same names. Tests that share it change nothing."""
    with world(tmp_path_factory.mktemp("told")) as made:
        for who in CANARIES:
            made.talk(who, MAIN, 24)
            made.talk(who, ODD, 2, words=1)
        made.talk("none", LATE, 1, words=1)
        yield made


@pytest.fixture(scope="module")
def talked(tmp_path_factory):
    """A folder with a store in which one tenant has talked."""
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


def who_is(made, who: str = "anna") -> str:
    return f"{who} (key {made.keys[who].id})"


def test_sessions_are_listed_a_page_at_a_time_by_the_names_their_tenant_gave_them(told):
    whole = told.get("/sessions")
    assert [one["session"] for one in whole["sessions"]] == sorted([MAIN, ODD])
    assert whole["next"] is None
    first = told.get("/sessions", limit=1)
    second = told.get("/sessions", limit=1, after=first["next"])
    assert first["sessions"] + second["sessions"] == whole["sessions"]
    assert second["next"] is None


def test_a_session_in_the_list_names_its_agent_and_project_for_its_tenant_alone(fresh):
    store, source = TenantStore(fresh.store, KEYS["anna"].tenant), SessionSource(agent="codex", project="/srv/shop")
    fresh.talk("none", MAIN, 1)
    SessionSources(store).record(SystemClock(), store.key(MAIN), source)
    for who, source_of_it in (("anna", ("codex", "/srv/shop")), ("none", ("", ""))):
        (listed,) = [one for one in fresh.get("/sessions", who=who)["sessions"] if one["session"] == MAIN]
        assert (listed["agent"], listed["project"]) == source_of_it


def test_who_has_no_tenant_sees_no_session_of_one_however_the_pages_fall(told):
    for limit in (1, 2, 200):
        names, after = [], ""
        while after is not None:
            page = told.get("/sessions", who="none", after=after, limit=limit)
            names += [one["session"] for one in page["sessions"]]
            after = page["next"]
        assert names == sorted([MAIN, ODD, LATE])


def test_what_recto_keeps_for_itself_is_not_listed_and_not_there(tmp_path):
    with world(tmp_path) as made:
        made.talk("none", MAIN, 1)
        assert made.store.head("recto:keys").seq
        assert [one["session"] for one in made.get("/sessions", who="none")["sessions"]] == [MAIN]
        unknown = made.ask("none", "GET", "/session", session="nothing")
        assert made.ask("none", "GET", "/session", session="recto:keys").content == unknown.content


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_of_a_transcript_hold_every_entry_once_and_in_order(told, order):
    seqs, start = [], None
    while True:
        page = told.get(
            "/session/transcript", session=MAIN, limit=17, order=order, **({"from": start} if start else {})
        )
        seqs += [one["seq"] for one in page["entries"]]
        start = page["next"]
        if start is None:
            break
    expected = [one.seq for one in entries_of(told)]
    assert seqs == (expected if order == "asc" else expected[::-1])


def test_a_transcript_can_be_searched_for_words_and_case_does_not_matter(told):
    page = told.get("/session/transcript", session=MAIN, q="SHELF 13 OF")
    assert [one["text"] for one in page["entries"]] == [f"{CANARIES['anna']} asks for shelf 13 of the library"]


def test_lines_of_a_transcript_are_searched_with_context(told):
    page = told.get("/session/grep", session=MAIN, pattern=r"shelf 1[37] of", regex="true", order="asc")
    assert [line["text"] for match in page["matches"] for line in match["lines"]] == [
        f"canarynorth asks for shelf {number} of the library" for number in (13, 17)
    ]
    pointer = page["matches"][0]["pointer"]
    assert pointer.endswith(f"/{page['matches'][0]['seq']}")
    refused = told.ask("anna", "GET", "/session/grep", session=MAIN, pattern="(a", regex="true")
    assert refused.status_code == 422
    assert "without its ')'" in refused.json()["error"]["message"]


def test_entries_are_outlined_by_range(told):
    page = told.get("/session/outline", session=MAIN, limit=2, **{"from": 3})
    assert [entry["seq"] for entry in page["entries"]] == [3, 4]
    assert page["next"] == 5
    whole = told.get("/session/entry", session=MAIN, seq=page["entries"][0]["seq"])
    assert page["entries"][0]["characters"] == len(whole["text"])
    assert whole["text"].startswith(page["entries"][0]["first_line"])


def test_what_was_done_is_that_of_the_library(fresh):
    with fresh.sessions.use(KEYS["anna"], "worked") as session:
        for message in messages("openai.chat"):
            session.append(message)
        library = {
            "file": session.work.file("src/parser.py"),
            "command": session.work.command("pytest tests"),
            "error": session.work.error("KeyError"),
            "number": session.work.number("passed in"),
        }
    asked = {"file": {"file": "src/parser.py"}, "command": {"text": "pytest tests"}, "error": {"text": "KeyError"}}
    asked["number"] = {"text": "passed in"}
    for kind, query in asked.items():
        assert fresh.get(f"/session/work/{kind}", session="worked", **query) == to_builtins(library[kind])


def test_a_page_says_of_each_message_whether_the_model_sees_it(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        lines = session.window.state.messages.keys()
        assert session.window.state.evicted_messages
    found = fresh.get("/session/transcript", session=MAIN, limit=200)["entries"]
    for one in found:
        expected = {"event"} if one["role"] == "event" else {"in"} if one["seq"] in lines else {"out", "recalled"}
        assert one["place"] in expected
    assert {"in", "out", "event"} <= {one["place"] for one in found}


def test_what_came_back_for_the_question_in_flight_is_marked(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        session.append({"role": "user", "content": "What did we find on shelf 2 of the library, book 14?"})
        recalled = {hit.seq for hit in session.prompt().recalled}
    marked = {
        one["seq"]
        for one in fresh.get("/session/transcript", session=MAIN, limit=200)["entries"]
        if one["place"] == "recalled"
    }
    assert recalled
    assert marked == recalled


def test_a_long_text_is_cut_on_a_page_and_whole_in_its_entry(fresh):
    text = "é" * 5_000
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        kept = session.append({"role": "user", "content": text})
    shown = fresh.get("/session/transcript", session=MAIN, **{"from": kept.seq})["entries"][0]
    assert shown["cut"]
    assert text.startswith(shown["text"])
    whole = fresh.get("/session/entry", session=MAIN, seq=kept.seq)
    assert whole["text"] == text
    assert whole["content"].encode() == kept.content
    assert whole["hash"] == kept.hash.hex()


def test_text_with_half_a_character_is_told_and_not_an_error(fresh):
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        kept = session.append(b'{"role":"user","content":"half \\ud83d of one"}')
    assert fresh.get("/session/entry", session=MAIN, seq=kept.seq)["text"] == "half \ud83d of one"
    fresh.get("/session/transcript", session=MAIN, **{"from": kept.seq})
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
    assert [one for one in shown["messages"] if one in sent.messages] == shown["messages"]
    assert fresh.ask("anna", "GET", "/session/prompt", session=MAIN, at=10_000).status_code == 404


def test_two_prompts_are_told_side_by_side(told):
    decision = told.get("/session/decisions", session=MAIN)["decisions"][-1]
    shown = told.get("/session/compare", session=MAIN, first=decision["seq"] - 1, second=decision["seq"])
    left = [one for one in shown["lines"] if one["side"] == "first"]
    assert len(left) == decision["messages"]
    assert shown["first_tokens"] - shown["second_tokens"] <= decision["frees"]
    for side in ("first", "second"):
        assert sum(one[f"{side}_tokens"] or 0 for one in shown["lines"]) == shown[f"{side}_tokens"]
        seq = decision["seq"] - (side == "first")
        assert told.get("/session/prompt", session=MAIN, at=seq)["tokens"] == shown[f"{side}_tokens"]
    for missing in ({"first": 1, "second": 10_000}, {"first": 10_000, "second": 1}):
        assert told.ask("anna", "GET", "/session/compare", session=MAIN, **missing).status_code == 404


def test_the_report_is_that_of_the_library(told):
    with told.sessions.use(KEYS["anna"], MAIN) as session:
        report = session.report()
    shown = told.get("/session/context", session=MAIN)
    assert (shown["tokens"], shown["session"]) == (report.tokens, MAIN)
    assert [one["seq"] for one in shown["decisions"]] == [one.seq for one in report.decisions]


def test_the_timeline_ends_where_the_window_is_and_marks_every_decision(told):
    shown = told.get("/session/timeline", session=MAIN)
    with told.sessions.use(KEYS["anna"], MAIN) as session:
        window = session.window
        now = pressure_of(window.state, window.builder_for(), window.rules, window.budget.input_budget)
        assert shown["points"][-1]["tokens"] == now.tokens
        decisions = {one.seq for one in session.report().decisions}
    assert {mark["seq"] for point in shown["points"] for mark in point["decisions"]} == decisions
    assert [point["turn"] for point in shown["points"]] == list(range(1, 25))
    assert all(point["peak"] >= point["tokens"] for point in shown["points"])


def test_a_timeline_in_pages_tells_the_same_as_a_whole_one(told):
    whole = told.get("/session/timeline", session=MAIN)["points"]
    ends, start = {}, 1
    while start is not None:
        page = told.get("/session/timeline", session=MAIN, limit=13, **{"from": start})
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


def test_decisions_come_newest_first_in_pages_and_with_their_scores_on_request(told):
    whole = told.get("/session/decisions", session=MAIN, scores=True)["decisions"]
    assert len(whole) > 2
    assert [one["seq"] for one in whole] == sorted((one["seq"] for one in whole), reverse=True)
    seqs, start = [], whole[0]["seq"]
    while start is not None:
        page = told.get("/session/decisions", session=MAIN, limit=1, **{"from": start})
        seqs += [one["seq"] for one in page["decisions"]]
        assert all(one["scores"] == {} for one in page["decisions"])
        start = page["next"]
    assert seqs == [one["seq"] for one in whole]


def test_a_decision_is_undone_done_again_and_told_so(fresh):
    newest = fresh.get("/session/decisions", session=MAIN)["decisions"][0]
    before = fresh.get("/session", session=MAIN)
    undone = fresh.post("/session/restore", {"decision": newest["seq"]}, session=MAIN)
    restored = fresh.get("/session", session=MAIN)
    assert restored["left_messages"] == before["left_messages"] - newest["messages"]
    told = fresh.get("/session/decisions", session=MAIN)["decisions"]
    assert next(one for one in told if one["seq"] == newest["seq"])["undone"]
    later = fresh.get("/session/decisions", session=MAIN, **{"from": newest["seq"]})["decisions"]
    assert later[0]["undone"], "also where the page begins after it was undone"
    fresh.post("/session/redo", {"restored": undone["seq"]}, session=MAIN)
    assert fresh.get("/session", session=MAIN)["left_messages"] == before["left_messages"]


@pytest.mark.requirement("recall.diagnostics")
def test_recall_explains_its_scores_and_names_sessions_as_their_tenant_does(told):
    found = told.post("/session/recall", {"query": "book 14 on shelf 2", "most": 3, "scope": "tenant"}, session=MAIN)
    assert found["scope"] == "tenant"
    assert found["hits"]
    for hit in found["hits"]:
        assert hit["session"] in (MAIN, ODD)
        assert abs(sum(hit["parts"].values()) - hit["score"]) < 1e-6
        whole = told.get("/session/entry", session=hit["session"], seq=hit["seq"])
        assert whole["text"].startswith(hit["text"][:200])


def test_pins_come_and_go(fresh):
    out = next(
        one["seq"]
        for one in fresh.get("/session/transcript", session=MAIN)["entries"]
        if one["place"] == "out" and one["role"] == "user"
    )
    fresh.post("/session/pins", {"entries": [out]}, session=MAIN)
    assert [one["seq"] for one in fresh.get("/session/pins", session=MAIN)["pins"]] == [out]
    assert fresh.get("/session/pins", session=MAIN)["pins"][0]["place"] == "in"
    answer = fresh.ask("anna", "DELETE", "/session/pins", session=MAIN, seq=out)
    assert answer.status_code == 200
    assert fresh.get("/session/pins", session=MAIN)["pins"] == []
    assert fresh.ask("anna", "DELETE", "/session/pins", session=MAIN, seq=out).status_code == 404


def test_only_messages_that_are_there_can_be_pinned_and_a_refusal_stores_nothing(fresh):
    head = len(entries_of(fresh))
    events = [one.seq for one in entries_of(fresh) if one.role == "event"]
    assert fresh.ask("anna", "POST", "/session/pins", body={"entries": [1, head + 9]}, session=MAIN).status_code == 404
    assert fresh.ask("anna", "POST", "/session/pins", body={"entries": [events[0]]}, session=MAIN).status_code == 422
    assert len(entries_of(fresh)) == head


def test_a_compaction_says_what_it_did_and_can_be_undone(fresh):
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
    assert [one["version"] for one in listed["checkpoints"]] == [second["version"]]
    following = fresh.get("/session/checkpoints", session=MAIN, **{"from": listed["next"]})
    assert following["checkpoints"][0]["version"] == first["version"]
    whole = fresh.get("/session/checkpoint", session=MAIN, version=second["version"])
    assert (whole["goal"], whole["session"]) == ("Find all books", MAIN)
    assert {one["text"]: one["status"] for one in whole["subtasks"]} == {"shelf 1": "done", "shelf 2": "planned"}
    stale = fresh.ask("anna", "POST", "/session/checkpoints", body={"expect": first["version"]}, session=MAIN)
    assert stale.status_code == 409
    assert "stale" in stale.json()["error"]["message"]


def test_notes_are_kept(fresh):
    fresh.post("/session/notes", {"kind": "bugs", "text": "shelf 3 is empty", "critical": True}, session=MAIN)
    assert [(one["kind"], one["critical"]) for one in fresh.get("/session/notes", session=MAIN)["notes"]] == [
        ("bugs", True)
    ]


@pytest.fixture(scope="module")
def waiting(talked, tmp_path_factory):
    """A question waits for its prompt, for which something would have to leave."""
    folder = tmp_path_factory.mktemp("waiting")
    shutil.copytree(talked, folder, dirs_exist_ok=True)
    with world(folder) as made:
        with made.sessions.use(KEYS["anna"], MAIN) as session:
            session.append({"role": "user", "content": "What about shelf 2? " + "It is a long question. " * 250})
        yield made


@pytest.mark.parametrize("one", READS, ids=named)
def test_nothing_is_stored_by_looking(waiting, one):
    heads = {summary.session: summary.entries for summary in waiting.store.sessions()}
    query, body = example(one)
    waiting.ask("anna", one.method, one.path, body=body, **query)
    assert {summary.session: summary.entries for summary in waiting.store.sessions()} == heads


def test_every_change_says_which_key_asked_for_it(fresh):
    head = len(entries_of(fresh))
    fresh.post("/session/notes", {"kind": "misc", "text": "hello"}, session=MAIN)
    fresh.post("/session/pins", {"entries": [1]}, session=MAIN)
    fresh.post("/session/compact", {}, session=MAIN)
    fresh.post("/session/checkpoints", {}, session=MAIN)
    new = entries_of(fresh)[head:]
    assert {one.kind for one in new} >= {"note", "pinned", "compaction", "checkpoint_saved"}
    assert {(one.surface, one.metadata["asked_by"]) for one in new} == {("gateway api", who_is(fresh))}
    with fresh.sessions.use(KEYS["anna"], MAIN) as session:
        assert session.note("misc", "said by a program").metadata == {}, "and no longer than the change lasts"


def test_who_asked_is_told_of_nothing_that_comes_after():
    clock = FakeClock()
    with requested_by("ada", "gateway api"):
        assert event(clock, "note", {}).metadata == {"asked_by": "ada"}
    after = event(clock, "note", {})
    assert (after.metadata, after.surface) == ({}, "window")


def test_an_audit_tells_every_change_in_pages(fresh):
    fresh.post("/session/notes", {"kind": "misc", "text": "hello"}, session=MAIN)
    whole = fresh.get("/session/audit", session=MAIN, limit=200)["lines"]
    assert (whole[0]["kind"], whole[0]["by"]) == ("note", who_is(fresh))
    assert {one["session"] for one in whole} == {MAIN}
    seqs, start = [], None
    while True:
        page = fresh.get("/session/audit", session=MAIN, limit=3, **({"from": start} if start else {}))
        seqs += [one["seq"] for one in page["lines"]]
        start = page["next"]
        if start is None:
            break
    assert seqs == [one["seq"] for one in whole]
    only = fresh.get("/session/audit", session=MAIN, kind="decision")["lines"]
    assert {one["topic"] for one in only} == {"decision"}


def test_an_audit_ends_its_page_also_where_nothing_is_found(tmp_path):
    with world(tmp_path) as made:
        with made.sessions.use(KEYS["anna"], MAIN) as session:
            session.note("misc", "at the beginning")
            for _ in range(25):
                session.append_all({"role": "user", "content": "hello"} for _ in range(500))
        pages, lines, start = 0, [], None
        while pages == 0 or start is not None:
            page = made.get("/session/audit", session=MAIN, kind="note", **({"from": start} if start else {}))
            pages, lines, start = pages + 1, lines + page["lines"], page["next"]
        assert pages == 2, "more entries than one page looks through, though it finds nothing in them"
        assert [one["seq"] for one in lines] == [1]


def test_health_of_a_long_session_that_nobody_measured_says_so(tmp_path):
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
    assert [one["memory"]["id"] for one in fresh.get("/memory")["memories"]] == [approved["memory"]]
    again = fresh.ask(
        "anna", "POST", "/memory/proposals/approve", body={"proposal": shown["id"], "digest": shown["digest"]}
    )
    assert again.status_code == 409
    assert fresh.get("/memory/proposals")["proposals"] == []


def test_a_rejected_proposal_is_gone_for_good_and_the_reason_is_kept(fresh):
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


def test_proposals_come_in_pages(fresh):
    made = {propose(fresh, f"Books of shelf {number} go back on the {number}th.").id for number in range(3, 8)}
    ids, after = [], ""
    while after is not None:
        page = fresh.get("/memory/proposals", limit=2, after=after)
        ids += [one["id"] for one in page["proposals"]]
        after = page["next"]
    assert ids == sorted(made)


@pytest.mark.parametrize("one", [one for one in CHANGES if "session" in one.query], ids=named)
def test_the_session_of_a_memory_can_be_read_and_is_changed_by_approvals_alone(told_memory, one):
    query, body = example(one, "agent:books:memory")
    answer = told_memory.ask("anna", one.method, one.path, body=body, **query)
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "reserved"


@pytest.fixture(scope="module")
def told_memory(tmp_path_factory):
    with world(tmp_path_factory.mktemp("memory")) as made:
        made.talk("anna", MAIN, 1)
        propose(made, "Books go back on the 5th.")
        kinds = {one["session"]: one["kind"] for one in made.get("/sessions")["sessions"]}
        assert kinds == {MAIN: "conversation", "agent:books:memory": "memory"}
        yield made


@pytest.mark.parametrize("one", ALL, ids=named)
def test_a_key_does_what_its_rights_say_and_nothing_else(told, one):
    query, body = example(one, "nothing")
    assert told.ask("", one.method, one.path, body=body, **query).status_code == 401
    assert told.ask("asks", one.method, one.path, body=body, **query).status_code == 403
    expected = {403} if one.right in ("change", "erase") else {200, 404}
    assert told.ask("look", one.method, one.path, body=body, **query).status_code in expected


def unguarded(made) -> TestClient:
    """The routes alone; whoever asks is who they say."""
    bare = Starlette(routes=made.routes)

    async def keyed(scope, receive, send):
        scope["recto.key"] = KEYS.get(dict(scope["headers"]).get(b"who", b"").decode())
        await bare(scope, receive, send)

    return TestClient(keyed)


def test_rights_hold_also_where_no_guard_stands_in_front(told):
    client = unguarded(told)
    for one in ALL:
        query, body = example(one, "nothing")
        expected = {"": 401, "asks": 403, "look": 403 if one.right in ("change", "erase") else None}
        for who, status in expected.items():
            headers = {"who": who, "content-type": "application/json"}
            answer = client.request(one.method, PREFIX + one.path, params=query, json=body, headers=headers)
            assert answer.status_code == status if status else answer.status_code in (200, 404)


@pytest.mark.parametrize("one", ALL, ids=named)
def test_no_answer_holds_anything_of_another_tenant(told, one):
    query, body = example(one)
    for who, canary in CANARIES.items():
        if one.right in ("change", "erase"):
            continue
        answer = told.ask(who, one.method, one.path, body=body, **query)
        for other in set(CANARIES.values()) - {canary}:
            assert other not in answer.text
        for other in set(CANARIES) - {who}:
            tenant = KEYS[other].tenant
            assert not tenant or f"tenant:{tenant}/" not in answer.text


@pytest.mark.parametrize("one", OF_SESSIONS, ids=named)
def test_a_session_of_another_tenant_is_answered_like_one_that_is_not_there(own_names, one):
    query, body = example(one, "nothing at all")
    for who, foreign in (("anna", "only bert"), ("bert", "only anna"), ("none", "only anna")):
        unknown = own_names.ask(who, one.method, one.path, body=body, **query)
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
            answer = own_names.ask(who, one.method, one.path, body=body, **(query | {"session": name}))
            assert (answer.status_code, answer.content) == (404, unknown.content)
            assert dict(answer.headers) == dict(unknown.headers)


@pytest.fixture(scope="module")
def own_names(tmp_path_factory):
    with world(tmp_path_factory.mktemp("names")) as made:
        for who in ("anna", "bert"):
            made.talk(who, f"only {who}", 1)
            made.propose = propose(made, "Books go back on the 5th.", who) if who == "bert" else None
        yield made


def test_a_proposal_of_another_tenant_is_answered_like_one_that_is_not_there(own_names):
    theirs = own_names.propose
    assert own_names.get("/memory/proposals", who="bert")["proposals"]
    for path, more in (("approve", {"digest": theirs.digest}), ("reject", {})):
        body = {"proposal": "0" * 16, **more}
        unknown = own_names.ask("anna", "POST", f"/memory/proposals/{path}", body=body)
        foreign = own_names.ask("anna", "POST", f"/memory/proposals/{path}", body=body | {"proposal": theirs.id})
        assert (
            (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content) == (404, foreign.content)
        )
    assert own_names.get("/memory/proposals", who="bert")["proposals"], "and nothing was decided about it"


def test_what_one_tenant_changes_stays_its_own(tmp_path):
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
def test_a_parameter_that_is_not_taken_is_named(told, query, says):
    answer = told.ask("anna", "GET", "/session/transcript", **query)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_a_query_that_is_not_utf8_is_refused(told):
    answer = told.client.get("/api/v1/session?session=%ff", headers=told.headers("anna"))
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
def test_a_body_that_is_not_taken_stores_nothing(told, body, status):
    head = len(entries_of(told))
    answer = told.client.post(
        "/api/v1/session/notes", params={"session": MAIN}, content=body, headers=told.headers("anna")
    )
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert len(entries_of(told)) == head


def test_a_body_must_be_said_to_be_json(told):
    headers = told.headers("anna", "text/plain")
    body = json.dumps({"kind": "misc", "text": "a"})
    answer = told.client.post("/api/v1/session/notes", params={"session": MAIN}, content=body, headers=headers)
    assert answer.status_code == 415, "a page of somebody else's could send it without asking"


def test_a_store_that_fails_is_told_without_naming_its_files(tmp_path):
    with world(tmp_path) as made:
        made.talk("anna", MAIN, 1)
        made.store.close()
        for answer in (
            made.ask("anna", "GET", "/session", session=MAIN),
            unguarded(made).get(f"{PREFIX}/session", params={"session": MAIN}, headers={"who": "anna"}),
        ):
            assert answer.status_code == 503
            assert str(tmp_path) not in answer.text


def test_a_session_is_measured_by_the_model_that_was_asked_last(tmp_path):
    with world(tmp_path) as made:
        for model in ("gpt-4o", "gpt-4.1"):
            with made.sessions.use(KEYS["anna"], MAIN, model) as session:
                session.append({"role": "user", "content": "hello"})
                session.prompt()
                session.append({"role": "assistant", "content": "hello"})
            assert made.get("/session", session=MAIN)["model"] == model


def test_health_is_that_of_the_library_under_the_name_the_tenant_gave(told):
    with told.sessions.use(KEYS["anna"], MAIN) as session:
        report = session.health.report(5)
    shown = told.get("/session/health", session=MAIN, turns=5)
    assert [one["tokens"] for one in shown["turns"]] == [one.tokens for one in report.turns]
    assert len(shown["turns"]) == 5
    assert {shown["session"], *(one["session"] for one in shown["alerts"])} == {MAIN}


def test_memory_is_that_of_the_agent_that_is_named(fresh):
    settings = fresh.settings
    from dataclasses import replace

    open_memory(replace(settings, session="agent:garden:main", tenant="north"), fresh.store).propose(
        "preference", "Water at dawn."
    )
    assert fresh.get("/memory/proposals")["proposals"] == []
    found = fresh.get("/memory/proposals", agent="garden")
    assert (found["agent"], len(found["proposals"])) == ("garden", 1)
