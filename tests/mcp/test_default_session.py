"""The session that an MCP tool reads by default: the newest while the default one is empty, as in the terminal."""

from __future__ import annotations

from contextlib import closing

import pytest

from recto.config import load
from recto.config.factory import SystemClock, make_importer, make_indexer, open_session, open_store
from recto.errors import InputError, RequestRefused
from recto.mcp import _commands, _transcript, params, queries
from recto.mcp.result_text import render
from recto.mcp.stdio import local_context
from recto.transcript.sources import SessionSource, SessionSources

OLD, NEW, MAIN = "first-chat", "second-chat", "agent:default:main"


@pytest.fixture
def context_for(tmp_path):
    """Creates the context of a server with two sessions and an empty default one."""

    def settings_of(session: str):
        arguments = {"store": str(tmp_path / "a.db"), "session": session, "recall": {"embedder": {"use": "none"}}}
        return load(environ={}, arguments=arguments)

    with closing(open_store(settings_of(MAIN))) as store, closing(make_indexer(settings_of(MAIN), store)) as indexer:
        for name, text in (
            (OLD, "The ferry to Heligoland leaves the harbour at nine."),
            (NEW, "The crane is green."),
        ):
            with open_session(settings_of(name), store, indexer) as session:
                session.append({"role": "user", "content": text})
        yield lambda session=MAIN: local_context(settings_of(session), store, indexer, may_change=True)


def test_a_search_without_a_session_covers_all_sessions_and_notes_it(context_for):
    found = queries.recall(context_for(), params.RecallParams(query="when does the ferry leave"))
    assert f"recto://{OLD}/1" in found.quotation
    assert found.scope == "tenant"
    assert "all sessions were searched" in found.notes[0]


def test_a_search_with_a_session_or_scope_covers_only_that(context_for):
    named = queries.recall(context_for(), params.RecallParams(query="ferry", session=NEW))
    assert (named.scope, named.hits) == ("session", ())
    scoped = queries.recall(context_for(), params.RecallParams(query="ferry", scope="session"))
    assert scoped.scope == "session"


def test_a_search_by_agent_or_project_finds_only_their_sessions(context_for):
    context = context_for()
    SessionSources(context.store).record(SystemClock(), OLD, SessionSource(agent="codex", project="/srv/ferry"))
    for source in ({"agent": "codex"}, {"project": "/srv/ferry"}):
        assert not queries.recall(context, params.RecallParams(query="is the crane green", **source)).hits
        found = queries.recall(context, params.RecallParams(query="when does the ferry leave", **source))
        assert [hit.pointer for hit in found.hits] == [f"recto://{OLD}/1"]
    with pytest.raises(RequestRefused, match="no session of pi and /srv/none is known"):
        queries.recall(context, params.RecallParams(query="ferry", agent="pi", project="/srv/none"))


def test_reading_uses_the_newest_session_and_names_it(context_for):
    assert queries.context_report(context_for(), params.ReportParams()).session == NEW
    assert queries.decisions(context_for(), params.DecisionsParams()).session == NEW
    assert "crane" in _transcript.grep(context_for(), params.GrepParams(pattern="crane")).quotation


def test_the_number_of_an_entry_is_read_in_the_usual_session(context_for):
    # The working record names entries by their numbers.
    assert "crane" in queries.read(context_for(), params.ReadParams(pointer="1")).quotation
    assert "ferry" in queries.read(context_for(OLD), params.ReadParams(pointer="1")).quotation
    with pytest.raises(RequestRefused, match="there is no entry 9: the session ends at entry 1"):
        queries.read(context_for(OLD), params.ReadParams(pointer="9"))


def test_texts_of_results_name_the_session_that_was_read(context_for):
    for result in (
        queries.context_report(context_for(), params.ReportParams()),
        queries.decisions(context_for(), params.DecisionsParams()),
    ):
        assert f"session {NEW}" in render(result).lower()


def test_a_session_is_reported_for_the_model_that_it_was_imported_for(context_for, tmp_path):
    file = tmp_path / "third.json"
    file.write_text('[{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]')
    context = context_for()
    settings = load(environ={}, arguments={"store": str(tmp_path / "a.db")})
    make_importer(settings, context.store, "gpt-4o").import_file(file)
    brief = queries.context_report(context, params.ReportParams(session="third"))
    assert (brief.model, brief.room) == ("gpt-4o", 121_600)


def test_a_chosen_session_is_never_replaced(context_for):
    assert queries.context_report(context_for("elsewhere"), params.ReportParams()).session == "elsewhere"


def test_a_judgement_of_a_hit_goes_to_its_session_and_does_not_begin_the_default_one(context_for):
    context = context_for()
    for _ in range(2):
        found = queries.recall(context, params.RecallParams(query="when does the ferry leave"))
        assert found.scope == "tenant"
        assert f"recto://{OLD}/1" in found.quotation, "the default session is still empty"
        _commands.judge(context, params.JudgeParams(pointer=f"recto://{OLD}/1", verdict="helpful"))
    assert not context.store.head(MAIN).seq
    (hit,) = queries.recall(context, params.RecallParams(query="ferry", session=OLD)).hits
    assert hit.pointer == f"recto://{OLD}/1"
    assert [entry.role for entry in context.store.read(OLD)][-2:] == ["event", "event"]


def test_a_change_never_goes_to_a_session_that_was_not_named(context_for):
    context = context_for()
    with pytest.raises(InputError, match="there is no entry 1"):
        _commands.pin(context, params.PinParams(entries=(1,)))
    _commands.note(context, params.NoteParams(text="The first note starts it."))
    assert context.store.head(MAIN).seq
    assert queries.context_report(context, params.ReportParams()).session == MAIN
