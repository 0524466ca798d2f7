"""Patterns that are compiled on first use behave as compiled ones."""

from __future__ import annotations

import re

import pytest

from recto.text.lazy_re import lazy_re

TEXT = "One fish, two fish; RED fish"


def test_a_lazy_pattern_answers_as_a_compiled_one():
    for source, flags in ((r"(\w+) fish", 0), (r"red|two", re.IGNORECASE), (r"(?P<end>sh)\b", 0)):
        compiled = re.compile(source, flags)
        assert lazy_re(source, flags).findall(TEXT) == compiled.findall(TEXT)
        assert lazy_re(source, flags).sub("-", TEXT) == compiled.sub("-", TEXT)
        assert lazy_re(source, flags).split(TEXT) == compiled.split(TEXT)
        assert lazy_re(source, flags).groupindex == compiled.groupindex
        assert [m.span() for m in lazy_re(source, flags).finditer(TEXT)] == [m.span() for m in compiled.finditer(TEXT)]
    assert lazy_re(rb"\d+").fullmatch(b"12") is not None
    assert lazy_re(r"One").match(TEXT) is not None
    assert lazy_re(r"fish").match(TEXT) is None


def test_a_pattern_is_compiled_at_its_first_use_and_once(monkeypatch):
    compiled = []
    compile_pattern = re.compile
    monkeypatch.setattr(re, "compile", lambda *args: compiled.append(args) or compile_pattern(*args))
    pattern = lazy_re(r"fish")
    assert pattern.pattern == "fish"
    assert compiled == []
    assert pattern.search(TEXT)
    assert pattern.search("none") is None
    assert pattern.findall(TEXT)
    assert len(compiled) == 1


def test_a_wrong_pattern_raises_when_it_is_used():
    with pytest.raises(re.error):
        lazy_re("(").search("x")
    with pytest.raises(AttributeError):
        lazy_re("x").unknown  # noqa: B018
