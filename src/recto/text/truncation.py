"""Head and tail of one text that is too long, within a number of tokens, with a line between that says what is missing.

The text is counted whole at most once; after that only pieces about as long as what is kept are counted, so that two
megabytes take little longer than counting them.
"""

from __future__ import annotations

from collections.abc import Callable

CountText = Callable[[str], int]

_TRIES = 12
"""How often a piece is counted while its best length is looked for."""
_GOOD = 0.95
"""The share of the allowed tokens that is near enough to stop looking."""
_LINE = 0.8
"""A piece ends at a line's end where one is found in its last fifth."""


def clamp(text: str, max_tokens: int, count: CountText, pointer: str) -> str:
    """The text where it fits, else its head and tail in equal parts.

    Never less than the line that says what is missing: where even that is too much, the caller has to say so.
    """
    whole = count(text)
    if whole <= max_tokens:
        return text
    room = max_tokens - count(_between(whole, pointer)) - 2
    while room > 0:
        made = head_and_tail(text, (room + 1) // 2, room // 2, count, pointer, whole)
        over = count(made) - max_tokens
        if over <= 0:
            return made
        # Pieces can cost more together than apart, by a few tokens where they meet.
        room -= max(over, room // 16, 1)
    return _between(whole, pointer)


def head_and_tail(text: str, head: int, tail: int, count: CountText, pointer: str, whole: int) -> str:
    """The first `head` and the last `tail` tokens of a text of `whole` tokens, or a little less of each."""
    density = len(text) / max(1, whole)
    first = _fitting(text, head, count, density, from_end=False)
    last = _fitting(text[len(first) :], tail, count, density, from_end=True)
    if len(first) + len(last) >= len(text):
        return text
    left_out = max(1, whole - count(first) - count(last))
    return "\n".join(piece for piece in (first, _between(left_out, pointer), last) if piece)


def _between(tokens: int, pointer: str) -> str:
    return f"[… about {tokens:,} tokens left out here; the whole: {pointer} …]"


def _fitting(text: str, tokens: int, count: CountText, density: float, *, from_end: bool) -> str:
    """The longest piece at one end that has at most so many tokens, nearly."""
    length = min(len(text), int(tokens * density) + 1)
    # An end far thinner than the rest, such as a field of spaces, is not followed to where it would cost as much.
    fits, too_long = 0, min(len(text), 2 * length) + 1
    for _ in range(_TRIES):
        if tokens <= 0 or not fits < length < too_long:
            break
        used = count(_piece(text, length, from_end))
        if used > tokens:
            too_long = length
        else:
            fits = length
            if used >= _GOOD * tokens:
                break
        # The density found so far, but never outside of what is known, and by halves where it leads nowhere.
        likely = int(length * tokens * (1 + _GOOD) / 2 / max(1, used))
        length = likely if fits < likely < too_long else (fits + too_long) // 2
    return _at_a_line(_piece(text, fits, from_end), from_end)


def _piece(text: str, length: int, from_end: bool) -> str:
    return text[len(text) - length :] if from_end else text[:length]


def _at_a_line(piece: str, from_end: bool) -> str:
    if from_end:
        end = piece.find("\n", 0, int(len(piece) * (1 - _LINE)))
        return piece[end + 1 :] if end >= 0 else piece
    end = piece.rfind("\n", int(len(piece) * _LINE))
    return piece[:end] if end >= 0 else piece
