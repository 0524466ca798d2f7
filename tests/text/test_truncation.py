"""One text that is too long keeps its head and tail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recto.text.truncation import clamp
from recto.tokens.meter import byte_bound, counter_named, plain_estimate

POINTER = "recto://agent:default:main/57"
LEAST = clamp("x " * 10_000, 0, byte_bound, POINTER)


class Counted:
    """A counter that remembers how much it was asked to count."""

    def __init__(self, count):
        self.count = count
        self.characters = 0

    def __call__(self, text: str) -> int:
        self.characters += len(text)
        return self.count(text)


def thin_spaces(text: str) -> int:
    """A quick counter that makes little of spaces, as real ones do."""
    return len(text) // 3 - text.count(" ") * 33 // 100


def dear_breaks(text: str) -> int:
    """A counter for which pieces cost more joined by lines than each by itself."""
    return len(text) + 50 * text.count("\n")


PIECES = st.sampled_from(["word ", "日本", "\n", "0xdeadbeef", " " * 40, "🙂", "}{][", "a" * 30, "line of text\n"])


@given(
    pieces=st.lists(st.tuples(PIECES, st.integers(1, 400)), max_size=12),
    most=st.integers(0, 3_000),
    count=st.sampled_from([byte_bound, plain_estimate, len, dear_breaks, counter_named("o200k").count]),
)
def test_what_comes_out_fits_and_is_made_of_both_ends(pieces, most, count):
    text = "".join(piece * times for piece, times in pieces)
    made = clamp(text, most, count, POINTER)
    if count(text) <= most:
        assert made == text
        return
    before, _, rest = made.partition("[… about ")
    after = rest.partition("…]")[2]
    assert POINTER in made
    assert text.startswith(before.removesuffix("\n"))
    assert text.endswith(after.removeprefix("\n"))
    assert count(made) <= most or not (before or after)


def test_where_nothing_fits_the_pointer_is_still_said():
    assert LEAST.startswith("[… about 20,000 tokens left out here")
    assert POINTER in LEAST


def test_the_room_is_used_and_lines_stay_whole():
    text = "".join(f"{number}: something happened here\n" for number in range(50_000))
    made = clamp(text, 2_000, plain_estimate, POINTER)
    assert 1_700 < plain_estimate(made) <= 2_000
    head, tail = made.split("\n[…")[0], made.split("…]\n")[1]
    assert head.splitlines() == text.splitlines()[: len(head.splitlines())]
    assert tail.splitlines() == text.splitlines()[-len(tail.splitlines()) :]
    assert 0.5 < len(head) / len(tail) < 2


def test_two_megabytes_are_counted_little_more_than_once():
    hard = " " * 900_000 + "0xdeadbeef" * 100_000 + "\n" * 100_000
    for text in ("some words of text\n" * 105_000, hard, hard[::-1], "x" * 2_000_000):
        for most in (100, 5_000, 50_000):
            counted = Counted(thin_spaces)
            assert thin_spaces(clamp(text, most, counted, POINTER)) <= most
            assert counted.characters < 4 * len(text)
