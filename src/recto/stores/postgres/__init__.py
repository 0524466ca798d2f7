"""The PostgreSQL store, for more than one machine: the same contract as the SQLite store."""

from recto.stores.postgres.replica import PostgresReplica
from recto.stores.postgres.schema import create_graphs, grant_role, upgrade_schema
from recto.stores.postgres.store import PostgresStore

__all__ = ["PostgresReplica", "PostgresStore", "create_graphs", "grant_role", "upgrade_schema"]
