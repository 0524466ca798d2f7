"""The table of endpoints in docs/gateway.md matches the behaviour of a gateway."""

from __future__ import annotations

from tests.gateway.endpoints import PAGE, TABLE, table


def test_the_table_of_endpoints_matches_the_observed_behaviour(tmp_path):
    written = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert written is not None
    assert f"{written[1]}{table(tmp_path)}{written[2]}" == written[0], "python -m tests.gateway.endpoints"
