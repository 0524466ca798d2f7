-- Schema 2: the words of every message, for recall. A row is written in the transaction of its entry. It is derived from
-- the entry: it may be missing, and it may be replaced.

CREATE TABLE terms(
  pos INTEGER PRIMARY KEY,  -- as in entries
  data BLOB NOT NULL
) STRICT;
