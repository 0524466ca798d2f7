"""Whether the database still guards what is in it, as its own catalogue tells."""

from __future__ import annotations

from typing import Final

from recto.stores.postgres.link import EVERYBODY, Link

_GUARDED: Final = ("entries", "heads", "kept_heads")
_TRIGGERS: Final = {
    "entries": {"entries_follow", "entries_keep", "entries_stay"},
    "heads": {"heads_advance", "heads_stay"},
    "kept_heads": {"kept_heads_stay"},
}
_FOUND = """
SELECT c.relname, t.tgname, t.tgenabled <> 'D' FROM pg_trigger AS t
JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'recto' AND NOT t.tgisinternal
"""
_WALLS = """
SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'recto' AND c.relname = ANY(%(tables)s)
"""
_ASTRAY = """
SELECT h.session, h.seq FROM recto.heads AS h
LEFT JOIN recto.entries AS e ON e.session = h.session AND e.seq = h.seq
WHERE h.seq > 0 AND e.hash IS DISTINCT FROM h.hash ORDER BY h.session LIMIT 20
"""
_PARTS = 16


async def damage_in(link: Link) -> list[str]:
    """What is wrong, in words; empty when nothing."""
    triggers = await link.fetched(EVERYBODY, _FOUND)
    walls: dict[str, bool] = dict(await link.fetched(EVERYBODY, _WALLS, {"tables": list(_GUARDED)}))
    astray = await link.fetched(EVERYBODY, _ASTRAY)
    live = {(table, name) for table, name, is_on in triggers if is_on}
    wanted = {
        (f"{table}{part}", name)
        for table, names in _TRIGGERS.items()
        for name in names
        for part in ("", *(f"_{number}" for number in range(_PARTS)))
    }
    wanted |= {(f"{table}_{number}", "stay_whole") for table in _GUARDED for number in range(_PARTS)}
    gone = [
        f"the trigger '{name}' of table '{table}' is missing or switched off" for table, name in sorted(wanted - live)
    ]
    open_ = [f"table '{table}' is not walled off by tenant" for table in _GUARDED if not walls.get(table)]
    return [*gone, *open_, *(f"session '{session}': entry {seq}, its end, is not there" for session, seq in astray)]
