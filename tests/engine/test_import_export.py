"""Import and export: existing files are imported losslessly or not at all."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from recto.config import load
from recto.config.factory import make_importer, open_store
from recto.engine.exporter import export_messages, export_original, export_recto
from recto.engine.verification import verify
from recto.errors import AppendConflict, InputError, MalformedFile
from recto.stores.memory import MemoryStore
from recto.testing import scripted_session
from recto.transcript.entries import EMPTY_HEAD

SETTINGS = load(environ={}, arguments={"model": "gpt-4o"})


def importer(store):
    return make_importer(SETTINGS, store)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def chat(tmp_path) -> Path:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(list(scripted_session(exchanges=20)), indent=1))
    return file


def original(store, session: str) -> bytes:
    return b"".join(export_original(store, session))


def recto_file(store, path: Path) -> Path:
    path.write_bytes(b"".join(export_recto(store, [summary.session for summary in store.sessions()])))
    return path


def real_files(data: Path) -> list[Path]:
    """Returns every file of the real data that contains conversations."""
    return [
        *sorted(data.glob("agent_sessions/*/*.jsonl")),
        *sorted(data.glob("beam_100K/*/chat.json")),
        data / "taubench" / "gpt-4o-airline.json",
        data / "longmemeval_oracle" / "longmemeval_oracle.json",
    ]


@pytest.mark.promise
def test_all_real_data_imports_verifies_and_exports_identically(data, tmp_path, scale):
    files = real_files(data)
    assert len(files) >= 64
    every = scale(4, ci=1, release=1)
    files = [file for place, file in enumerate(files) if place % every == 0 or file.parent.name == "taubench"]
    with closing(open_store(load(environ={}, arguments={"store": str(tmp_path / "all.db")}))) as store:
        heads, total = {}, 0
        for file in files:
            # The folders of one set hold files of one name, so each is its own source under its own path.
            named = tmp_path / f"{file.parent.name}-{file.name}"
            named.symlink_to(file)
            done = importer(store).import_file(named)
            assert done.entries == done.new
            assert not done.problems
            assert original(store, done.sessions[0]) == file.read_bytes()
            heads |= {session: store.head(session) for session in done.sessions}
            total += done.entries + len(done.sessions)
        result = verify(store, heads=heads)
        assert result.ok, result.findings[:3]
        assert (result.entries, result.sessions) == (total, len(heads))

        copy = recto_file(store, tmp_path / "all.jsonl")
    with closing(open_store(load(environ={}, arguments={"store": str(tmp_path / "copy.db")}))) as second:
        importer(second).import_file(copy)
        assert {summary.session: second.head(summary.session) for summary in second.sessions()} == heads
        assert recto_file(second, tmp_path / "copy.jsonl").read_bytes() == copy.read_bytes()


def test_a_message_array_is_exported_as_messages_and_as_the_original_file(store, chat):
    [session] = importer(store).import_file(chat).sessions
    assert json.loads(b"".join(export_messages(store, session))) == json.loads(chat.read_bytes())
    assert original(store, session) == chat.read_bytes()


def test_an_empty_session_exports_as_no_messages(store):
    assert b"".join(export_messages(store, "agent:none:main")) == b"[]\n"


def test_importing_again_stores_nothing_new(store, chat):
    first = importer(store).import_file(chat)
    head = store.head(first.sessions[0])
    again = importer(store).import_file(chat)
    assert (again.new, again.entries) == (0, first.entries)
    assert store.head(first.sessions[0]) == head


def test_a_file_that_grew_adds_only_what_is_new(store, tmp_path):
    file = tmp_path / "grows.jsonl"
    lines = [json.dumps(message) + "\n" for message in scripted_session(exchanges=5)]
    file.write_text("".join(lines[:10]))
    session = importer(store).import_file(file).sessions[0]
    file.write_text("".join(lines))
    done = importer(store).import_file(file)
    assert done.new == len(lines) - 10
    assert original(store, session) == file.read_bytes()


def test_a_file_that_changed_in_the_middle_has_no_original_form(store, tmp_path):
    file = tmp_path / "edited.json"
    messages = list(scripted_session(exchanges=3))
    file.write_text(json.dumps(messages))
    session = importer(store).import_file(file).sessions[0]
    messages[-1]["content"] = "something else"
    file.write_text(json.dumps(messages))
    importer(store).import_file(file, session=session)
    with pytest.raises(InputError, match="changed between"):
        next(export_original(store, session))


def test_an_older_copy_does_not_take_the_original_form_away(store, tmp_path):
    file = tmp_path / "session.jsonl"
    lines = [json.dumps(message) + "\n" for message in scripted_session(exchanges=5)]
    file.write_text("".join(lines))
    session = importer(store).import_file(file).sessions[0]
    whole = file.read_bytes()
    file.write_text("".join(lines[:10]))
    assert importer(store).import_file(file).new == 0
    assert original(store, session) == whole


def test_an_older_copy_may_have_fewer_conversations(store, tmp_path):
    file = tmp_path / "session.jsonl"
    lines = [
        json.dumps(
            {
                "type": "user",
                "uuid": str(place),
                "sessionId": "main",
                "isSidechain": place == 2,
                "message": {"role": "user", "content": f"message {place}"},
            }
        )
        + "\n"
        for place in range(3)
    ]
    file.write_text("".join(lines))
    assert len(importer(store).import_file(file).sessions) == 2
    whole = file.read_bytes()
    file.write_text("".join(lines[:2]))
    assert importer(store).import_file(file).sessions == ("main",)
    assert original(store, "main") == whole


def conversation(folder: Path, *texts: str, name: str = "session.json") -> Path:
    folder.mkdir(exist_ok=True)
    roles = ("system", "user", "assistant", "user")
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    (folder / name).write_text(json.dumps(messages))
    return folder / name


@pytest.mark.parametrize("answer", ["ok blue", "ok red"])
def test_another_conversation_under_the_same_file_name_is_refused(store, tmp_path, answer):
    alice = conversation(tmp_path / "p1", "You help.", "Alice: my pin is red", "ok red")
    bob = conversation(tmp_path / "p2", "You help.", "Bob: my pin is blue", answer)
    importer(store).import_file(alice)
    head = store.head("session")
    with pytest.raises(InputError, match=r"another conversation .*Nothing was imported.*--session"):
        importer(store).import_file(bob)
    assert store.head("session") == head
    assert importer(store).import_file(bob, session="bob").new == 3
    assert (original(store, "session"), original(store, "bob")) == (alice.read_bytes(), bob.read_bytes())
    for file in (alice, bob):
        again = None if file == alice else "bob"
        assert importer(store).import_file(file, session=again).new == 0


def test_another_conversation_is_refused_also_under_another_extension(store, tmp_path):
    importer(store).import_file(conversation(tmp_path, "You help.", "Alice: my pin is red"))
    with pytest.raises(InputError, match="--session"):
        importer(store).import_file(conversation(tmp_path, "You help.", "Bob: my pin is blue", name="session.txt"))


def test_one_of_several_conversations_that_is_another_one_is_refused(store, tmp_path):
    file = tmp_path / "chats.json"
    chats = {"a": [{"role": "user", "content": "one"}], "b": [{"role": "user", "content": "two"}]}
    file.write_text(json.dumps(chats))
    importer(store).import_file(file)
    chats["b"] = [{"role": "user", "content": "three"}]
    file.write_text(json.dumps(chats))
    with pytest.raises(InputError, match="give the file another name"):
        importer(store).import_file(file)
    chats["b"] = [{"role": "user", "content": "two"}, {"role": "assistant", "content": "2"}]
    file.write_text(json.dumps(chats))
    assert importer(store).import_file(file).new == 1


def test_longer_and_shorter_copies_of_a_file_are_the_same_conversation(store, tmp_path):
    texts = ("You help.", "Alice: my pin is red", "ok red", "and my name?")
    new = [importer(store).import_file(conversation(tmp_path, *texts[:count])).new for count in (3, 2, 4, 3)]
    assert new == [3, 0, 1, 0]


def test_what_cannot_be_added_to_a_named_session_is_no_error_of_the_store(store, tmp_path):
    importer(store).import_file(conversation(tmp_path / "p1", "You help.", "red", "ok"), session="both")
    with pytest.raises(InputError, match=r"Nothing was imported.*--session"):
        importer(store).import_file(conversation(tmp_path / "p2", "You help.", "blue", "ok"), session="both")


def test_a_session_that_was_never_a_file_has_no_original_form(store):
    with pytest.raises(InputError, match="not imported"):
        original(store, "agent:none:main")


def test_a_malformed_line_is_named_and_nothing_is_imported(store, tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_bytes(b'{"role":"user","content":"a"}\n{"role":"user","content":\n{"role":"user","content":"b"}\n')
    with pytest.raises(MalformedFile) as caught:
        importer(store).import_file(file)
    assert caught.value.line == 2
    assert store.sessions() == []


def test_keep_going_stores_a_malformed_line_and_reports_it(store, tmp_path):
    file = tmp_path / "bad.jsonl"
    raw = b'{"role":"user","content":"a"}\n\xff\xfe not json\n{"role":"user","content":"b"}\n'
    file.write_bytes(raw)
    done = importer(store).import_file(file, keep_going=True)
    assert [problem.line for problem in done.problems] == [2]
    kinds = [entry.kind for entry in store.read(done.sessions[0])]
    assert kinds == ["message", "unreadable_line", "message", "imported"]
    assert original(store, done.sessions[0]) == raw


def test_a_file_can_be_imported_into_a_named_session(store, chat):
    assert importer(store).import_file(chat, session="agent:mine:main").sessions == ("agent:mine:main",)
    assert original(store, "agent:mine:main") == chat.read_bytes()


def test_several_conversations_cannot_go_to_one_session(store, tmp_path):
    file = tmp_path / "two.json"
    file.write_text('[{"messages":[{"role":"user","content":"a"}]},{"messages":[{"role":"user","content":"b"}]}]')
    with pytest.raises(InputError, match="2 conversations"):
        importer(store).import_file(file, session="agent:mine:main")
    assert store.sessions() == []
    done = importer(store).import_file(file)
    assert len(done.sessions) == 2
    assert original(store, done.sessions[1]) == file.read_bytes()


def test_a_recto_file_keeps_its_chain(store, chat, tmp_path):
    importer(store).import_file(chat)
    file = recto_file(store, tmp_path / "out.jsonl")
    second = MemoryStore()
    done = importer(second).import_file(file)
    assert done.new == done.entries
    session = done.sessions[0]
    assert second.head(session) == store.head(session)
    assert importer(second).import_file(file).new == 0


def test_a_recto_file_continues_a_session_that_has_its_beginning(store, chat, tmp_path):
    session = importer(store).import_file(chat).sessions[0]
    entries = list(store.read(session))
    second = MemoryStore()
    second.append(session, entries[:7])
    importer(second).import_file(recto_file(store, tmp_path / "out.jsonl"))
    assert second.head(session) == store.head(session)


def test_a_recto_file_never_mixes_with_another_history(store, chat, tmp_path):
    session = importer(store).import_file(chat).sessions[0]
    file = recto_file(store, tmp_path / "out.jsonl")
    second = MemoryStore()
    importer(second).import_file(chat, session=session)
    head = second.head(session)
    with pytest.raises(AppendConflict):
        importer(second).import_file(file)
    assert second.head(session) == head
    importer(second).import_file(file, session="agent:x:y")
    with pytest.raises(InputError, match="not empty"):
        importer(second).import_file(file, session="agent:x:y")
    assert second.head("agent:x:y").seq == head.seq


def test_an_edited_recto_file_is_refused_as_a_whole(store, chat, tmp_path):
    importer(store).import_file(chat)
    file = recto_file(store, tmp_path / "out.jsonl")
    edited = file.read_bytes().replace(b'"role": "user"', b'"role": "system"', 1)
    assert edited != file.read_bytes()
    file.write_bytes(edited)
    second = MemoryStore()
    with pytest.raises(MalformedFile):
        importer(second).import_file(file)
    assert second.sessions() == []


def test_tokens_are_counted_for_the_model_named_in_the_file(store, tmp_path):
    file = tmp_path / "lines.jsonl"
    file.write_text(
        '{"type":"meta","session_id":"s-1"}\n'
        '{"type":"message","role":"assistant","ts":"2026-01-01T00:00:00Z","model":"claude-opus-4-6","content":[]}\n'
    )
    plain = make_importer(load(environ={}), store)
    plain.import_file(file)
    entry = store.tail("s-1", 2)[0]
    assert entry.counter.startswith("claude")
    assert entry.ts == 1_767_225_600_000_000


def test_progress_reports_every_byte_twice(store, chat):
    seen = []
    importer(store).import_file(chat, advance=seen.append)
    assert sum(seen) == 2 * chat.stat().st_size


def test_verify_detects_a_cut_tail_by_a_head_stored_elsewhere(store, chat):
    session = importer(store).import_file(chat).sessions[0]
    head = store.head(session)
    shorter = MemoryStore()
    shorter.append(session, list(store.read(session, 1, head.seq - 1)))
    assert verify(shorter, session).ok
    [found] = verify(shorter, session, {session: head}).findings
    assert found.seq == head.seq
    assert "cut off" in found.problem
    [lost] = verify(MemoryStore(), None, {session: head}).findings
    assert "missing" in lost.problem
    assert store.head("agent:none:main") == EMPTY_HEAD
