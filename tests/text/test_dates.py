"""A question names the days it means, and everyday words name none."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.text import dates
from recto.text.dates import DateSpan, find_date_spans

NOW = int(datetime(2023, 6, 14, 15, tzinfo=UTC).timestamp()) * 1_000_000
"""A Wednesday."""
TODAY = date(2023, 6, 14)


def days(span: DateSpan) -> str:
    first, last = (datetime.fromtimestamp(at / 1_000_000, UTC).date() for at in (span.start, span.end - 1))
    return str(first) if first == last else f"{first}..{last}"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("what did I say on 2023-05-20?", "2023-05-20"),
        ("2023-05-20T10:00", "2023-05-20"),
        ("on 20 May 2023", "2023-05-20"),
        ("May 20th", "2023-05-20"),
        ("on may 20", "2023-05-20"),
        ("May 20, 2022", "2022-05-20"),
        ("the 3rd of December", "2022-12-03"),
        ("Jan 5", "2023-01-05"),
        ("February 29", "2020-02-29"),
        ("5/20/2023", "2023-05-20"),
        ("20/5/2023", "2023-05-20"),
        ("3/4/2023", "2023-03-04"),
        ("20.05.2023", "2023-05-20"),
        ("2023年5月20日", "2023-05-20"),
        ("5月20日说了什么", "2023-05-20"),
        ("2022年", "2022-01-01..2022-12-31"),
        ("today", "2023-06-14"),
        ("yesterday", "2023-06-13"),
        ("the day before yesterday", "2023-06-12"),
        ("last night", "2023-06-13"),
        ("3 days ago", "2023-06-11"),
        ("ten days ago", "2023-06-04"),
        ("two weeks ago", "2023-05-28..2023-06-03"),
        ("a month ago", "2023-04-30..2023-05-30"),
        ("a couple of days ago", "2023-06-11..2023-06-12"),
        ("a few days ago", "2023-06-08..2023-06-12"),
        ("last week", "2023-06-05..2023-06-11"),
        ("this week", "2023-06-12..2023-06-14"),
        ("in the past week", "2023-06-07..2023-06-14"),
        ("in the last 3 days", "2023-06-11..2023-06-14"),
        ("last month", "2023-05-01..2023-05-31"),
        ("this year", "2023-01-01..2023-06-14"),
        ("last year", "2022-01-01..2022-12-31"),
        ("last quarter", "2023-01-01..2023-03-31"),
        ("last weekend", "2023-06-10..2023-06-11"),
        ("last Tuesday", "2023-06-13"),
        ("on Friday", "2023-06-09"),
        ("last Wednesday", "2023-06-07"),
        ("on Monday, May 8", "2023-05-08"),
        ("in May", "2023-05-01..2023-05-31"),
        ("in December", "2022-12-01..2022-12-31"),
        ("in June", "2023-06-01..2023-06-14"),
        ("last June", "2022-06-01..2022-06-30"),
        ("May 2022", "2022-05-01..2022-05-31"),
        ("2023-05", "2023-05-01..2023-05-31"),
        ("in 2022", "2022-01-01..2022-12-31"),
        ("last summer", "2022-06-01..2022-08-31"),
        ("in the spring", "2023-03-01..2023-05-31"),
        ("winter of 2021", "2021-12-01..2022-02-28"),
        ("between May 1 and May 10", "2023-05-01..2023-05-10"),
        ("from March 3rd to April 2nd", "2023-03-03..2023-04-02"),
        ("between 2021 and 2022", "2021-01-01..2022-12-31"),
        ("since May", "2023-05-01..2023-06-14"),
        ("since last Monday", "2023-06-12..2023-06-14"),
        ("after June 1", "2023-06-02..2023-06-14"),
        ("before 2023-06-01", "1970-01-01..2023-05-31"),
        ("gestern", "2023-06-13"),
        ("vor drei Tagen", "2023-06-11"),
        ("letzte Woche", "2023-06-05..2023-06-11"),
        ("am Dienstag", "2023-06-13"),
        ("im Mai", "2023-05-01..2023-05-31"),
        ("am 20. Mai 2023", "2023-05-20"),
        ("qu'ai-je dit hier", "2023-06-13"),
        ("il y a deux semaines", "2023-05-28..2023-06-03"),
        ("la semaine dernière", "2023-06-05..2023-06-11"),
        ("le 3 mai 2022", "2022-05-03"),
        ("ayer", "2023-06-13"),
        ("hace 3 días", "2023-06-11"),
        ("la semana pasada", "2023-06-05..2023-06-11"),
        ("el 5 de mayo de 2022", "2022-05-05"),
        ("昨天", "2023-06-13"),
        ("三天前", "2023-06-11"),
    ],
)
def test_a_date_means_its_days(text, meant):
    assert [days(span) for span in find_date_spans(text, NOW)] == [meant]


@pytest.mark.parametrize(
    "text",
    [
        *("may I ask something", "this may be wrong", "you may 3 times", "march on", "the sun is out", "he sat down"),
        *("give me a second", "version 3.11.7", "it costs $20.05", "in 2000 steps", "1/2 cup", "at 10:30", "ratio 3/4"),
        *("Spring Boot", "in spring boot", "the fall of Rome", "tomorrow", "next week", "in July 2024", "99/99/2023"),
        *("2023-13-45", "hier steht es", "March 5% more", "192.168.20.2023", "on Saturday mornings", "tonight"),
        *("this weekend", "port 2023", "", "one month", "every day", "second of all", "Mars rover"),
    ],
)
def test_false_friends_mean_no_day(text):
    assert find_date_spans(text, NOW) == []


def test_two_dates_are_two_spans_in_their_order():
    found = find_date_spans("in January and March, and then yesterday", NOW)
    assert [span.words for span in found] == ["January", "March", "yesterday"]


def test_the_words_are_those_of_the_question():
    assert [span.words for span in find_date_spans("Since Last Monday, what happened?", NOW)] == ["Since Last Monday"]


@given(st.integers(0, 20_000), st.integers(0, 59))
def test_a_day_that_is_counted_back_is_that_day(offset, back):
    now = offset * 86_400_000_000 + 5
    (span,) = find_date_spans(f"{back} days ago", now)
    assert span.start == now - 5 - back * 86_400_000_000
    assert span.end - span.start == 86_400_000_000


@given(st.dates(date(1990, 1, 1), TODAY))
def test_every_written_form_of_a_day_means_it(day):
    start = int((day - date(1970, 1, 1)) / timedelta(days=1)) * 86_400_000_000
    for form in ("%Y-%m-%d", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y", "%b %d %Y"):
        assert [span.start for span in find_date_spans(f"on {day.strftime(form)}?", NOW)] == [start]


WORDS = st.sampled_from(
    [
        "last",
        "May",
        "2023",
        "between",
        "and",
        "since",
        "5",
        "/",
        ".",
        "-",
        "week",
        "ago",
        "a",
        "before",
        "Monday",
        ",",
        "年",
        "月",
    ]
)


@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(), st.integers(-(10**20), 10**20))
def test_no_question_and_no_clock_is_refused_and_nothing_lies_ahead(text, now):
    for span in find_date_spans(text, now):
        assert span.start < span.end <= now // 86_400_000_000 * 86_400_000_000 + 86_400_000_000


NAMES = st.sampled_from(sorted({*dates.MONTHS, *dates.WEEKDAYS, *dates.UNITS, *dates.SEASONS, *dates.NUMBERS}))
LEADS = st.sampled_from(
    """
    today tonight this morning last night ago back hier vor hace past few couple quarter weekend dernier pasado
    cette ce la el l' esta in of since on the 12 2020 aujourd'hui avant-hier week-end
    """.split()  # noqa: SIM905  read as prose
)


@given(st.lists(NAMES | LEADS, max_size=5), st.sampled_from([" ", ""]))
def test_a_question_whose_words_name_no_day_has_no_form_of_a_date(words, between):
    text = between.join(words)
    assert dates._may_name_days(text) or not any(pattern.search(text) for pattern, _ in dates._FORMS)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["between 1 and ", "may ", "1/1/2023 ", "2", "last ", "a ", "2023-"])
def test_a_million_characters_take_no_time(piece):
    find_date_spans(piece * (1_000_000 // len(piece)), NOW)
