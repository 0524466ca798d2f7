"""Where a made-up session stands: its turn, its chance, and values that it has never used before.

Values are taken in the order of a permutation, so that none comes twice and none has to be remembered. Numbers of seven
digits and the words of answers stand nowhere else in a session.
"""

from __future__ import annotations

from typing import Final

from recto.testing.simulation import words
from recto.testing.simulation.dice import Dice

TURN_CHARACTERS: Final = 14_000
"""What the results of one turn have at most: they are in flight together, and small windows must hold them."""
RESULT_CHARACTERS: Final = 6_000
FURTHEST: Final = 8_192
"""Turns between a fact and its question, at most."""
_CODES: Final = 8_999_993  # a prime, so that every step goes through all of them
_PHRASES: Final = 64**3
_SUBJECTS: Final = 64**3


class Scene:
    """Goes from turn to turn."""

    __slots__ = ("_codes", "_phrases", "_room", "_subjects", "dice", "turn")

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.turn = 0
        self._codes = self.dice.below(_CODES)
        self._phrases = self.dice.below(_PHRASES)
        self._subjects = self.dice.below(_SUBJECTS)
        self._room = TURN_CHARACTERS

    def next_turn(self) -> None:
        """Another turn begins."""
        self.turn += 1
        self._room = TURN_CHARACTERS

    def gap(self) -> int:
        """How many turns pass before a fact is needed: never more than have passed already, so far ones come late."""
        return self.dice.gap(min(max(self.turn, 8), FURTHEST))

    def size(self, median: int) -> int:
        """How long the next result is, in characters, as far as the turn has room for it."""
        return self.room_for(self.dice.length(median))

    def room_for(self, size: int) -> int:
        """So much of a size as the turn has room for."""
        size = max(min(size, RESULT_CHARACTERS, self._room), 0)
        self._room -= size
        return size

    def code(self) -> str:
        """A number of seven digits that was never there before."""
        self._codes = (self._codes + 3_627_913) % _CODES
        return str(1_000_000 + self._codes)

    def phrase(self) -> str:
        """Three words that never stood together before."""
        self._phrases = (self._phrases + 97_283) % _PHRASES
        first, rest = divmod(self._phrases, 64 * 64)
        second, third = divmod(rest, 64)
        return f"{words.ANSWER_FIRST[first]} {words.ANSWER_SECOND[second]} {words.ANSWER_THIRD[third]}"

    def part(self) -> str:
        """A part of a system: three words that come again only after a very long time."""
        first, second, third = self._subject()
        return f"{words.HUES[first]}-{words.PLACES[second]}-{words.PARTS[third]}"

    def matter(self) -> str:
        """Something to look into."""
        first, second, third = self._subject()
        return f"{words.MATTERS[first]} of {words.HUES[second]} {words.PLACES[third]}"

    def person(self) -> str:
        """Somebody. Names come again, so that it is said where they are from."""
        first, second, third = self._subject()
        return f"{words.FIRST_NAMES[first]} {words.SURNAMES[second]} from the {words.PLACES[third]}"

    def _subject(self) -> tuple[int, int, int]:
        self._subjects = (self._subjects + 151_067) % _SUBJECTS
        first, rest = divmod(self._subjects, 64 * 64)
        return first, rest // 64, rest % 64
