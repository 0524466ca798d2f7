"""The days a question means: written dates, and words such as `yesterday` or `two weeks ago`, from a given moment.

Questions are about history, so every date without a year is the latest one that has come, and nothing lies in the
future. Days are days in UTC. English is read in full, the common forms of German, French and Spanish too, and the dates
of Chinese and Japanese. What time it is now is told by the caller; the clock is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeAlias

from recto.core.references import ends_of
from recto.engine.date_forms import READERS, Days, any_of
from recto.engine.date_words import WEEKDAYS

_MOST = 4_000
"""Characters of a question that are read."""
_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Span:
    """Some days in a row, and the words that name them."""

    start: int
    """Microseconds since 1970."""
    end: int
    """The first moment after them."""
    words: str


_Found: TypeAlias = tuple[int, int, Days]
"""Where it stands in the text, and what it means."""


def spans_in(text: str, now: int) -> list[Span]:
    """The days named in a text, in its order. `now` is in microseconds since 1970. Empty where none is named."""
    try:
        today = _EPOCH + timedelta(days=now // _DAY)
        looked = ends_of(text, _MOST).replace("’", "'")
        atoms = _without_overlaps(_atoms(looked, today))
        found = [_span(looked, *one, today) for one in _joined(looked, atoms, today)]
    except OverflowError:
        return []
    return [span for span in found if span is not None]


def _span(text: str, start: int, end: int, days: Days, today: date) -> Span | None:
    """Cut off at the end of today; nothing where all of it is still to come."""
    first, after = days[0], min(days[1], today + timedelta(days=1))
    if first >= after:
        return None
    return Span(_moment(first), _moment(after), text[start:end])


def _moment(day: date) -> int:
    return (day - _EPOCH).days * _DAY


def _atoms(text: str, today: date) -> Iterator[_Found]:
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    for pattern, reader in READERS:
        for found in pattern.finditer(lowered):
            try:
                days = reader(found, today)
            except ValueError:
                continue
            if days is not None and not _is_verb(text, found):
                yield (found.start("said"), found.end("said"), days)


def _is_verb(text: str, found: re.Match[str]) -> bool:
    """Whether it is rather the verb: `you may 3 times`. A month has a capital, or a word that leads to it."""
    said = text[found.start("said") : found.end("said")]
    if not said.startswith(("may", "march")) or found.groupdict().get("y"):
        return False
    return not _LEADS.search(text[max(0, found.start("said") - 12) : found.start("said")])


def _without_overlaps(found: Iterator[_Found]) -> list[_Found]:
    """Of readings that overlap the one that says most."""
    kept: list[_Found] = []
    for one in sorted(found, key=lambda atom: (atom[0], -atom[1])):
        if not kept or one[0] >= kept[-1][1]:
            kept.append(one)
    return kept


_BETWEEN = re.compile(
    r"\s*(?:and|to|until|till|through|und|bis(?: zum)?|et|au|y|al?|hasta|[–—-]|から|到|至)(?: the| el"
    r"| le)?\s*",
    re.IGNORECASE,
)
_FROM = re.compile(r"(?:between|from|zwischen|von|vom|entre|de|du|del)(?: the| el| le| dem)?\s+$", re.IGNORECASE)
_LEADS = re.compile(r"\b(?:on|in|since|before|after|until|from|between|and|to|of|by|last|during|early|late|mid|the) $")
_SINCE = re.compile(
    r"(?:since|starting|ever since|seit(?: dem)?|ab|depuis|desde|à partir du)(?: the| le| el)?\s+$", re.IGNORECASE
)
_AFTER = re.compile(r"(?:after|nach(?: dem)?|après|después del?)(?: the| le| el)?\s+$", re.IGNORECASE)
_BEFORE = re.compile(
    r"(?:before|prior to|until|vor(?: dem)?|bis(?: zum)?|avant|jusqu'(?:à|au|en)|antes del?"
    r"|hasta)(?: the| le| el)?\s+$",
    re.IGNORECASE,
)


def _joined(text: str, atoms: list[_Found], today: date) -> Iterator[_Found]:
    """Two dates with `and` or `to` between them become one span, `since` and `before` open a span on one side."""
    atoms = [one for place, one in enumerate(atoms) if not _is_named_again(text, one, atoms[place + 1 : place + 2])]
    place = 0
    while place < len(atoms):
        start, end, days = atoms[place]
        before = text[max(0, start - 24) : start]
        if place + 1 < len(atoms) and _FROM.search(before):
            start_next, end_next, until = atoms[place + 1]
            if start_next - end <= 20 and _BETWEEN.fullmatch(text[end:start_next]) and days[0] < until[1]:
                yield (start, end_next, (days[0], until[1]))
                place += 2
                continue
        for pattern, opened in (
            (_SINCE, (days[0], today + timedelta(days=1))),
            (_AFTER, (days[1], today + timedelta(days=1))),
            (_BEFORE, (_EPOCH, days[0])),
        ):
            if led := pattern.search(before):
                start, days = start - len(before) + led.start(), opened
                break
        yield (start, end, days)
        place += 1


def _is_named_again(text: str, one: _Found, after: list[_Found]) -> bool:
    """Whether a weekday is followed by its date, as in `on Monday, May 8`."""
    is_weekday = _OF_WEEK.search(text[one[0] : one[1]])
    return bool(is_weekday and after and _COMMA.fullmatch(text[one[1] : after[0][0]]))


_OF_WEEK = re.compile(rf"(?:{any_of(WEEKDAYS)})$", re.IGNORECASE)
_COMMA = re.compile(r",? (?:the |den |le |el )?")
