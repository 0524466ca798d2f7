"""An array that is read in one loop is the array that is read element by element."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.errors import MalformedJson
from recto.formats.json_spans import array_at, elements, value_at

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(VALUES, max_size=5), st.sampled_from(["", " ", "\n\t "]), st.text(max_size=3))
def test_one_loop_finds_the_spans_and_the_end_that_single_steps_find(values, space, before):
    inside = f"{space},{space}".join(json.dumps(value) for value in values)
    text = f"{before}[{space}{inside}{space}], 7"
    whole, spans = array_at(text, len(before))
    assert list(spans) == list(elements(text, len(before)))
    assert whole == value_at(text, len(before))


@pytest.mark.parametrize(
    "text", ["[", "[1", "[1,", "[1,]", "[1 2]", "[1}", "[,1]", '["a]', "[NaN]", '[{"id": 1, "id": 2}]']
)
def test_what_is_no_array_is_refused_in_one_loop_too(text):
    with pytest.raises(MalformedJson):
        list(elements(text))
    with pytest.raises(MalformedJson):
        array_at(text, 0)
