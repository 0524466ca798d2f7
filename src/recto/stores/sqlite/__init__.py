"""Transcripts in one SQLite file; beside it `-lock` orders processes and `-heads` shows cut ends."""

from __future__ import annotations

from recto.stores.sqlite.connection import Migration, SqliteOptions, shipped_migrations
from recto.stores.sqlite.store import SqliteStore

__all__ = ["Migration", "SqliteOptions", "SqliteStore", "shipped_migrations"]
