"""Times in files, as people and programs write them."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.formats.session_files.types import microseconds


@pytest.mark.parametrize(
    ("written", "meant"),
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
def test_times_are_read_as_they_are_written(written, meant):
    assert microseconds(written) == meant


@given(st.datetimes())
def test_every_time_python_writes_is_read(moment):
    since = moment.replace(tzinfo=datetime.UTC) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert microseconds(moment.isoformat()) == since // datetime.timedelta(microseconds=1)
