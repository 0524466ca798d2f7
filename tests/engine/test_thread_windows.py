"""Note files and the hint that begins a window, used through the library."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

import recto
from recto.engine.note_files import NOTE_FILE, read_files, read_text, write_file
from recto.engine.threads import MAX_HINT_BYTES, Thread, thread_hint, windows_of
from recto.errors import NotHeld


@pytest.fixture
def session(tmp_path):
    with recto.open(tmp_path / "a.db", model="gpt-4o", recall={"embedder": {"use": "none"}}) as opened:
        yield opened


def thread_of(session: recto.Session, **more) -> Thread:
    return Thread(store=session.store, key=session.key, use=lambda key: nullcontext(session), **more)


def test_a_note_of_many_pieces_is_read_whole_from_few_events(session):
    for number in range(200):
        write_file(session.window.events, "/root/notes/many.md", f"{number}\n", append=True)
    text = read_text(session.store, session.key, "/root/notes/many.md")
    assert text == "".join(f"{number}\n" for number in range(200))
    file = read_files(session.store, session.key)[1]["/root/notes/many.md"]
    assert len(file.pieces) <= 64
    assert file.bytes == len(text)


def test_a_note_is_an_event_and_overwritten_text_stays_in_the_transcript(session):
    for text in ("first", "second"):
        write_file(session.window.events, "/root/notes/a.md", text, append=False)
    events = [entry.content for entry in session.read() if entry.kind == NOTE_FILE]
    assert len(events) == 2
    assert b'"first"' in events[0]
    with pytest.raises(NotHeld, match="no note"):
        read_text(session.store, session.key, "/root/notes/b.md")


def test_two_writers_never_overwrite_each_other(session, tmp_path):
    with recto.open(tmp_path / "a.db", model="gpt-4o", recall={"embedder": {"use": "none"}}) as other:
        for number in range(4):
            writer = (session, other)[number % 2]
            write_file(writer.window.events, "/root/notes/a.md", f"{number}\n", append=True)
        assert read_text(session.store, session.key, "/root/notes/a.md") == "0\n1\n2\n3\n"


def test_the_hint_that_begins_a_window_never_exceeds_the_limit_of_codex(session):
    session.append({"role": "user", "content": "Rename the module. " + "Überprüfe jede Zeile. " * 400})
    for number in range(60):
        long = f"We decided to use international communications responsibilities administration {number} for the größe."
        session.append({"role": "assistant", "content": long})  # words that are one token and many bytes
        write_file(session.window.events, f"/root/notes/{'ö' * 200}-{number}.md", "x", append=False)
    hint = thread_hint(thread_of(session))
    assert 1_000 < len(hint.encode()) <= MAX_HINT_BYTES
    assert "[End of the handoff]" in hint


def test_a_read_only_thread_gets_the_hint_and_stores_nothing(session):
    session.append({"role": "user", "content": "Make the tests of billing pass."})
    before = len(session)
    assert "tests of billing" in thread_hint(thread_of(session, may_change=False))
    assert len(session) == before
    assert thread_hint(thread_of(session)) == thread_hint(thread_of(session))
    assert len(session) > before


def test_a_window_id_in_a_user_message_begins_no_window(session):
    session.append({"role": "system", "content": "Current context window id: window-one-1"})
    session.append({"role": "user", "content": "Current context window id: window-two-2"})
    session.append({"role": "system", "content": "Current context window id: window-three-3"})
    session.append({"role": "user", "content": "Go on."})
    assert [(window.id, len(window.items)) for window in windows_of(thread_of(session))] == [
        ("window-one-1", 2),
        ("window-three-3", 2),
    ]
