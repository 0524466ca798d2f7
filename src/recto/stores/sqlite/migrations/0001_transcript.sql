-- Schema 1: sessions and their entries. The file itself refuses to change or remove what is in it.

CREATE TABLE format(
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The oldest schema number whose programs may still read this file, though not write it.
INSERT INTO format VALUES ('min_reader', 1);

CREATE TABLE sessions(
  session_no INTEGER PRIMARY KEY CHECK (session_no BETWEEN 1 AND 2147483647),
  session TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE entries(
  pos INTEGER PRIMARY KEY,  -- session_no << 32 | seq: a session lies together and needs no index of its own
  session_no INTEGER NOT NULL GENERATED ALWAYS AS (pos >> 32) VIRTUAL,
  seq INTEGER NOT NULL GENERATED ALWAYS AS (pos & 4294967295) VIRTUAL,
  id TEXT NOT NULL,
  ts INTEGER NOT NULL,  -- microseconds since 1970
  role TEXT NOT NULL,
  kind TEXT NOT NULL,
  wire TEXT NOT NULL,
  surface TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  counter TEXT NOT NULL,
  key TEXT CHECK (key <> ''),
  meta BLOB NOT NULL,
  prev BLOB NOT NULL CHECK (length(prev) = 32),
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  content BLOB NOT NULL  -- last, so that the columns before it are read without walking through it
) STRICT;

CREATE UNIQUE INDEX entries_by_id ON entries(session_no, id);
CREATE UNIQUE INDEX entries_by_key ON entries(session_no, key) WHERE key IS NOT NULL;

CREATE TRIGGER entries_keep BEFORE UPDATE ON entries
BEGIN
  SELECT RAISE(ABORT, 'append-only: an entry is never changed');
END;

CREATE TRIGGER entries_stay BEFORE DELETE ON entries
BEGIN
  SELECT RAISE(ABORT, 'append-only: an entry is never removed');
END;

-- INSERT OR REPLACE passes by the two triggers above; this one sees it. An entry is taken only directly after the
-- entry it is chained to, so there are no gaps either.
CREATE TRIGGER entries_follow BEFORE INSERT ON entries
WHEN EXISTS (SELECT 1 FROM entries WHERE pos = NEW.pos)
  OR NEW.prev IS NOT CASE NEW.pos & 4294967295
    WHEN 0 THEN NULL
    WHEN 1 THEN zeroblob(32)
    ELSE (SELECT hash FROM entries WHERE pos = NEW.pos - 1)
  END
  OR EXISTS (SELECT 1 FROM entries WHERE session_no = NEW.pos >> 32 AND id = NEW.id)
  OR EXISTS (SELECT 1 FROM entries WHERE session_no = NEW.pos >> 32 AND key = NEW.key AND NEW.key IS NOT NULL)
  OR NOT EXISTS (SELECT 1 FROM sessions WHERE session_no = NEW.pos >> 32)
BEGIN
  SELECT RAISE(ABORT, 'append-only: an entry follows the last one and has an id and a key of its own');
END;

CREATE TRIGGER sessions_keep BEFORE UPDATE ON sessions
BEGIN
  SELECT RAISE(ABORT, 'append-only: a session is never renamed');
END;

CREATE TRIGGER sessions_stay BEFORE DELETE ON sessions
BEGIN
  SELECT RAISE(ABORT, 'append-only: a session is never removed');
END;

CREATE TRIGGER sessions_follow BEFORE INSERT ON sessions
WHEN NEW.session_no <= (SELECT coalesce(max(session_no), 0) FROM sessions)
  OR EXISTS (SELECT 1 FROM sessions WHERE session = NEW.session)
BEGIN
  SELECT RAISE(ABORT, 'append-only: a session has a number after the last one and a key of its own');
END;

-- For people who open the file without Recto.
CREATE VIEW transcript AS
SELECT
  s.session,
  e.seq,
  strftime('%Y-%m-%d %H:%M:%f', e.ts / 1000000.0, 'unixepoch') AS time,
  e.role,
  e.kind,
  e.tokens,
  e.surface,
  e.id,
  CAST(e.content AS TEXT) AS content
FROM entries AS e
JOIN sessions AS s USING (session_no);
