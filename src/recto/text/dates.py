"""The days a question means: written dates, and words such as `yesterday` or `two weeks ago`, from a given moment.

Questions are about history, so every date without a year is the latest one that has come, and nothing lies in the
future. Days are days in UTC. English is read in full, the common forms of German, French and Spanish too, and the dates
of Chinese and Japanese. What time it is now is told by the caller; the clock is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeAlias

from recto.text.identifiers import ends_of

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar jänner janvier enero",
            "february feb februar février febrero",
            "march mar märz mars marzo",
            "april apr avril abril",
            "may mai mayo",
            "june jun juni juin junio",
            "july jul juli juillet julio",
            "august aug août agosto",
            "september sept sep septembre septiembre",
            "october oct oktober okt octobre octubre",
            "november nov novembre noviembre",
            "december dec dezember dez décembre diciembre",
        ),
        1,
    )
    for name in names.split()
}
WEEKDAYS = {
    name: number
    for number, names in enumerate(
        (
            "monday montag lundi lunes",
            "tuesday dienstag mardi martes",
            "wednesday mittwoch mercredi miércoles",
            "thursday donnerstag jeudi jueves",
            "friday freitag vendredi viernes",
            "saturday samstag samedi sábado",
            "sunday sonntag dimanche domingo",
        )
    )
    for name in names.split()
}
NUMBERS = {
    name: number
    for number, names in enumerate(
        (
            "a an one ein eine einem einer un une una uno 一",
            "two couple zwei deux dos 两 二",
            "three drei trois tres 三",
            "four vier quatre cuatro 四",
            "five fünf cinq cinco 五",
            "six sechs seis 六",
            "seven sieben sept siete 七",
            "eight acht huit ocho 八",
            "nine neun neuf nueve 九",
            "ten zehn dix diez 十",
            "eleven elf onze once",
            "twelve zwölf douze doce",
        ),
        1,
    )
    for name in names.split()
}
UNITS = {
    name: unit
    for unit, names in {
        "day": "day days tag tage tagen jour jours día días dia dias 天 日",
        "week": "week weeks woche wochen semaine semaines semana semanas 周 週間",
        "month": "month months monat monate monaten mois mes meses 个月 ヶ月",
        "year": "year years jahr jahre jahren an ans année années año años 年",
    }.items()
    for name in names.split()
}
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month in which each begins, in the north."""


Days: TypeAlias = tuple[date, date]
"""The first day, and the first one after."""
Reader: TypeAlias = Callable[[re.Match[str], date], Days | None]
"""Tells what a form means, seen from today. Raises `ValueError` for a day that no calendar has."""


def any_of(names: dict[str, int] | dict[str, str]) -> str:
    """A pattern for any of the words, the longest first."""
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))


_MONTH, _WEEKDAY, _UNIT = any_of(MONTHS), any_of(WEEKDAYS), any_of(UNITS)
_COUNT = rf"\d{{1,3}}|(?:a )?couple of|(?:a )?couple|a few|few|several|{any_of(NUMBERS)}"
_YEAR = r"((?:19|20)\d\d)(?![\d.,]?\d|%)"
_NO_AMOUNT = (
    r"(?! ?(?:words|steps|items|users|people|dollars|euros|tokens|lines|files|rows|ms|px|miles"
    r"|calories|points))"
)


def _one_day(day: date) -> Days:
    return day, day + timedelta(days=1)


