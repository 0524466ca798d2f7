"""Where a session stands, in one round trip: its end, who has the turn, and what of a batch is stored already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recto.core.chain import EMPTY
from recto.core.entries import Draft, Entry, Head
from recto.core.scopes import tenant_of
from recto.stores.postgres import rows
from recto.stores.postgres.link import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """As of one moment."""

    head: Head
    epoch: int
    is_taken: bool
    """Whether somebody has the turn."""
    kept: Head | None
    """Its end as it was kept apart."""
    hash_there: bytes | None
    """Of the entry that should be that end."""
    by_key: Mapping[str, Entry]
    by_id: Mapping[str, tuple[int, bytes]]
    """Number and hash of the entries whose ids the drafts have."""


async def standing_of(link: Link, session: str, drafts: Sequence[Draft]) -> Standing:
    """Where it stands for these drafts."""

    async def attempt() -> Standing:
        given = {"session": session, **rows.names_of(drafts)}
        async with link.batch(tenant_of(session)) as connection:
            end = await connection.execute(rows.STANDING, given, binary=True)
            keyed = await connection.execute(rows.BY_KEY, given, binary=True)
            named = await connection.execute(rows.BY_ID, given, binary=True)
        row = await end.fetchone()
        by_key = {entry.key: entry for entry in (rows.entry_of(session, one) for one in await keyed.fetchall())}
        by_id = {bytes(one[1]).decode(): (int(one[0]), bytes(one[12])) for one in await named.fetchall()}
        stored = {key: entry for key, entry in by_key.items() if key is not None}
        if row is None:
            return Standing(head=EMPTY, epoch=0, is_taken=False, kept=None, hash_there=None, by_key=stored, by_id=by_id)
        seq, digest, epoch, owner, is_live, kept_seq, kept_hash, hash_there = row
        return Standing(
            head=Head(seq, bytes(digest)),
            epoch=epoch,
            is_taken=owner is not None and bool(is_live),
            kept=None if kept_seq is None else Head(kept_seq, bytes(kept_hash)),
            hash_there=None if hash_there is None else bytes(hash_there),
            by_key=stored,
            by_id=by_id,
        )

    return await link.again(attempt)
