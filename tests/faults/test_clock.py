"""Promise 22: time may lie. Order is the order of storing, whatever the stamps say."""

from __future__ import annotations

import random

from witness import draft, findings

from recto.stores.sqlite import SqliteStore

TWELVE_YEARS = 12 * 365 * 86_400 * 1_000_000
NOW = 1_760_000_000_000_000


def test_a_clock_that_jumps_by_years_changes_no_order(swift_folder, scale):
    rng = random.Random(22)
    stamps = [NOW + rng.randrange(-TWELVE_YEARS, TWELVE_YEARS) for _ in range(scale(1_000, release=100_000))]
    with SqliteStore(swift_folder / "transcript.db") as store:
        for start in range(0, len(stamps), 10):
            batch = [draft(str(start + place), ts=ts) for place, ts in enumerate(stamps[start : start + 10])]
            store.append("a", batch)
        assert [entry.ts for entry in store.read("a")] == stamps
        assert [entry.id for entry in store.read("a")] == [f"id-{number}" for number in range(len(stamps))]
        assert [entry.ts for entry in store.tail("a", 50)] == stamps[-50:]
        [summary] = store.sessions()
        assert (summary.first_ts, summary.last_ts) == (stamps[0], stamps[-1])
        assert findings(store) == []


def test_the_stamps_of_this_test_are_not_in_order():
    rng = random.Random(22)
    stamps = [NOW + rng.randrange(-TWELVE_YEARS, TWELVE_YEARS) for _ in range(1_000)]
    assert stamps != sorted(stamps)