def _month_of(year: int, month: int, count: int = 1) -> Days:
    """Some months in a row; the month may lie before or after the year it is counted from."""
    first, after = year * 12 + month - 1, year * 12 + month - 1 + count
    return date(first // 12, first % 12 + 1, 1), date(after // 12, after % 12 + 1, 1)


def _latest(day: int, month: int, today: date) -> Days:
    """That day of the year, the last time it came. The 29th of February may be four years ago."""
    for year in range(today.year, today.year - 9, -1):
        try:
            found = date(year, month, day)
        except ValueError:
            continue
        if found <= today:
            return _one_day(found)
    raise ValueError("no such day")


def _iso(found: re.Match[str], _: date) -> Days:
    return _one_day(date(int(found["y"]), int(found["m"]), int(found["d"])))


def _slashes(found: re.Match[str], _: date) -> Days:
    """Month first, as in the United States, unless that cannot be."""
    month, day, year = int(found[2]), int(found[3]), int(found[4])
    if month > 12:
        month, day = day, month
    return _one_day(date(year + 2000 if year < 100 else year, month, day))


def _written(found: re.Match[str], today: date) -> Days:
    day, month = int(found["d"]), MONTHS[found["m"]]
    return _one_day(date(int(found["y"]), month, day)) if found["y"] else _latest(day, month, today)


def _month(found: re.Match[str], today: date) -> Days:
    month = MONTHS[found["m"]]
    if found["y"]:
        return _month_of(int(found["y"]), month)
    passed = month < today.month or (month == today.month and "last" not in (found["how"] or ""))
    return _month_of(today.year if passed else today.year - 1, month)


def _east_asian(found: re.Match[str], today: date) -> Days:
    year, month, day = (int(found[name]) if found[name] else None for name in "ymd")
    if month is None:
        return _month_of(year or today.year, 1, 12)
    if day is None:
        return _month_of(year or today.year - (month > today.month), month)
    return _one_day(date(year, month, day)) if year else _latest(day, month, today)


def _back(days: int) -> Reader:
    return lambda _, today: _one_day(today - timedelta(days=days))


def _count(written: str) -> tuple[int, int]:
    """The least and the most that a number word means."""
    if written.isdecimal():
        return int(written), int(written)
    if "couple" in written:
        return 2, 3
    if written in ("a few", "few", "several"):
        return 2, 6
    return NUMBERS[written], NUMBERS[written]


_LENGTHS = {"day": (1, 0), "week": (7, 3), "month": (30, 15), "year": (365, 183)}
"""Days of each unit, and how far from the day it is counted to people are when they say `two months ago`."""


def _ago(found: re.Match[str], today: date) -> Days:
    (least, most), (length, blur) = _count(found["n"]), _LENGTHS[UNITS[found["u"]]]
    return today - timedelta(days=most * length + blur), today - timedelta(days=least * length - blur - 1)


def _past(found: re.Match[str], today: date) -> Days:
    days = _count(found["n"])[1] if found["n"] else 1
    return today - timedelta(days=days * _LENGTHS[UNITS[found["u"]]][0]), today + timedelta(days=1)


_MIDWEEK = range(1, 5)
"""Tuesday to Friday: far from the last weekend, near to the next."""


def _calendar(found: re.Match[str], today: date) -> Days | None:
    """`last week`, `this month`: weeks begin on Monday."""
    back = 0 if _THIS.match(found["how"]) else 1
    match UNITS.get(found["u"], found["u"]):
        case "week":
            monday = today - timedelta(days=today.weekday() + 7 * back)
            return monday, monday + timedelta(days=7)
        case "month":
            return _month_of(today.year, today.month - back)
        case "year":
            return _month_of(today.year - back, 1, 12)
        case "quarter":
            return _month_of(today.year, (today.month - 1) // 3 * 3 + 1 - 3 * back, 3)
        case _:
            saturday = today - timedelta(days=(today.weekday() - 5) % 7)
            if not back and today.weekday() in _MIDWEEK:
                return None  # the one to come is meant
            saturday -= timedelta(days=7 if back and saturday + timedelta(days=1) >= today else 0)
            return saturday, saturday + timedelta(days=2)


def _weekday(found: re.Match[str], today: date) -> Days:
    back = (today.weekday() - WEEKDAYS[found["w"]]) % 7
    return _one_day(today - timedelta(days=back if back or _THIS.match(found["how"]) else 7))


def _year(found: re.Match[str], _: date) -> Days:
    return _month_of(int(found["y"]), 1, 12)


def _season(found: re.Match[str], today: date) -> Days:
    month, year = SEASONS[found["s"]], found["y"]
    if year:
        return _month_of(int(year), month, 3)
    days = _month_of(today.year, month, 3)
    over = days[1] if found["how"].startswith("last") else days[0]
    return days if over <= today else _month_of(today.year - 1, month, 3)


def _french_yesterday(found: re.Match[str], today: date) -> Days | None:
    return _one_day(today - timedelta(days=1)) if _FRENCH.search(found.string) else None


_FRENCH = re.compile(r"\b(?:j'ai|qu'|que|quoi|avons|avez|nous|vous|je|tu|était|est-ce|dit|c'était)")
_THIS = re.compile(r"this|diese|cette|ce |esta?e? |今|这|本")
_NTH = r"(?:st|nd|rd|th|er|\.)?"
_SAYS_MONTH = (
    r"in|during|since|until|before|after|from|between|last|this past|im|seit|letzten|en|depuis|desde|pendant|durante|of"
    r"|early|late|mid|and|to"
)


def _reads(pattern: str, reader: Reader) -> tuple[re.Pattern[str], Reader]:
    return re.compile(pattern, re.ASCII if pattern.isascii() and "\\b" not in pattern else 0), reader


READERS = (
    _reads(
        r"(?<![\d.-])(?P<said>(?P<y>(?:19|20)\d\d)(?P<sep>[-/.])(?P<m>\d{1,2})(?P=sep)(?P<d>\d{1,2}))"
        r"(?![\d-]|\.\d)",
        _iso,
    ),
    _reads(r"(?<![\d.])(?P<said>(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>(?:19|20)\d\d))(?!\d|\.\d)", _iso),
    _reads(r"(?<![\d/])(?P<said>(\d{1,2})/(\d{1,2})/((?:19|20)?\d\d))(?![\d/])", _slashes),
    _reads(
        rf"\b(?P<said>(?P<d>\d{{1,2}}){_NTH}(?: of| de)? (?P<m>{_MONTH})\b\.?(?:,?(?: de| del)? "
        rf"(?P<y>{_YEAR}))?)",
        _written,
    ),
    _reads(
        rf"\b(?P<said>(?P<m>{_MONTH})\b\.? (?:the )?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?![\d%:]"
        rf"|[.,]\d)(?:,? (?P<y>{_YEAR}))?)",
        _written,
    ),
    _reads(rf"\b(?P<how>)(?P<said>(?P<m>{_MONTH})\b\.?,?(?: of| de| del)? (?P<y>{_YEAR}))", _month),
    _reads(
        rf"\b(?P<how>{_SAYS_MONTH}) (?P<said>(?P<m>{_MONTH}))\b(?! (?:be|have|not|i|we|you|on|also|need"
        r"|want|\d))(?P<y>)",
        _month,
    ),
    _reads(r"(?<!\d)(?P<said>(?P<y>(?:19|20)\d\d)-(?P<m>0[1-9]|1[0-2]))(?P<d>)(?![\d-])", _east_asian),
    _reads(r"(?P<said>(?:(?P<y>(?:19|20)\d\d)年)?(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})[日号])?)", _east_asian),
    _reads(r"(?P<said>(?P<y>(?:19|20)\d\d)年)(?!\d)(?P<m>)(?P<d>)", _east_asian),
    _reads(
        r"\b(?:in|during|since|before|after|until|of|year|from|between|and|to|im jahr|seit|vor|nach|en"
        rf"|depuis|avant|desde|antes de|año|année) (?:the year )?(?P<said>(?P<y>{_YEAR})){_NO_AMOUNT}",
        _year,
    ),
    _reads(r"(?P<said>\b(?:today|this (?:morning|afternoon|evening)|heute|aujourd'hui|hoy)\b|今天|今日)", _back(0)),
    _reads(r"(?P<said>\b(?:yesterday|last night|gestern|ayer|anoche)\b|昨天|昨日)", _back(1)),
    _reads(
        r"(?P<said>\b(?:(?:the )?day before yesterday|vorgestern|avant-hier|anteayer|antier)\b|前天|一昨日)", _back(2)
    ),
    _reads(r"(?<!-)\b(?P<said>hier)\b", _french_yesterday),
    _reads(rf"\b(?P<said>(?P<n>{_COUNT}) (?P<u>{_UNIT}) (?:ago|back|earlier))\b", _ago),
    _reads(rf"\b(?P<said>(?:vor|il y a|hace) (?P<n>{_COUNT}) (?P<u>{_UNIT}))\b", _ago),
    _reads(r"(?P<said>(?P<n>\d{1,3}|[一两二三四五六七八九十]) ?(?P<u>天|日|周|週間|个月|ヶ月|年)(?:之?前|以前))", _ago),
    _reads(
        r"\b(?P<said>(?:last|past|previous|letzten|vergangenen|derniers|dernières|últimos|últimas) "
        rf"(?P<n>{_COUNT}) (?P<u>{_UNIT}))\b",
        _past,
    ),
    _reads(rf"\b(?P<said>(?P<n>{_COUNT}) (?:derniers|dernières|últimos|últimas) (?P<u>{_UNIT}))\b", _past),
    _reads(r"\b(?P<said>(?:(?:the )?past|the last) (?P<u>day|week|month|year))\b(?P<n>)", _past),
    _reads(
        r"\b(?P<said>(?P<how>last|this|previous) (?P<u>week|month|year|quarter|weekend))(?!'s? end|end)\b", _calendar
    ),
    _reads(
        r"\b(?P<said>(?P<how>letzten?s?|vorige[nrs]?|diese[nrsm]?) (?P<u>woche|monat|jahr|wochenende))\b", _calendar
    ),
    _reads(
        r"\b(?P<said>(?P<how>(?:la|le|l')(?= ?\w+ derni)|cette|ce) ?(?P<u>semaine|mois|année"
        r"|week-end)(?: dernière?)?)\b",
        _calendar,
    ),
    _reads(r"\b(?P<said>(?P<how>(?:la|el)(?= \w+ pasad)|esta|este) (?P<u>semana|mes|año)(?: pasad[oa])?)\b", _calendar),
    _reads(
        r"\b(?P<said>(?P<how>last|this past|this|past|previous|on|since|before|after|until|am|letzten"
        rf"|diesen|seit|vor) (?:the )?(?P<w>{_WEEKDAY}))\b(?! (?:mornings|afternoons|evenings|nights))",
        _weekday,
    ),
    _reads(rf"\b(?P<said>(?:le |el )?(?P<w>{_WEEKDAY}) (?P<how>dernier|pasado))\b", _weekday),
    _reads(
        r"\b(?P<how>in the|in|during the|during|last|this|this past|since|of) (?P<said>(?P<s>spring"
        r"|summer|autumn|winter))\b(?! (?:boot|framework|mvc|security|cloud|data|break|time))(?:(?: of)? "
        rf"(?P<y>{_YEAR}))?",
        _season,
    ),
    _reads(
        r"\b(?P<how>last|in the|this past) (?P<said>(?P<s>fall))\b(?! of(?! \d))(?:(?: of)? "
        rf"(?P<y>{_YEAR}))?",
        _season,
    ),
    _reads(rf"\b(?P<how>)(?P<said>(?P<s>spring|summer|autumn|fall|winter)(?: of)? (?P<y>{_YEAR}))", _season),
)
"""Every form and its meaning, the plainest first."""


_MOST = 4_000
"""Characters of a question that are read."""
_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class DateSpan:
    """Some days in a row, and the words that name them."""

    start: int
    """Microseconds since 1970."""
    end: int
    """The first moment after them."""
    words: str


_Found: TypeAlias = tuple[int, int, Days]
"""Where it stands in the text, and what it means."""


def spans_in(text: str, now: int) -> list[DateSpan]:
    """The days named in a text, in its order. `now` is in microseconds since 1970. Empty where none is named."""
    try:
        today = _EPOCH + timedelta(days=now // _DAY)
        looked = ends_of(text, _MOST).replace("’", "'")
        atoms = _without_overlaps(_atoms(looked, today))
        found = [_span(looked, *one, today) for one in _joined(looked, atoms, today)]
    except OverflowError:
        return []
    return [span for span in found if span is not None]


def _span(text: str, start: int, end: int, days: Days, today: date) -> DateSpan | None:
    """Cut off at the end of today; nothing where all of it is still to come."""
    first, after = days[0], min(days[1], today + timedelta(days=1))
    if first >= after:
        return None
    return DateSpan(_moment(first), _moment(after), text[start:end])


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
