"""Long texts are split at natural boundaries, and the relevant piece of each is found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recto.recall.documents import excerpt, passages

TEXTS = st.text(alphabet=st.sampled_from("ab \n.。!?؟,"), max_size=400) | st.text(max_size=200)


@given(TEXTS, st.integers(5, 60), st.integers(2, 8))
def test_nothing_is_lost_and_nothing_is_too_long(text, size, most):
    found = passages(text, size, most)
    whole = passages(text, size, 10_000)
    assert "".join(whole) == (text if text.strip() else "")
    assert all(0 < len(piece) <= size for piece in found)
    assert len(found) <= most
    if len(whole) <= most:
        assert found == whole
    else:
        assert found[: most - 1] == whole[: most - 1]
        assert text.endswith(found[-1])


def test_a_text_is_cut_between_paragraphs_first():
    text = "One two three. Four five.\n\nSix seven.\nEight nine.\n\nTen."
    assert passages(text, 30) == ["One two three. Four five.\n\n", "Six seven.\nEight nine.\n\nTen."]


def test_a_text_is_then_cut_between_lines_sentences_and_words():
    assert passages("aaaa bbbb\ncccc dddd", 12) == ["aaaa bbbb\n", "cccc dddd"]
    assert passages("Aaaa bbbb. Cccc dddd.", 12) == ["Aaaa bbbb. ", "Cccc dddd."]
    assert passages("一二三四。五六七八。", 6) == ["一二三四。", "五六七八。"]
    assert passages("ما هذا؟نعم هو", 8) == ["ما هذا؟", "نعم هو"]
    assert passages("aaaa bbbb cccc", 10) == ["aaaa bbbb ", "cccc"]
    assert passages("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]


def test_the_first_pieces_and_the_last_of_a_very_long_text_are_kept():
    text = "".join(f"sentence number {number}. " for number in range(100_000))
    found = passages(text, 1000, 8)
    assert len(found) == 8
    assert text.startswith("".join(found[:7]))
    assert text.endswith(found[7])


def wants(*words):
    return lambda pieces: [float(sum(word in piece for word in words)) for piece in pieces]


def test_a_short_text_is_its_own_excerpt():
    assert excerpt("all of it", wants("x"), 100) == "all of it"


def test_an_excerpt_has_the_matching_pieces_in_order_with_gaps_shown():
    filler = "Nothing of note happened here on that day at all. " * 6
    text = f"{filler}The port is 5433. {filler}The host is db1. {filler}"
    found = excerpt(text, wants("port", "host"), 600)
    assert found.index("port") < found.index("host")
    assert found.startswith("… ")
    assert found.endswith(" …")
    assert len(found) <= 600


def test_a_short_first_line_is_kept_as_it_names_the_speaker():
    text = "From: Anna\n" + "Lorem ipsum dolor sit amet. " * 40 + "The key is under the mat. " + "Lorem ipsum. " * 40
    found = excerpt(text, wants("mat"), 400)
    assert found.startswith("From: Anna")
    assert "under the mat" in found


def test_without_a_match_the_excerpt_is_the_beginning_of_the_text():
    text = "word " * 200
    assert excerpt(text, wants("absent"), 50) == ("word " * 10)[:48].rstrip() + " …"


@given(TEXTS, st.integers(0, 120), st.sampled_from("ab."))
def test_an_excerpt_never_exceeds_its_limit_and_is_deterministic(text, limit, letter):
    found = excerpt(text, wants(letter), limit)
    assert len(found) <= limit or found == text
    assert len(found) <= max(limit, 0)
    assert found == excerpt(text, wants(letter), limit)


def test_an_excerpt_with_many_gaps_keeps_its_limit_and_uses_it():
    text = "".join(f"Line {number} {'x' * (number % 37)} {'!' if number % 3 else 'wanted'}.\n" for number in range(300))
    for limit in range(12, 700):
        found = excerpt(text, wants("wanted"), limit)
        assert len(found) <= limit
        assert limit < 100 or len(found) > limit // 2


def test_an_excerpt_of_ten_million_characters_is_made_quickly():
    seen = []
    found = excerpt("a b\n" * 2_500_000, lambda pieces: seen.extend(pieces) or [1.0] * len(pieces), 500)
    assert len(found) <= 500
    assert len(seen) < 3_000
