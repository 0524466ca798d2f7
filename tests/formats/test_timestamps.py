"""Timestamps in session files, in the forms that people and programs write."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.formats.session_files.types import microseconds


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2000-02-29T12:00:00.5+02:00", 951_818_400_500_000),
        ("2026-02-03", 1_770_076_800_000_000),
        ("1969-12-31T23:59:59.999999", -1),
        (1_770_091_506, 1_770_091_506_000_000),
        (1_770_091_506_789, 1_770_091_506_789_000),
        (1_770_091_506.5, 1_770_091_506_500_000),
        ("2026-02-30T00:00:00Z", None),
        ("2026-13-01", None),
        ("1900-02-29", None),
        ("0000-01-01", None),
        ("yesterday", None),
        (True, None),
        (-5, None),
        (float("inf"), None),
        (None, None),
        ([], None),
    ],
)
def test_timestamps_are_parsed_to_microseconds(written, expected):
    assert microseconds(written) == expected


@given(st.datetimes())
def test_every_isoformat_timestamp_is_parsed(moment):
    since = moment.replace(tzinfo=datetime.UTC) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert microseconds(moment.isoformat()) == since // datetime.timedelta(microseconds=1)
