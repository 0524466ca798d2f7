"""Patterns from strangers: they match as `re` does, and no pattern and no line takes longer than its length."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.errors import InputError
from recto.text import line_pattern
from recto.text.line_pattern import LinePattern, byte_filter

ATOMS = (
    *("a", "b", "k", "S", "é", "1", "_", " ", "-", r"\.", ".", r"\d", r"\W", r"\s", "[ab]", "[^a]", "[a-c]", "[]a]"),
    *(r"[\w-]", "[^]x]", "[[a]", "[&&a]", "[+--]"),
)
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "+?")


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.builds("({}{})".format, st.sampled_from(("", "?:")), inner)
    choice = st.builds("({}|{})".format, inner, inner)
    item = st.builds("{}{}".format, st.one_of(st.sampled_from(ATOMS), group, choice), st.sampled_from(REPEATS))
    anchored = st.one_of(item, st.sampled_from(("^", "$", r"\b", r"\B")))
    return st.lists(anchored, min_size=1, max_size=4).map("".join)


PATTERNS = st.recursive(st.sampled_from(ATOMS), repeated, max_leaves=8)
LINES = st.text(st.sampled_from("abkKsSé1_ -.xſ\t]&["), min_size=1, max_size=10)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # `re` warns of sets that it may read otherwise one day
@given(PATTERNS, LINES, st.booleans())
def test_a_pattern_matches_where_re_matches(pattern, line, case):
    expected = re.search(pattern, line, re.DOTALL if case else re.DOTALL | re.IGNORECASE) is not None
    compiled = LinePattern(pattern, regex=True, case=case)
    assert (compiled.search(line) is not None) == expected
    assert compiled.may_match(line) or not expected


@pytest.mark.parametrize("characters", ["[[a]", "[&&a]", "[+--]", "[a||b]", "[~~]", "[^[]"])
def test_a_set_is_read_without_a_warning(characters):
    assert LinePattern(characters, regex=True).search("[&+a|~x") is not None


@given(st.text(min_size=1, max_size=5), st.text(max_size=20))
def test_a_text_is_found_as_it_is_whatever_its_signs(text, line):
    assert LinePattern(text, case=True).search(line + text) is not None
    assert (LinePattern(text, case=True).search(line) is not None) == (text in line)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*$x", "(a|aa)+$", "(.*)*(.*)*(.*)*b", "a?" * 60 + "a" * 60 + "b"])
def test_a_pattern_that_makes_re_hang_ends(pattern):
    assert LinePattern(pattern, regex=True).search("a" * 20_000 + "!") is None


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"(a)\1",
            "(?=a)",
            "(?<!a)b",
            "(?P<x>a)",
            "(?i)a",
            "(a",
            "a)",
            "[a",
            "*a",
            "a**",
            r"\q",
            r"\1",
            "a{3,2}",
            "[z-a]",
        ),
        *("(" * 60 + "a" + ")" * 60, "((a{50}){50}){50}", "", "x" * 501),
    ],
)
def test_a_pattern_that_is_not_known_is_refused_with_what_is(pattern):
    with pytest.raises(InputError, match=r"(the|a) pattern"):
        LinePattern(pattern, regex=True)


def test_the_memory_of_an_automaton_is_bounded(monkeypatch):
    monkeypatch.setattr(line_pattern, "_MAX_CACHED", 50)
    compiled = LinePattern(r"\w[^x]*é$", regex=True)
    assert compiled.search("".join(map(chr, range(0x4E00, 0x4E00 + 3_000))) + "é") is not None
    assert compiled.search("".join(map(chr, range(0x4E00, 0x4E00 + 3_000)))) is None


@given(st.text(min_size=1, max_size=8), st.booleans())
def test_bytes_that_contain_a_text_in_any_json_pass_the_filter(text, ascii):
    content = json.dumps({"a": json.dumps({"b": f"x{text}y"}, ensure_ascii=ascii)}, ensure_ascii=ascii)
    assert byte_filter(text)(content.encode(errors="surrogatepass"))


def test_bytes_without_a_word_do_not_pass_the_filter():
    assert not byte_filter("kestrel nest")(b'{"content": "a kestrel"}')
