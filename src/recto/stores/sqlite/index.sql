-- Schema 1 of the index of recall. Nothing in it is the only copy of anything.

CREATE TABLE shelves(
  shelf INTEGER PRIMARY KEY AUTOINCREMENT,  -- one lane of one session; a number is never given twice
  session TEXT NOT NULL,
  lane TEXT NOT NULL,
  generation INTEGER NOT NULL,  -- another one with every sealing
  UNIQUE (session, lane)
) STRICT;

-- Which entries a lane has taken in: ranges that neither meet nor touch, written in one transaction with their rows.
CREATE TABLE covered(
  shelf INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL CHECK (last >= first),
  hash BLOB NOT NULL,  -- of the last entry
  PRIMARY KEY (shelf, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE fresh(
  shelf INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (shelf, seq)
) STRICT, WITHOUT ROWID;

-- In the order of writing, so that pages are full whatever session grows; found by the index.
CREATE TABLE sealed(
  place INTEGER PRIMARY KEY,
  shelf INTEGER NOT NULL,
  part INTEGER NOT NULL,
  first INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX sealed_by_part ON sealed(shelf, part, first);

-- For people who open the file without Recto.
CREATE VIEW coverage AS
SELECT s.session, s.lane, c.first, c.last, lower(hex(c.hash)) AS hash
FROM covered AS c
JOIN shelves AS s USING (shelf);
