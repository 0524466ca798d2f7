-- Schema 4: the words of every message, for recall. A row is written in the transaction of its entry. It is derived from
-- the entry: it may be missing, and it may be replaced. Versions before write entries without; these are indexed later.

CREATE TABLE recto.terms(
  session text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (session, seq)
) PARTITION BY HASH (session);

DO $$
BEGIN
  FOR part IN 0..15 LOOP
    EXECUTE format('CREATE TABLE recto.terms_%s PARTITION OF recto.terms FOR VALUES WITH (MODULUS 16, REMAINDER %s)', part, part);
    -- Rows are numbers that hardly compress.
    EXECUTE format('ALTER TABLE recto.terms_%s ALTER COLUMN data SET STORAGE EXTERNAL', part);
  END LOOP;
END
$$;

ALTER TABLE recto.terms ENABLE ROW LEVEL SECURITY;
ALTER TABLE recto.terms FORCE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON recto.terms USING (recto.may_see(tenant));

-- As with the transcript: nothing of what was said goes into the statistics of the server.
ALTER TABLE recto.terms ALTER COLUMN data SET STATISTICS 0;

-- Who adds entries adds their words too.
DO $$
DECLARE
  grantee text;
BEGIN
  FOR grantee IN
    SELECT DISTINCT a.grantee::regrole::text FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a
    WHERE c.oid = 'recto.entries'::regclass AND a.privilege_type = 'INSERT' AND a.grantee NOT IN (0, c.relowner)
  LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE ON recto.terms TO %s', grantee);
  END LOOP;
END
$$;
