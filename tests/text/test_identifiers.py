"""The names in a text are found, in any script, and quickly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.text.terms import MAX_TERM_LENGTH, clip_middle, find_terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("call parse_header twice", {"parse_header"}),
        ("then fetchUserById(7)", {"fetchUserById"}),
        ("see recto.context.window.state for it", {"recto.context.window.state", "state"}),
        ("MAX_RETRIES and TIMEOUT", {"MAX_RETRIES", "TIMEOUT"}),
        ("open src/app/main.py:42.", {"src/app/main.py", "main.py"}),
        (r"in C:\Users\me\notes.txt now", {r"C:\Users\me\notes.txt", "notes.txt"}),
        ("at https://example.org/a/b?q=1.", {"https://example.org/a/b?q=1".partition("?")[0]}),
        ("error TS2304, E1101 and ENOENT", {"TS2304", "E1101", "ENOENT"}),
        ('the "quarterly sales report" is', {"quarterly sales report"}),
        ("took 30 ms and 4.5 MB, 95%", {"30ms", "4.5MB", "95%"}),
        ("order 4711-0815 of invoice 20391", {"4711-0815", "20391", "invoice"}),
        ("Unfortunately the Migration failed", {"unfortunately", "migration", "failed"}),
        ("файл не найден", {"файл", "найден"}),
        ("数据库连接失败", {"数据", "据库", "库连", "连接", "接失", "失败"}),
    ],
)
def test_each_kind_of_name_is_found(text, found):
    assert found <= find_terms(text)


def test_everybody_s_words_are_nobody_s_terms():
    assert find_terms("there would be a the and of which about it is 12 or so") == frozenset()


def test_a_name_written_in_two_ways_of_unicode_is_one():
    assert find_terms("caf\u00e9teria") == find_terms("cafe\u0301teria")


@given(st.text())
def test_whatever_the_text_its_terms_are_short_and_always_the_same(text):
    known = {}
    found = find_terms(text, cache=known)
    assert found == find_terms(text) == find_terms(text, cache=known)
    assert all(0 < len(term) <= MAX_TERM_LENGTH for term in found)


@given(st.text(max_size=60), st.integers(0, 80))
def test_both_ends_are_looked_at(text, most):
    seen = clip_middle(text, most)
    assert seen == text if len(text) <= most else len(seen) == most + 1
    assert text.startswith(seen.partition("\n")[0]) or "\n" in text


def test_of_a_very_long_text_the_beginning_and_the_end_are_known():
    found = find_terms("first_name " + "x" * 5_000_000 + " last_name")
    assert found == {"first_name", "last_name"}
