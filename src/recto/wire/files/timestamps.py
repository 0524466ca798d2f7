"""Times as files write them, in microseconds since 1970. Only reads what is written; it knows no clock."""

from __future__ import annotations

import re

from recto.core.json_text import Json

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?: ?(Z|[+-]\d\d:?\d\d))?)?", re.ASCII
)
_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
_DAYS_BEFORE_1970 = 719_162


def microseconds(value: Json) -> int | None:
    """A time in ISO 8601 (UTC where it names no zone), or a number of seconds, milliseconds or microseconds."""
    if isinstance(value, str):
        found = _ISO.fullmatch(value)
        return _moment(*found.groups()) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**17:
        return None
    for least, factor in ((10**14, 1), (10**11, 1_000)):
        if value >= least:
            return int(value * factor)
    return int(value * 1_000_000)


def _moment(*groups: str | None) -> int | None:
    year, month, day, hour, minute, second = (int(group or 0) for group in groups[:6])
    days = _days(year, month, day)
    if days is None or hour > 23 or minute > 59 or second > 60:
        return None
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - _offset(groups[7])
    return seconds * 1_000_000 + int((groups[6] or "0").ljust(6, "0")[:6])


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970 in the Gregorian calendar."""
    if year < 1 or not 1 <= month <= 12:
        return None
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = _DAYS_BEFORE_MONTH[month] - _DAYS_BEFORE_MONTH[month - 1] + (leap and month == 2)
    if not 1 <= day <= length:
        return None
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    return days + _DAYS_BEFORE_MONTH[month - 1] + (leap and month > 2) + day - 1 - _DAYS_BEFORE_1970


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return -minutes * 60 if zone[0] == "-" else minutes * 60
