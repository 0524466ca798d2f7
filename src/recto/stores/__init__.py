"""Transcript stores (memory, SQLite, PostgreSQL) under one contract: `recto.transcript.protocols.TranscriptStore`."""
