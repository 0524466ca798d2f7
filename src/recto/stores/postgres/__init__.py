"""Transcripts in PostgreSQL, for more than one machine: the same contract as in a file."""

from recto.stores.postgres.looking_after import granted, upgraded
from recto.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "granted", "upgraded"]
