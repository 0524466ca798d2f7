"""Dates in questions: written dates and phrases such as `yesterday` or `two weeks ago`, relative to a moment.

Questions are about history: a date without a year is its latest past occurrence, and no span reaches into the future.
Days are in UTC. Covers English, ISO dates, common German, French and Spanish forms, and Chinese and Japanese dates. The
caller passes the current time; this module reads no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import TypeAlias

from msgspec import Struct

from recto.text.lazy_re import lazy_re
from recto.text.terms import clip_middle

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
"""The month in which each begins, in the northern hemisphere."""


DayRange: TypeAlias = tuple[date, date]
"""The first day, and the day after the last."""
DateReader: TypeAlias = Callable[[re.Match[str], date], DayRange | None]
"""Interprets a match relative to today. Raises `ValueError` for a day that does not exist."""


def _alternatives(names: dict[str, int] | dict[str, str]) -> str:
    """A pattern that matches any of the words, longest first."""
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))


_MONTH, _WEEKDAY, _UNIT = _alternatives(MONTHS), _alternatives(WEEKDAYS), _alternatives(UNITS)
_COUNT = rf"\d{{1,3}}|(?:a )?couple of|(?:a )?couple|a few|few|several|{_alternatives(NUMBERS)}"
_YEAR = r"((?:19|20)\d\d)(?![\d.,]?\d|%)"
_NOT_AN_AMOUNT = (
    r"(?! ?(?:words|steps|items|users|people|dollars|euros|tokens|lines|files|rows|ms|px|miles"
    r"|calories|points))"
)


def _single_day(day: date) -> DayRange:
    return day, day + timedelta(days=1)


def _months(year: int, month: int, count: int = 1) -> DayRange:
    """`count` months in a row; `month` may be outside 1 to 12, relative to the year."""
    first, end = year * 12 + month - 1, year * 12 + month - 1 + count
    return date(first // 12, first % 12 + 1, 1), date(end // 12, end % 12 + 1, 1)


def _latest_occurrence(day: int, month: int, today: date) -> DayRange:
    """The latest past occurrence of a day of the year. February 29 may be four years ago."""
    for year in range(today.year, today.year - 9, -1):
        try:
            day_in_year = date(year, month, day)
        except ValueError:
            continue
        if day_in_year <= today:
            return _single_day(day_in_year)
    raise ValueError("no such day")


def _read_iso(match: re.Match[str], _: date) -> DayRange:
    return _single_day(date(int(match["y"]), int(match["m"]), int(match["d"])))


def _read_slashes(match: re.Match[str], _: date) -> DayRange:
    """Month first, as in the United States, unless that is impossible."""
    month, day, year = int(match[2]), int(match[3]), int(match[4])
    if month > 12:
        month, day = day, month
    return _single_day(date(year + 2000 if year < 100 else year, month, day))


def _read_written(match: re.Match[str], today: date) -> DayRange:
    day, month = int(match["d"]), MONTHS[match["m"]]
    return _single_day(date(int(match["y"]), month, day)) if match["y"] else _latest_occurrence(day, month, today)


def _read_month(match: re.Match[str], today: date) -> DayRange:
    month = MONTHS[match["m"]]
    if match["y"]:
        return _months(int(match["y"]), month)
    passed = month < today.month or (month == today.month and "last" not in (match["how"] or ""))
    return _months(today.year if passed else today.year - 1, month)


def _read_east_asian(match: re.Match[str], today: date) -> DayRange:
    year, month, day = (int(match[name]) if match[name] else None for name in "ymd")
    if month is None:
        return _months(year or today.year, 1, 12)
    if day is None:
        return _months(year or today.year - (month > today.month), month)
    return _single_day(date(year, month, day)) if year else _latest_occurrence(day, month, today)


def _days_back(days: int) -> DateReader:
    return lambda _, today: _single_day(today - timedelta(days=days))


def _count(word: str) -> tuple[int, int]:
    """Minimum and maximum of a number word."""
    if word.isdecimal():
        return int(word), int(word)
    if "couple" in word:
        return 2, 3
    if word in ("a few", "few", "several"):
        return 2, 6
    return NUMBERS[word], NUMBERS[word]


_LENGTHS = {"day": (1, 0), "week": (7, 3), "month": (30, 15), "year": (365, 183)}
"""Days per unit, and how far off `two months ago` may be."""


def _read_ago(match: re.Match[str], today: date) -> DayRange:
    (low, high), (length, blur) = _count(match["n"]), _LENGTHS[UNITS[match["u"]]]
    return today - timedelta(days=high * length + blur), today - timedelta(days=low * length - blur - 1)


def _read_past(match: re.Match[str], today: date) -> DayRange:
    days = _count(match["n"])[1] if match["n"] else 1
    return today - timedelta(days=days * _LENGTHS[UNITS[match["u"]]][0]), today + timedelta(days=1)


_MIDWEEK = range(1, 5)
"""Tuesday to Friday: `this weekend` then means the next one."""


def _read_calendar(match: re.Match[str], today: date) -> DayRange | None:
    """`last week`, `this month`: weeks begin on Monday."""
    back = 0 if _THIS.match(match["how"]) else 1
    unit = UNITS.get(match["u"], match["u"])
    match unit:
        case "week":
            monday = today - timedelta(days=today.weekday() + 7 * back)
            return monday, monday + timedelta(days=7)
        case "month":
            return _months(today.year, today.month - back)
        case "year":
            return _months(today.year - back, 1, 12)
        case "quarter":
            return _months(today.year, (today.month - 1) // 3 * 3 + 1 - 3 * back, 3)
        case _:
            saturday = today - timedelta(days=(today.weekday() - 5) % 7)
            if not back and today.weekday() in _MIDWEEK:
                return None  # the coming weekend is meant
            saturday -= timedelta(days=7 if back and saturday + timedelta(days=1) >= today else 0)
            return saturday, saturday + timedelta(days=2)


def _read_weekday(match: re.Match[str], today: date) -> DayRange:
    back = (today.weekday() - WEEKDAYS[match["w"]]) % 7
    return _single_day(today - timedelta(days=back if back or _THIS.match(match["how"]) else 7))


def _read_year(match: re.Match[str], _: date) -> DayRange:
    return _months(int(match["y"]), 1, 12)


def _read_season(match: re.Match[str], today: date) -> DayRange:
    month, year = SEASONS[match["s"]], match["y"]
    if year:
        return _months(int(year), month, 3)
    days = _months(today.year, month, 3)
    over = days[1] if match["how"].startswith("last") else days[0]
    return days if over <= today else _months(today.year - 1, month, 3)


def _read_french_yesterday(match: re.Match[str], today: date) -> DayRange | None:
    return _single_day(today - timedelta(days=1)) if _FRENCH.search(match.string) else None


_FRENCH = lazy_re(r"\b(?:j'ai|qu'|que|quoi|avons|avez|nous|vous|je|tu|était|est-ce|dit|c'était)")
_THIS = lazy_re(r"this|diese|cette|ce |esta?e? |今|这|本")
_ORDINAL = r"(?:st|nd|rd|th|er|\.)?"
_MONTH_PREPOSITIONS = (
    r"in|during|since|until|before|after|from|between|last|this past|im|seit|letzten|en|depuis|desde|pendant|durante|of"
    r"|early|late|mid|and|to"
)


def _form(pattern: str, reader: DateReader) -> tuple[re.Pattern[str], DateReader]:
    return lazy_re(pattern, re.ASCII if pattern.isascii() and "\\b" not in pattern else 0), reader


_FORMS = (
    _form(
        r"(?<![\d.-])(?P<phrase>(?P<y>(?:19|20)\d\d)(?P<sep>[-/.])(?P<m>\d{1,2})(?P=sep)(?P<d>\d{1,2}))"
        r"(?![\d-]|\.\d)",
        _read_iso,
    ),
    _form(r"(?<![\d.])(?P<phrase>(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>(?:19|20)\d\d))(?!\d|\.\d)", _read_iso),
    _form(r"(?<![\d/])(?P<phrase>(\d{1,2})/(\d{1,2})/((?:19|20)?\d\d))(?![\d/])", _read_slashes),
    _form(
        rf"\b(?P<phrase>(?P<d>\d{{1,2}}){_ORDINAL}(?: of| de)? (?P<m>{_MONTH})\b\.?(?:,?(?: de| del)? "
        rf"(?P<y>{_YEAR}))?)",
        _read_written,
    ),
    _form(
        rf"\b(?P<phrase>(?P<m>{_MONTH})\b\.? (?:the )?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?![\d%:]"
        rf"|[.,]\d)(?:,? (?P<y>{_YEAR}))?)",
        _read_written,
    ),
    _form(rf"\b(?P<how>)(?P<phrase>(?P<m>{_MONTH})\b\.?,?(?: of| de| del)? (?P<y>{_YEAR}))", _read_month),
    _form(
        rf"\b(?P<how>{_MONTH_PREPOSITIONS}) (?P<phrase>(?P<m>{_MONTH}))\b(?! (?:be|have|not|i|we|you|on|also|need"
        r"|want|\d))(?P<y>)",
        _read_month,
    ),
    _form(r"(?<!\d)(?P<phrase>(?P<y>(?:19|20)\d\d)-(?P<m>0[1-9]|1[0-2]))(?P<d>)(?![\d-])", _read_east_asian),
    _form(r"(?P<phrase>(?:(?P<y>(?:19|20)\d\d)年)?(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})[日号])?)", _read_east_asian),
    _form(r"(?P<phrase>(?P<y>(?:19|20)\d\d)年)(?!\d)(?P<m>)(?P<d>)", _read_east_asian),
    _form(
        r"\b(?:in|during|since|before|after|until|of|year|from|between|and|to|im jahr|seit|vor|nach|en"
        rf"|depuis|avant|desde|antes de|año|année) (?:the year )?(?P<phrase>(?P<y>{_YEAR})){_NOT_AN_AMOUNT}",
        _read_year,
    ),
    _form(
        r"(?P<phrase>\b(?:today|this (?:morning|afternoon|evening)|heute|aujourd'hui|hoy)\b|今天|今日)", _days_back(0)
    ),
    _form(r"(?P<phrase>\b(?:yesterday|last night|gestern|ayer|anoche)\b|昨天|昨日)", _days_back(1)),
    _form(
        r"(?P<phrase>\b(?:(?:the )?day before yesterday|vorgestern|avant-hier|anteayer|antier)\b|前天|一昨日)",
        _days_back(2),
    ),
    _form(r"(?<!-)\b(?P<phrase>hier)\b", _read_french_yesterday),
    _form(rf"\b(?P<phrase>(?P<n>{_COUNT}) (?P<u>{_UNIT}) (?:ago|back|earlier))\b", _read_ago),
    _form(rf"\b(?P<phrase>(?:vor|il y a|hace) (?P<n>{_COUNT}) (?P<u>{_UNIT}))\b", _read_ago),
    _form(
        r"(?P<phrase>(?P<n>\d{1,3}|[一两二三四五六七八九十]) ?(?P<u>天|日|周|週間|个月|ヶ月|年)(?:之?前|以前))",
        _read_ago,
    ),
    _form(
        r"\b(?P<phrase>(?:last|past|previous|letzten|vergangenen|derniers|dernières|últimos|últimas) "
        rf"(?P<n>{_COUNT}) (?P<u>{_UNIT}))\b",
        _read_past,
    ),
    _form(rf"\b(?P<phrase>(?P<n>{_COUNT}) (?:derniers|dernières|últimos|últimas) (?P<u>{_UNIT}))\b", _read_past),
    _form(r"\b(?P<phrase>(?:(?:the )?past|the last) (?P<u>day|week|month|year))\b(?P<n>)", _read_past),
    _form(
        r"\b(?P<phrase>(?P<how>last|this|previous) (?P<u>week|month|year|quarter|weekend))(?!'s? end|end)\b",
        _read_calendar,
    ),
    _form(
        r"\b(?P<phrase>(?P<how>letzten?s?|vorige[nrs]?|diese[nrsm]?) (?P<u>woche|monat|jahr|wochenende))\b",
        _read_calendar,
    ),
    _form(
        r"\b(?P<phrase>(?P<how>(?:la|le|l')(?= ?\w+ derni)|cette|ce) ?(?P<u>semaine|mois|année"
        r"|week-end)(?: dernière?)?)\b",
        _read_calendar,
    ),
    _form(
        r"\b(?P<phrase>(?P<how>(?:la|el)(?= \w+ pasad)|esta|este) (?P<u>semana|mes|año)(?: pasad[oa])?)\b",
        _read_calendar,
    ),
    _form(
        r"\b(?P<phrase>(?P<how>last|this past|this|past|previous|on|since|before|after|until|am|letzten"
        rf"|diesen|seit|vor) (?:the )?(?P<w>{_WEEKDAY}))\b(?! (?:mornings|afternoons|evenings|nights))",
        _read_weekday,
    ),
    _form(rf"\b(?P<phrase>(?:le |el )?(?P<w>{_WEEKDAY}) (?P<how>dernier|pasado))\b", _read_weekday),
    _form(
        r"\b(?P<how>in the|in|during the|during|last|this|this past|since|of) (?P<phrase>(?P<s>spring"
        r"|summer|autumn|winter))\b(?! (?:boot|framework|mvc|security|cloud|data|break|time))(?:(?: of)? "
        rf"(?P<y>{_YEAR}))?",
        _read_season,
    ),
    _form(
        r"\b(?P<how>last|in the|this past) (?P<phrase>(?P<s>fall))\b(?! of(?! \d))(?:(?: of)? "
        rf"(?P<y>{_YEAR}))?",
        _read_season,
    ),
    _form(rf"\b(?P<how>)(?P<phrase>(?P<s>spring|summer|autumn|fall|winter)(?: of)? (?P<y>{_YEAR}))", _read_season),
)
"""All forms and their readers, most specific first."""


_ANCHORS = frozenset(
    (
        *(*MONTHS, *WEEKDAYS, *UNITS, *SEASONS, "quarter", "weekend", "wochenende"),
        *("today", "morning", "afternoon", "evening", "heute", "hui", "hoy", "yesterday", "night", "gestern"),
        *("vorgestern", "ayer", "anoche", "hier", "anteayer", "antier", "ago", "back", "earlier"),
    )
)
"""Words of which every form without a digit has one, if it is written in ASCII."""
_GLUED = ("semaine", "mois", "week")
"""The same where the form allows a word before without a space."""
_ASCII_WORD = lazy_re(r"[a-z]+|\d")

_MAX_CHARS = 4_000
"""Characters of a question that are read."""
_DAY_MICROSECONDS = 86_400_000_000
_EPOCH = date(1970, 1, 1)


class DateSpan(Struct, frozen=True):
    """A range of days, and the words that name it."""

    start: int
    """Microseconds since 1970."""
    end: int
    """The first moment after the range."""
    words: str


_DateMatch: TypeAlias = tuple[int, int, DayRange]
"""Start and end in the text, and the days it means."""


def find_date_spans(text: str, now: int) -> list[DateSpan]:
    """The date ranges named in a text, in order. `now` is in microseconds since 1970."""
    try:
        today = _EPOCH + timedelta(days=now // _DAY_MICROSECONDS)
        clipped = clip_middle(text, _MAX_CHARS).replace("’", "'")
        matches = _without_overlaps(_find_matches(clipped, today))
        spans = [_to_span(clipped, *match, today) for match in _join_ranges(clipped, matches, today)]
    except OverflowError:
        return []
    return [span for span in spans if span is not None]


def _to_span(text: str, start: int, end: int, days: DayRange, today: date) -> DateSpan | None:
    """Clip a range to the end of today; None if all of it is in the future."""
    first, after = days[0], min(days[1], today + timedelta(days=1))
    if first >= after:
        return None
    return DateSpan(_to_microseconds(first), _to_microseconds(after), text[start:end])


def _to_microseconds(day: date) -> int:
    return (day - _EPOCH).days * _DAY_MICROSECONDS


def _find_matches(text: str, today: date) -> Iterator[_DateMatch]:
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    if not _may_name_days(lowered):
        return
    for pattern, reader in _FORMS:
        for match in pattern.finditer(lowered):
            try:
                days = reader(match, today)
            except ValueError:
                continue
            if days is not None and not _is_verb(text, match):
                yield (match.start("phrase"), match.end("phrase"), days)


def _may_name_days(lowered: str) -> bool:
    """Whether any form can match: of most questions a look at their words shows that none does."""
    if not lowered.isascii() or any(map(lowered.__contains__, _GLUED)):
        return True
    words = set(_ASCII_WORD.findall(lowered))
    return not _ANCHORS.isdisjoint(words) or any(map(str.isdigit, words))


def _is_verb(text: str, match: re.Match[str]) -> bool:
    """Whether `may` or `march` is a verb: `you may 3 times`. A month is capitalized or follows a preposition."""
    phrase = text[match.start("phrase") : match.end("phrase")]
    if not phrase.startswith(("may", "march")) or match.groupdict().get("y"):
        return False
    return not _MONTH_LEAD.search(text[max(0, match.start("phrase") - 12) : match.start("phrase")])


def _without_overlaps(matches: Iterator[_DateMatch]) -> list[_DateMatch]:
    """Of overlapping matches, the longest."""
    longest: list[_DateMatch] = []
    for match in sorted(matches, key=lambda atom: (atom[0], -atom[1])):
        if not longest or match[0] >= longest[-1][1]:
            longest.append(match)
    return longest


_BETWEEN = lazy_re(
    r"\s*(?:and|to|until|till|through|und|bis(?: zum)?|et|au|y|al?|hasta|[–—-]|から|到|至)(?: the| el"
    r"| le)?\s*",
    re.IGNORECASE,
)
_FROM = lazy_re(r"(?:between|from|zwischen|von|vom|entre|de|du|del)(?: the| el| le| dem)?\s+$", re.IGNORECASE)
_MONTH_LEAD = lazy_re(
    r"\b(?:on|in|since|before|after|until|from|between|and|to|of|by|last|during|early|late|mid|the) $"
)
_SINCE = lazy_re(
    r"(?:since|starting|ever since|seit(?: dem)?|ab|depuis|desde|à partir du)(?: the| le| el)?\s+$", re.IGNORECASE
)
_AFTER = lazy_re(r"(?:after|nach(?: dem)?|après|después del?)(?: the| le| el)?\s+$", re.IGNORECASE)
_BEFORE = lazy_re(
    r"(?:before|prior to|until|vor(?: dem)?|bis(?: zum)?|avant|jusqu'(?:à|au|en)|antes del?"
    r"|hasta)(?: the| le| el)?\s+$",
    re.IGNORECASE,
)


def _join_ranges(text: str, matches: list[_DateMatch], today: date) -> Iterator[_DateMatch]:
    """Join two dates with `and` or `to` between them; `since` and `before` open a range on one side."""
    matches = [
        match
        for index, match in enumerate(matches)
        if not _is_repeated_by_next(text, match, matches[index + 1 : index + 2])
    ]
    index = 0
    while index < len(matches):
        start, end, days = matches[index]
        before = text[max(0, start - 24) : start]
        if index + 1 < len(matches) and _FROM.search(before):
            start_next, end_next, until = matches[index + 1]
            if start_next - end <= 20 and _BETWEEN.fullmatch(text[end:start_next]) and days[0] < until[1]:
                yield (start, end_next, (days[0], until[1]))
                index += 2
                continue
        for pattern, opened in (
            (_SINCE, (days[0], today + timedelta(days=1))),
            (_AFTER, (days[1], today + timedelta(days=1))),
            (_BEFORE, (_EPOCH, days[0])),
        ):
            if lead := pattern.search(before):
                start, days = start - len(before) + lead.start(), opened
                break
        yield (start, end, days)
        index += 1


def _is_repeated_by_next(text: str, match: _DateMatch, following: list[_DateMatch]) -> bool:
    """Whether a weekday is followed by its date, as in `on Monday, May 8`."""
    is_weekday = _WEEKDAY_NAME.search(text[match[0] : match[1]])
    return bool(is_weekday and following and _COMMA.fullmatch(text[match[1] : following[0][0]]))


_WEEKDAY_NAME = lazy_re(rf"(?:{_alternatives(WEEKDAYS)})$", re.IGNORECASE)
_COMMA = lazy_re(r",? (?:the |den |le |el )?")
