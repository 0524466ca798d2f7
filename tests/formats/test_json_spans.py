"""Reading an array in one pass gives the same result as reading it element by element."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.errors import MalformedJson
from recto.formats.json_spans import array_at, elements, parse, value_at

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(VALUES, max_size=5), st.sampled_from(["", " ", "\n\t "]), st.text(max_size=3))
def test_a_single_pass_finds_the_same_spans_and_end_as_single_steps(values, space, before):
    inside = f"{space},{space}".join(json.dumps(value) for value in values)
    text = f"{before}[{space}{inside}{space}], 7"
    whole, spans = array_at(text, len(before))
    assert list(spans) == list(elements(text, len(before)))
    assert whole == value_at(text, len(before))


@pytest.mark.parametrize(
    "text", ["[", "[1", "[1,", "[1,]", "[1 2]", "[1}", "[,1]", '["a]', "[NaN]", '[{"id": 1, "id": 2}]']
)
def test_an_invalid_array_is_refused_in_a_single_pass_too(text):
    with pytest.raises(MalformedJson):
        list(elements(text))
    with pytest.raises(MalformedJson):
        array_at(text, 0)


LONG = "9" * 5_000
"""More digits than Python converts to an integer."""


def test_a_number_of_any_length_is_read_and_errors_after_it_are_refused():
    assert parse(f'{{"a": {LONG}}}') == {"a": float("inf")}
    assert [span.value for span in array_at(f"[1, {LONG}, 2]", 0)[1]] == [1, float("inf"), 2]
    for wrong in (f'{{"a": {LONG}, }}', f"[{LONG}, NaN]", f'{{"id": {LONG}, "id": 1}}', f"[{LONG},"):
        with pytest.raises(MalformedJson):
            parse(wrong)


@given(VALUES, st.sampled_from(["", " ", "\n"]), st.sampled_from(["", " ", "\r\n"]))
def test_space_around_a_value_does_not_matter_and_anything_else_is_refused(value, before, behind):
    text = f"{before}{json.dumps(value)}{behind}"
    assert parse(text) == value
    with pytest.raises(MalformedJson):
        parse(f"{text},")
