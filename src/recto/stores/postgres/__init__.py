"""Transcripts in PostgreSQL, for more than one machine: the same contract as in a file."""

from recto.stores.postgres.replica import PostgresReplica
from recto.stores.postgres.schema import granted, graphs_made, upgraded
from recto.stores.postgres.store import PostgresStore

__all__ = ["PostgresReplica", "PostgresStore", "granted", "graphs_made", "upgraded"]
