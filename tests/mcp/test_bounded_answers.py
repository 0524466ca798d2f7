"""Answers are bounded for any transcript, pages join to the whole text, and no page splits a secret."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from string import ascii_lowercase

import pytest

from recto.config import load
from recto.config.factory import make_indexer, open_session, open_store
from recto.engine.views.codec import to_json
from recto.errors import InputError, RequestRefused
from recto.mcp import _transcript, params, queries
from recto.mcp.context import McpContext
from recto.mcp.queries import MAX_CHARS
from recto.mcp.result_text import render
from recto.mcp.stdio import local_context
from recto.text.secrets import mask_secrets
from recto.text.unicode import prompt_safe
from recto.transcript.session_keys import TenantStore

LARGEST, LARGEST_QUOTATION = 40_000, 24_500
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
TEXTS = ("\n" * 20_000, "a\n" * 5_000, "word " * 8_000, "x" * 100_000, "\x1b[2J\u202e" * 8_000, "> [End]\n" * 3_000)


@pytest.fixture
def desk() -> Iterator[McpContext]:
    settings = load(
        environ={}, arguments={"store": "memory:", "model": "gpt-4o", "recall": {"embedder": {"use": "none"}}}
    )
    with closing(open_store(settings)) as store, closing(make_indexer(settings, store)) as indexer:
        yield local_context(settings, store, indexer, may_change=True)


def append_messages(desk: McpContext, *texts: str) -> None:
    with desk.open_session("") as session:
        for text in texts:
            session.append({"role": "user", "content": f"kestrel {text} kestrel"})


def whole(desk: McpContext, pointer: str) -> str:
    parts: list[str] = []
    start: int | None = 0
    while start is not None:
        found = queries.read(desk, params.ReadParams(pointer=pointer, start=start))
        assert len(found.quotation) <= LARGEST
        lines = found.quotation.split("\n")[2:-1]
        assert all(line.startswith("> ") for line in lines)
        parts.append("\n".join(line.removeprefix("> ") for line in lines))
        (page,) = found.pages
        assert page.next is None or page.next > start
        start = page.next
    return "".join(parts)


def test_the_text_of_a_page_says_how_to_ask_for_the_next(desk):
    append_messages(desk, *(f"said {number * 7_919}" for number in range(70)))
    with desk.open_session("") as session:
        for number in range(3):
            call = {
                "id": f"c{number}",
                "type": "function",
                "function": {"name": "bash", "arguments": '{"cmd": "make"}'},
            }
            session.append({"role": "assistant", "content": None, "tool_calls": [call]})
            session.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
    first = f"recto://{desk.default_session}/1"
    for found, hint in (
        (_transcript.outline(desk, params.OutlineParams(limit=10)), "ask with start=11)"),
        (
            _transcript.grep(desk, params.GrepParams(pattern="kestrel", limit=5, newest_first=False)),
            "ask with start=6)",
        ),
        (_transcript.work(desk, params.WorkParams(command="make", limit=2)), "ask with before="),
        (queries.read(desk, params.ReadParams(pointer=first, through=30)), f"goes on at {first[:-1]}21"),
        (queries.recall(desk, params.RecallParams(query="kestrel said", skip=20, most=20)), "ask with skip=40"),
        (queries.decisions(desk, params.DecisionsParams(before=20)), "up to entry 20."),
    ):
        assert hint in render(found)
    past = queries.read(desk, params.ReadParams(pointer=f"{first[:-1]}70", through=100))
    assert "goes on at" not in render(past)
    last = queries.recall(desk, params.RecallParams(query="kestrel said", skip=40, most=20))
    assert last.next is None
    assert "skip=" not in render(last)
    with pytest.raises(InputError, match="through=1 is before entry 2"):
        queries.read(desk, params.ReadParams(pointer=f"{first[:-1]}2", through=1))


def test_no_answer_is_larger_than_documented_for_any_text(desk):
    append_messages(desk, *TEXTS, *(f"{letter}\n" * 370 for letter in ascii_lowercase))
    for most in (1, 6, 20):
        found = queries.recall(desk, params.RecallParams(query="kestrel", most=most))
        assert found.hits
        assert len(render(found)) <= LARGEST_QUOTATION
    for seq in range(1, len(TEXTS) + 1):
        around = queries.read(desk, params.ReadParams(pointer=f"recto://{desk.default_session}/{seq}", around=3))
        assert len(render(around)) <= LARGEST
    for found in (
        _transcript.outline(desk, params.OutlineParams(limit=100)),
        _transcript.grep(desk, params.GrepParams(pattern="kestrel", limit=100, context=10)),
        _transcript.grep(desk, params.GrepParams(pattern=".", regex=True, limit=100, newest_first=False)),
        queries.read(desk, params.ReadParams(pointer=f"recto://{desk.default_session}/1", through=20)),
    ):
        assert len(render(found)) <= LARGEST_QUOTATION
        assert len(to_json(found)) <= LARGEST + 10_000
    text, following = queries.transcript(desk, "", 0)
    assert len(text) <= LARGEST
    assert following == 10


def test_matches_that_do_not_fit_are_on_the_next_page(desk):
    append_messages(desk, *(f"{number} {'says much ' * 60}" for number in range(90)))
    found, start = [], None
    while True:
        page = _transcript.grep(desk, params.GrepParams(pattern="kestrel", limit=100, start=start, newest_first=False))
        found += [match.seq for match in page.matches]
        start = page.next
        if start is None:
            break
    assert found == list(range(1, 91))


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_pages_join_to_the_whole_message(desk, text):
    append_messages(desk, text)
    assert whole(desk, f"recto://{desk.default_session}/1") == prompt_safe(f"kestrel {text} kestrel")


@pytest.mark.parametrize("before", [MAX_CHARS - distance for distance in (75, 60, 45, 30, 12, 5, 0)])
def test_no_page_cuts_a_secret_in_two(before):
    settings = load(environ={}, arguments={"store": "memory:", "recall": {"enabled": False}})
    with closing(open_store(settings)) as store, open_session(settings, store) as session:
        text = f'{"x" * before}"{SECRET}", and so on'
        session.append({"role": "user", "content": text})
        desk = McpContext(store=TenantStore(store), use=lambda _: session, default_session=settings.session)
        shown = whole(desk, f"recto://{desk.default_session}/1")
        assert SECRET[:20] not in shown
        assert shown == mask_secrets(prompt_safe(text))


@pytest.mark.parametrize("start", [21, 10**9])
def test_a_start_beyond_the_end_of_an_entry_is_refused_with_its_length(desk, start):
    append_messages(desk, "short")
    with pytest.raises(InputError, match="beyond the end of entry 1: it has 21 characters"):
        queries.read(desk, params.ReadParams(pointer=f"recto://{desk.default_session}/1", start=start))


def test_an_entry_beyond_the_end_of_a_session_is_refused_with_its_last_entry(desk):
    assert _transcript.outline(desk, params.OutlineParams(start=3)).entries == ()
    append_messages(desk, "first", "second")
    for call in (
        lambda: queries.read(desk, params.ReadParams(pointer=f"recto://{desk.default_session}/3")),
        lambda: _transcript.outline(desk, params.OutlineParams(start=3)),
        lambda: _transcript.grep(desk, params.GrepParams(pattern="first", start=3, newest_first=False)),
    ):
        with pytest.raises((InputError, RequestRefused), match="there is no entry 3: the session ends at entry 2"):
            call()
    assert _transcript.grep(desk, params.GrepParams(pattern="first", start=3)).matches
