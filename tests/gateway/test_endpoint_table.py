"""The table of endpoints in docs/gateway.md is what a gateway does."""

from __future__ import annotations

from tests.gateway.endpoints import PAGE, TABLE, table


def test_the_table_of_endpoints_is_what_was_seen(tmp_path):
    written = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert written is not None
    assert f"{written[1]}{table(tmp_path)}{written[2]}" == written[0], "python -m tests.gateway.endpoints"
