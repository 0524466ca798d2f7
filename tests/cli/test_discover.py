"""`recto import --discover` and `recto watch`: finds and imports the sessions of coding agents on this machine."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.cli.calling import called_at

from recto.adapters.agent_files import AgentFileWatch, find_agent_files
from recto.cli.main import EXIT_INPUT
from recto.formats import entry_text
from recto.formats.session_files.types import microseconds
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import Draft

CRANE = "The crane is called Ottilie."
ID = "0b2f5f7e-7f0b-4f4e-9f57-5f0f3c1f9a11"
REQUEST_PART = json.dumps(
    {"type": "api-request-blob", "sessionId": ID, "hash": "a1", "message": {"role": "user", "content": "reminder"}}
)
"""A line that Claude Code writes between messages; it looks like a message."""


def claude_line(number: int, role: str, content: object) -> str:
    line = {
        "type": role,
        "uuid": f"{number:08d}-0000-4000-8000-000000000000",
        "parentUuid": f"{number - 1:08d}-0000-4000-8000-000000000000" if number else None,
        "sessionId": ID,
        "timestamp": f"2026-11-01T10:00:{number:02d}.000Z",
        "cwd": "/srv",
        "version": "2.1.325",
        "message": {"role": role, "content": content},
    }
    if role == "assistant":
        line["message"] |= {"id": f"msg_{number}", "type": "message", "model": "claude-sonnet-5-5"}
    return json.dumps(line)


@pytest.fixture
def home(tmp_path) -> Path:
    project = tmp_path / ".claude" / "projects" / "-srv"
    project.mkdir(parents=True)
    lines = [
        claude_line(0, "user", CRANE),
        REQUEST_PART,
        claude_line(1, "assistant", [{"type": "text", "text": "Noted."}]),
    ]
    (project / f"{ID}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_session_files_are_found_by_path_and_by_the_agents_environment_variables(home, tmp_path):
    (found,) = find_agent_files(home, {})
    assert (found.agent, len(found.files)) == ("Claude Code", 1)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "sessions" / "2026" / "11" / "01").mkdir(parents=True)
    (elsewhere / "sessions" / "2026" / "11" / "01" / "rollout-2026-11-01.jsonl").write_text("{}\n")
    named = find_agent_files(home, {"CODEX_HOME": str(elsewhere)})
    assert [files.agent for files in named] == ["Claude Code", "Codex"]


def test_nothing_is_imported_before_the_user_agrees(home):
    called_at(home, "import", "--discover", typed="n\n", code=130)
    assert not (home / ".recto" / "transcript.db").exists()


@pytest.mark.parametrize("typed", ["", None])
@pytest.mark.parametrize("command", [("import", "--discover"), ("watch", "--once")])
def test_an_import_that_cannot_be_confirmed_is_refused_and_names_the_flag(home, command, typed):
    assert "pass --yes" in called_at(home, *command, typed=typed, code=2)
    assert not (home / ".recto" / "transcript.db").exists()


def test_discovered_sessions_are_imported_once(home):
    assert "1 files, 3 entries, 3 new; 0 with problems" in called_at(home, "import", "--discover", "--yes")
    assert "1 files, 1 unchanged, 0 entries, 0 new; 0 with problems" in called_at(home, "import", "--discover", "--yes")
    assert "Ottilie" in called_at(home, "recall", "what is the crane called", "--scope", "tenant")


def test_an_unreadable_file_is_named_and_the_others_are_imported(home):
    broken = home / ".claude" / "projects" / "-srv" / "broken.jsonl"
    broken.write_text('{"type": "user", "message"\n')
    output = called_at(home, "import", "--discover", "--yes", code=1)
    assert "2 files, 3 entries, 3 new; 1 with problems" in output
    assert "not imported" in output
    assert "broken.jsonl" in output


SYSTEMS = {"Linux": ".config", "macOS": "Library/Application Support", "Windows": "AppData/Roaming"}
"""The folder of application data below the home folder, by operating system."""
APPLICATIONS = {
    "Cline": "Code/User/globalStorage/saoudrizwan.claude-dev/tasks/1/api_conversation_history.json",
    "Cline in VSCodium": "VSCodium/User/globalStorage/saoudrizwan.claude-dev/tasks/1/api_conversation_history.json",
    "Roo Code": "Code - Insiders/User/globalStorage/rooveterinaryinc.roo-cline/tasks/1/api_conversation_history.json",
    "Roo Code in Cursor": "Cursor/User/globalStorage/rooveterinaryinc.roo-cline/tasks/1/api_conversation_history.json",
    "Cursor": "Cursor/User/globalStorage/state.vscdb",
}


@pytest.mark.parametrize("folder", SYSTEMS.values(), ids=SYSTEMS)
@pytest.mark.parametrize("application", APPLICATIONS)
def test_application_data_is_found_on_every_operating_system(application, folder, tmp_path):
    file = tmp_path / folder / APPLICATIONS[application]
    file.parent.mkdir(parents=True)
    file.write_text("[]")
    (found,) = find_agent_files(tmp_path, {})
    assert (found.agent, found.files) == (application.partition(" in ")[0], (file,))


def test_application_folders_named_by_environment_variables_are_searched(tmp_path):
    for variable in ("APPDATA", "XDG_CONFIG_HOME"):
        file = tmp_path / variable / APPLICATIONS["Cursor"]
        file.parent.mkdir(parents=True)
        file.write_text("")
        (found,) = find_agent_files(tmp_path, {variable: str(tmp_path / variable)})
        assert found.files == (file,)
    goose = tmp_path / "APPDATA" / "Block/goose/data/sessions/sessions.db"
    goose.parent.mkdir(parents=True)
    goose.write_text("")
    assert "goose" in [found.agent for found in find_agent_files(tmp_path, {"APPDATA": str(tmp_path / "APPDATA")})]


def cursor_databases(home: Path) -> Path:
    """Creates the databases that public descriptions of Cursor name: a global one, and one of a workspace."""
    user = home / ".config" / "Cursor" / "User"
    workspace = user / "workspaceStorage" / "a1"
    for folder in (user / "globalStorage", workspace):
        folder.mkdir(parents=True)
    (workspace / "workspace.json").write_text('{"folder": "file:///srv/old%20dock"}')
    heads = [{"bubbleId": name, "type": 1} for name in ("b1", "b2", "gone")]
    rows = {
        "composerData:c1": {"composerId": "c1", "createdAt": 1794945913552, "fullConversationHeadersOnly": heads},
        "bubbleId:c1:b1": {"type": 1, "text": "The tug is called Alma."},
        "bubbleId:c1:b2": {"type": 2, "text": "Noted.", "createdAt": "2026-11-17T20:05:14Z"},
        "composerData:c2": {"composerId": "c2", "conversation": [{"type": 1, "bubbleId": "x", "text": "The pier."}]},
        "composerData:draft": {"composerId": "draft", "fullConversationHeadersOnly": []},
        "composerData:empty": {"composerId": "empty", "conversation": [{"type": 1, "bubbleId": "x", "text": ""}]},
    }
    identifier = {"uri": {"fsPath": "/srv/dock"}}
    listed = {"allComposers": [{"composerId": "c1", "workspaceIdentifier": identifier}]}
    path = user / "globalStorage" / "state.vscdb"
    with closing(apsw.Connection(str(path))) as database:
        database.execute("create table ItemTable (key, value); create table cursorDiskKV (key unique, value)")
        for key, value in rows.items():
            database.execute("insert into cursorDiskKV values (?, ?)", (key, json.dumps(value).encode()))
        database.execute("insert into ItemTable values ('composer.composerHeaders', ?)", (json.dumps(listed),))
    tab = {"tabId": "t1", "bubbles": [{"type": "user", "text": "The buoy."}, {"type": "ai", "rawText": "It is red."}]}
    with closing(apsw.Connection(str(workspace / "state.vscdb"))) as database:
        database.execute("create table ItemTable (key, value)")
        for key, value in (
            ("workbench.panel.aichat.view.aichat.chatdata", {"tabs": [tab]}),
            ("composer.composerData", {"allComposers": [{"composerId": "c2"}]}),
        ):
            database.execute("insert into ItemTable values (?, ?)", (key, json.dumps(value)))
    return path


def test_sessions_of_cursor_are_imported_with_their_projects(home):
    cursor_databases(home)
    output = called_at(home, "import", "--discover", "--yes")
    assert "Cursor: 2 session files" in output
    assert "0 with problems" in output
    assert messages_in(home, "c1") == ["The tug is called Alma.", "Noted."]
    assert messages_in(home, "t1") == ["The buoy.", "It is red."]
    for question, project in (("tug", "/srv/dock"), ("pier", "/srv/old dock"), ("buoy", "/srv/old dock")):
        output = called_at(home, "recall", f"what about the {question}", "--agent", "cursor").replace("\n", "")
        assert f"cursor in {project}" in output
    assert "0 entries, 0 new" in called_at(home, "import", "--discover", "--yes")


def test_a_partly_readable_cursor_session_is_reported_and_the_others_are_imported(home):
    path = cursor_databases(home)
    with closing(apsw.Connection(str(path))) as database:
        for key, value in (("bubbleId:c1:b2", '{"type": 9, "text": "?"}'), ("composerData:c9", "{")):
            database.execute("insert or replace into cursorDiskKV values (?, ?)", (key, value))
    assert "2 with problems" in called_at(home, "import", "--discover", "--yes", code=1)
    assert (messages_in(home, "c1"), messages_in(home, "c2")) == ([], ["The pier."])
    called_at(home, "import", "--discover", "--yes", "--keep-going", code=1)
    assert messages_in(home, "c1") == ["The tug is called Alma."]


def opencode_database(home: Path, *, completed: int | None = 5) -> Path:
    """Creates a database as opencode writes it, with the tables and columns that Recto reads."""
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    now = time.time_ns() // 1_000_000
    with closing(apsw.Connection(str(path))) as database:
        database.execute(
            "create table session (id, parent_id, directory, title, project_id, time_created, time_updated);"
            "create table message (id, session_id, time_created, data); create table part (id, message_id, data)"
        )
        database.execute("insert into session values ('../ses_1', null, '/srv', 'Crane', 'p', 1, ?)", (now,))
        messages = [("m1", {"role": "user"}), ("m2", {"role": "assistant", "time": {"completed": completed}})]
        for number, (name, info) in enumerate(messages):
            database.execute("insert into message values (?, '../ses_1', ?, ?)", (name, number, json.dumps(info)))
            part = json.dumps({"type": "text", "text": f"The crane is called Ottilie, says {name}."})
            database.execute("insert into part values (?, ?, ?)", (f"part {name}", name, part))
    return path


def test_database_sessions_are_imported_and_an_answer_once_it_is_complete(home):
    path = opencode_database(home, completed=None)
    assert "2 files, 5 entries, 5 new; 0 with problems" in called_at(home, "import", "--discover", "--yes")
    with closing(apsw.Connection(str(path))) as database:
        database.execute(
            "update message set data = ? where id = 'm2'", ('{"role": "assistant", "time": {"completed": 5}}',)
        )
    assert "2 files, 1 unchanged, 3 entries, 1 new; 0 with problems" in called_at(home, "import", "--discover", "--yes")


def test_a_database_can_be_imported_by_path_and_an_unknown_database_is_rejected(home):
    path = opencode_database(home)
    assert "opencode.db: 3 entries, 3 new" in called_at(home, "import", str(path))
    other = home / "other.db"
    with closing(apsw.Connection(str(other))) as database:
        database.execute("create table unrelated (id)")
    assert "a database of a program that is not known" in called_at(home, "import", str(other), code=1)
    other.write_bytes(b"SQLite format 3\0 and no more")
    assert "cannot be read" in called_at(home, "import", str(other), code=1)


def goose_database(home: Path, *, usage: bool = True) -> Path:
    """Creates a database as goose writes it, with the tables and columns that Recto reads."""
    path = home / ".local" / "share" / "goose" / "sessions" / "sessions.db"
    path.parent.mkdir(parents=True)
    now = time.time_ns() // 1_000_000_000
    with closing(apsw.Connection(str(path))) as database:
        database.execute(
            "create table schema_version (version); create table sessions (id, working_dir, created_at);"
            "create table messages (id, session_id, role, content_json, created_timestamp, metadata_json)"
        )
        database.execute("insert into sessions values ('20261117_1', '/srv/dock', '2026-11-17 23:48:43')")
        database.execute("insert into sessions values ('20261117_2', '/srv', '2026-11-17 23:50:00')")
        for number, role in enumerate(("user", "assistant")):
            content = json.dumps([{"type": "text", "text": f"The tug is called Alma, says the {role}."}])
            metadata = json.dumps({"userVisible": True, "agentVisible": True} | ({"usage": {}} if usage else {}))
            row = (number, role, content, now, metadata)
            database.execute("insert into messages values (?, '20261117_1', ?, ?, ?, ?)", row)
    return path


def test_sessions_of_goose_are_imported_with_their_project_and_compaction_stores_nothing_twice(home):
    path = goose_database(home)
    assert "2 files, 6 entries, 6 new; 0 with problems" in called_at(home, "import", "--discover", "--yes")
    output = called_at(home, "recall", "what is the tug called", "--agent", "goose")
    assert "goose in /srv/dock" in output
    assert "20261117_1-" in output, "goose restarts its session numbers at 1 every day, on every machine"
    with closing(apsw.Connection(str(path))) as database:
        database.execute(
            "update messages set metadata_json = replace(metadata_json, '\"agentVisible\": true', '\"x\": 1')"
        )
    assert "3 entries, 0 new" in called_at(home, "import", "--discover", "--yes")


def test_a_session_of_goose_that_went_through_the_gateway_is_not_stored_again(home):
    path = goose_database(home)
    spoken = [f"The tug is called Alma, says the {role}." for role in ("user", "assistant")]
    prompt = f"{spoken[0]}\n<turn-context>\n<current-time>2026-11-01</current-time>\n</turn-context>"
    gateway_session(home, "x", {"role": "user", "content": prompt}, {"role": "assistant", "content": spoken[1]}, at=0.5)
    with closing(apsw.Connection(str(path))) as database:  # goose names times in whole seconds
        database.execute("update messages set created_timestamp = ?", (microseconds("2026-11-01T10:00:00Z") // 10**6,))
    assert "6 entries, 3 new, 2 messages recorded" in called_at(home, "import", "--discover", "--yes")


def test_an_answer_that_goose_may_still_be_writing_is_left_out(home):
    goose_database(home, usage=False)
    assert "2 files, 5 entries, 5 new; 0 with problems" in called_at(home, "import", "--discover", "--yes")


def test_a_row_of_goose_that_cannot_be_read_is_reported(home):
    path = goose_database(home)
    with closing(apsw.Connection(str(path))) as database:
        database.execute("update messages set content_json = '[{' where role = 'user'")
    assert "1 with problems" in called_at(home, "import", "--discover", "--yes", code=1)


def test_the_first_screen_offers_the_import(home):
    assert "import 1 sessions of Claude Code on this machine" in called_at(home)


def grown(home: Path, *lines: str) -> None:
    with (home / ".claude" / "projects" / "-srv" / f"{ID}.jsonl").open("a") as file:
        file.writelines(line + "\n" for line in lines)


def test_only_the_new_lines_of_a_grown_file_are_imported(home):
    called_at(home, "import", "--discover", "--yes")
    grown(home, claude_line(2, "user", "And the tug is called Alma."))
    assert "1 files, 4 entries, 1 new" in called_at(home, "import", "--discover", "--yes")


def gateway_session(home: Path, name: str, *messages: dict[str, object], at: float = 0) -> None:
    """Stores a session as the gateway does, at the time of the session file or `at` seconds later."""
    (home / ".recto").mkdir(mode=0o700, exist_ok=True)
    drafts = [
        Draft(
            id=f"{name}{number}",
            ts=microseconds(f"2026-11-01T10:00:{number:02d}Z") + int(at * 1_000_000),
            role=message["role"],
            kind="message",
            wire="anthropic.messages",
            content=json.dumps(message).encode(),
            surface="gateway messages",
        )
        for number, message in enumerate(messages)
    ]
    with closing(SqliteStore(home / ".recto" / "transcript.db")) as store:
        store.append(f"agent:default:{name}", drafts)


def messages_in(home: Path, session: str) -> list[str]:
    with closing(SqliteStore(home / ".recto" / "transcript.db", create=False)) as store:
        return [entry_text(entry) for entry in store.read(session) if entry.kind == "message"]


NOTED = {"role": "assistant", "content": [{"type": "text", "text": "Noted."}]}


def test_messages_that_went_through_the_gateway_are_not_stored_again(home):
    reminder = {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"}
    gateway_session(home, ID, {"role": "user", "content": [reminder, {"type": "text", "text": CRANE}]}, NOTED)
    output = called_at(home, "import", "--discover", "--yes")
    assert "3 entries, 0 new, 2 messages recorded by the gateway before" in output
    assert messages_in(home, ID) == []
    grown(home, claude_line(2, "user", "And the tug is called Alma."))
    output = called_at(home, "import", "--discover", "--yes")
    assert "4 entries, 1 new, 2 messages recorded by the gateway before" in output
    assert messages_in(home, ID) == ["And the tug is called Alma."]


def test_a_session_without_an_id_is_matched_by_its_time_and_its_messages(home):
    gateway_session(home, "made-by-the-gateway", {"role": "user", "content": CRANE}, NOTED)
    assert "0 new, 2 messages recorded" in called_at(home, "import", "--discover", "--yes")


def test_another_session_of_the_same_time_is_imported(home):
    gateway_session(home, "made-by-the-gateway", {"role": "user", "content": "Something else."}, NOTED, NOTED)
    assert "3 entries, 3 new; 0" in called_at(home, "import", "--discover", "--yes")


def test_watch_imports_changed_files_once(home):
    assert "2026" in called_at(home, "watch", "--once", "--yes")
    watch = AgentFileWatch(home, {})
    ((agent, files),) = watch.changed()
    assert (agent, len(files)) == ("Claude Code", 1)
    assert watch.changed() == []
    grown(home, claude_line(2, "user", "And the tug is called Alma."))
    assert [name for name, _ in watch.changed()] == ["Claude Code"]
    output = called_at(home, "watch", "--once", "--yes")
    assert f"Claude Code: 1 new entries in {ID}" in output
    assert "new entries" not in called_at(home, "watch", "--once", "--yes")


def test_watch_once_without_sessions_does_not_prompt_and_watch_prompts_for_future_sessions(tmp_path):
    assert "No sessions of coding agents were found" in called_at(tmp_path, "watch", "--once")
    shown = called_at(tmp_path, "watch", typed="n\n", code=130)
    assert "Import the sessions that come into" in shown


def test_watch_never_starts_without_consent(home):
    called_at(home, "watch", "--once", typed="n\n", code=130)
    assert not (home / ".recto" / "transcript.db").exists()


def codex_session(home: Path, *, project: str = "/srv/harbour") -> None:
    """Writes a Codex session file of a project."""
    folder = home / ".codex" / "sessions" / "2026" / "11" / "01"
    folder.mkdir(parents=True)
    text = {"type": "input_text", "text": "The tug is called Alma."}
    lines = [
        {"timestamp": "2026-11-01T11:00:00Z", "type": "session_meta", "payload": {"id": "01a1-codex", "cwd": project}},
        {
            "timestamp": "2026-11-01T11:00:01Z",
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": [text]},
        },
    ]
    (folder / "rollout-1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_recall_is_limited_to_an_agent_or_a_project_and_names_the_source(home):
    codex_session(home)
    called_at(home, "import", "--discover", "--yes")
    assert "codex in /srv/harbour" in called_at(home, "recall", "what is the tug called", "--agent", "codex")
    assert "01a1-codex codex" in called_at(home, "session", "ls")
    assert '"agent": "codex"' in called_at(home, "session", "ls", "--json")
    assert "Ottilie" not in called_at(home, "recall", "the crane is called Ottilie", "--agent", "codex")
    output = called_at(home, "recall", "what is called", "--project", "/srv")
    assert "claude-code in /srv" in output
    assert "codex in /srv/harbour" in output, "a subfolder belongs to the project"
    output = called_at(home, "recall", "what is called", "--project", "/srv/harbour")
    assert "Alma" in output
    assert "Ottilie" not in output
    assert "no session of /elsewhere is known" in called_at(
        home, "recall", "x", "--project", "/elsewhere", code=EXIT_INPUT
    )


def test_a_folder_that_only_shares_a_name_prefix_is_another_project(home):
    codex_session(home, project="/srv-old")
    called_at(home, "import", "--discover", "--yes")
    assert "Alma" not in called_at(home, "recall", "what is called", "--project", "/srv")


def test_the_source_of_a_session_that_went_through_the_gateway_is_learned_from_the_file(home):
    gateway_session(home, ID, {"role": "user", "content": CRANE}, NOTED)
    called_at(home, "import", "--discover", "--yes")
    output = called_at(home, "recall", "what is the crane called", "--agent", "claude")
    assert f"agent:default:{ID}" in output
    assert "claude-code in /srv" in output


def test_a_task_of_cline_is_a_separate_session(home):
    for number in (1, 2):
        task = home / ".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks" / str(number)
        task.mkdir(parents=True)
        messages = [{"role": "user", "content": [{"type": "text", "text": f"The dock number {number} is closed."}]}]
        (task / "api_conversation_history.json").write_text(json.dumps(messages))
    assert "3 files, 5 entries, 5 new; 0 with problems" in called_at(home, "import", "--discover", "--yes")
    assert messages_in(home, "cline-2") == ["The dock number 2 is closed."]
    assert "cline-1" in called_at(home, "recall", "which dock is closed", "--agent", "cline")


def test_aider_histories_are_found_in_the_current_folder_and_in_projects_of_other_agents(home):
    project = home / "harbour"
    for number, folder in enumerate((home, project)):
        folder.mkdir(exist_ok=True)
        line = f"#### The dock number {number} is closed.  \n"
        chat = f"\n# aider chat started at 2026-11-17 21:46:3{number}\n\n> Aider v0.86.2  \n\n{line}"
        (folder / ".aider.chat.history.md").write_text(chat)
    output = called_at(home, "import", "--discover", "--yes")
    assert "aider: 1 session file" in output
    codex_session(home, project=str(project))
    output = called_at(home, "import", "--discover", "--yes")
    assert "aider: 2 session files" in output
    assert "4 files, 2 unchanged" in output
    output = called_at(home, "recall", "which dock is closed", "--project", str(project))
    assert f"aider in {project}" in output.replace("\n", "")
    assert "number 0" not in output
    called_at(home, "--store", "other.db", "import", str(project / ".aider.chat.history.md"))
    output = called_at(home, "--store", "other.db", "recall", "which dock is closed", "--project", str(project))
    assert "number 1" in output


def test_a_chat_of_aider_that_went_through_the_gateway_is_not_stored_again(home, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    gateway_session(home, "made-by-the-gateway", {"role": "user", "content": CRANE}, NOTED)
    chats = [
        f"\n# aider chat started at 2026-11-01 {hour}:59:58\n\n> Aider v0.86.2  \n\n#### {CRANE}  \n\nNoted.\n"
        for hour in ("09", "11")
    ]
    (home / ".aider.chat.history.md").write_text("".join(chats))
    (home / ".claude" / "projects" / "-srv" / f"{ID}.jsonl").unlink()
    assert "8 entries, 4 new, 2 messages recorded" in called_at(home, "import", "--discover", "--yes")
    assert messages_in(home, "aider-2026-11-01-09-59-58") == []
    assert messages_in(home, "aider-2026-11-01-11-59-58") == [CRANE, "Noted."]


def test_with_a_project_only_its_sessions_are_imported(home):
    codex_session(home)
    output = called_at(home, "import", "--discover", "--yes", "--project", "/srv/harbour")
    assert "2 files, 1 of other projects, 2 entries, 2 new" in output
    assert messages_in(home, ID) == []


def test_secrets_are_masked_before_anything_is_stored(home):
    key = "sk-ant-" + "a1B2" * 8
    grown(home, claude_line(2, "user", f"Use the key {key} for it."))
    called_at(home, "import", "--discover", "--yes", "--mask-secrets")
    assert messages_in(home, ID)[-1] == "Use the key [secret left out: anthropic] for it."
    with closing(SqliteStore(home / ".recto" / "transcript.db", create=False)) as store:
        assert not any(key.encode() in entry.content + entry.meta for entry in store.read(ID)), "nor in the layout"


def test_a_private_key_on_several_lines_is_masked(home):
    lines = ["-----BEGIN RSA PRIVATE KEY-----", "MIIEpAIBAAKCAQEA" + "b7" * 20, "-----END RSA PRIVATE KEY-----"]
    chat = "\n# aider chat started at 2026-11-17 21:46:30\n\n> Aider v0.86.2  \n\n#### Here is the key:  \n"
    (home / ".aider.chat.history.md").write_text(chat + "".join(f"#### {line}  \n" for line in lines))
    called_at(home, "import", "--discover", "--yes", "--mask-secrets")
    with closing(SqliteStore(home / ".recto" / "transcript.db", create=False)) as store:
        contents = [entry.content + entry.meta for row in store.sessions() for entry in store.read(row.session)]
    assert any(b"Here is the key" in content for content in contents)
    assert not any(lines[1].encode() in content for content in contents)


def test_a_shared_store_takes_only_named_projects_and_secrets_are_masked(home):
    from tests.postgres import database  # skips the test where no server is available

    codex_session(home)
    key = "sk-ant-" + "a1B2" * 8
    grown(home, claude_line(2, "user", f"Use the key {key} for it."))
    with database() as url:
        shared = ("--store", url)
        assert "with --project FOLDER" in called_at(home, *shared, "import", "--discover", "--yes", code=2)
        output = called_at(home, *shared, "import", "--discover", "--yes", "--project", "/srv")
        assert "2 files, 6 entries, 6 new" in output
        output = called_at(home, *shared, "recall", "which key is for it", "--project", "/srv")
        assert "[secret left out: anthropic]" in output
        assert key not in output
        assert "claude-code in /srv" in output
