"""Where transcripts are kept: in memory or in SQLite, under one contract (`recto.ports.TranscriptStore`)."""
