"""Cut a long text to its head and tail within a token limit, with a line between that says what is missing.

The full text is counted at most once, and of a very long one only its beginning; after that only pieces about as long
as the result are counted.
"""

from __future__ import annotations

from collections.abc import Callable

CountText = Callable[[str], int]

_MAX_TRIES = 12
"""How often a piece is counted while its best length is searched."""
_GOOD_FILL = 0.95
"""Share of the allowed tokens at which the search stops."""
_LINE_END_SHARE = 0.8
"""A piece ends at a line end if there is one in its last fifth."""
_LONG_CHARS = 1 << 20
"""Characters of a text that is not counted to its end to find that it does not fit."""
_MAX_CHARS_PER_TOKEN = 8
"""Characters of such a text that are counted for each allowed token."""


def clamp(text: str, max_tokens: int, count: CountText, pointer: str) -> str:
    """The text if it fits, else its head and tail in equal parts.

    The result is never less than the line that says what is missing, even if that alone exceeds the limit.
    """
    total = _count_until(text, max_tokens, count)
    if total <= max_tokens:
        return text
    available = max_tokens - count(_omission_line(total, pointer)) - 2
    while available > 0:
        clamped = head_and_tail(text, (available + 1) // 2, available // 2, count, pointer, total)
        over = count(clamped) - max_tokens
        if over <= 0:
            return clamped
        # Pieces can cost a few tokens more together than apart.
        available -= max(over, available // 16, 1)
    return _omission_line(total, pointer)


def _count_until(text: str, max_tokens: int, count: CountText) -> int:
    """The tokens of a text; of a very long one whose beginning exceeds the limit, about as many as it has."""
    head = text[: max(max_tokens, 1) * _MAX_CHARS_PER_TOKEN]
    if len(head) < len(text) > _LONG_CHARS and (tokens := count(head)) > max_tokens:
        return tokens * len(text) // len(head)
    return count(text)


def head_and_tail(text: str, head: int, tail: int, count: CountText, pointer: str, total: int) -> str:
    """The first `head` and the last `tail` tokens of a text of `total` tokens, or slightly less of each."""
    density = len(text) / max(1, total)
    first = _longest_fitting(text, head, count, density, from_end=False)
    last = _longest_fitting(text[len(first) :], tail, count, density, from_end=True)
    if len(first) + len(last) >= len(text):
        return text
    omitted = max(1, total - count(first) - count(last))
    return "\n".join(piece for piece in (first, _omission_line(omitted, pointer), last) if piece)


def _omission_line(tokens: int, pointer: str) -> str:
    return f"[… about {tokens:,} tokens left out here; the whole: {pointer} …]"


def _longest_fitting(text: str, tokens: int, count: CountText, density: float, *, from_end: bool) -> str:
    """The longest piece at one end with at most `tokens` tokens, approximately."""
    length = min(len(text), int(tokens * density) + 1)
    # An end much less dense than the rest, such as a run of spaces, is not extended until it costs as much.
    fits, too_long = 0, min(len(text), 2 * length) + 1
    for _ in range(_MAX_TRIES):
        if tokens <= 0 or not fits < length < too_long:
            break
        used = count(_piece(text, length, from_end))
        if used > tokens:
            too_long = length
        else:
            fits = length
            if used >= _GOOD_FILL * tokens:
                break
        # Use the density found so far, within the known bounds; bisect if that makes no progress.
        likely = int(length * tokens * (1 + _GOOD_FILL) / 2 / max(1, used))
        length = likely if fits < likely < too_long else (fits + too_long) // 2
    return _cut_at_line(_piece(text, fits, from_end), from_end)


def _piece(text: str, length: int, from_end: bool) -> str:
    return text[len(text) - length :] if from_end else text[:length]


def _cut_at_line(piece: str, from_end: bool) -> str:
    if from_end:
        end = piece.find("\n", 0, int(len(piece) * (1 - _LINE_END_SHARE)))
        return piece[end + 1 :] if end >= 0 else piece
    end = piece.rfind("\n", int(len(piece) * _LINE_END_SHARE))
    return piece[:end] if end >= 0 else piece
