-- Schema 2: the index of recall. Nothing in it is the only copy of anything; it is split by session like the transcript.

CREATE TABLE recto.shelves(
  session text COLLATE "C" NOT NULL,
  lane text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  generation bigint NOT NULL,  -- another one with every sealing
  PRIMARY KEY (session, lane)
) PARTITION BY HASH (session);

-- Which entries a lane has taken in: ranges that neither meet nor touch, written in one transaction with their rows.
CREATE TABLE recto.covered(
  session text COLLATE "C" NOT NULL,
  lane text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  first bigint NOT NULL,
  last bigint NOT NULL CHECK (last >= first),
  hash bytea NOT NULL,  -- of the last entry
  PRIMARY KEY (session, lane, first)
) PARTITION BY HASH (session);

CREATE TABLE recto.fresh(
  session text COLLATE "C" NOT NULL,
  lane text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (session, lane, seq)
) PARTITION BY HASH (session);

CREATE TABLE recto.sealed(
  session text COLLATE "C" NOT NULL,
  lane text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  part bigint NOT NULL,
  first bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (session, lane, part, first)
) PARTITION BY HASH (session);

DO $$
DECLARE
  whole text;
BEGIN
  FOREACH whole IN ARRAY ARRAY['shelves', 'covered', 'fresh', 'sealed'] LOOP
    FOR part IN 0..15 LOOP
      EXECUTE format('CREATE TABLE recto.%I PARTITION OF recto.%I FOR VALUES WITH (MODULUS 16, REMAINDER %s)', whole || '_' || part, whole, part);
    END LOOP;
    EXECUTE format('ALTER TABLE recto.%I ENABLE ROW LEVEL SECURITY', whole);
    EXECUTE format('ALTER TABLE recto.%I FORCE ROW LEVEL SECURITY', whole);
    EXECUTE format('CREATE POLICY own_tenant ON recto.%I USING (recto.may_see(tenant))', whole);
  END LOOP;
END
$$;

-- As with the transcript: nothing of what was said goes into the statistics of the server.
ALTER TABLE recto.fresh ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE recto.sealed ALTER COLUMN data SET STATISTICS 0;

-- For people who look without Recto: SET recto.tenant = '*' first.
CREATE VIEW recto.coverage WITH (security_invoker = true) AS
SELECT session, lane, first, last, encode(hash, 'hex') AS hash FROM recto.covered;
