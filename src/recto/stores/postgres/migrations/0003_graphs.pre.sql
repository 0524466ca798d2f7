-- Schema 3: graphs of the vectors of long sessions, where the server has pgvector. Without it nothing is missing but
-- speed: the rows of schema 2 are what counts, and these are made of them.
--
-- A function makes them, because an extension may come later than the store: `recto store upgrade` asks it again. It
-- says why there are none; nothing where there are.

CREATE FUNCTION recto.make_graphs() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  home text;
  has text;
  whole text;
  size integer;
  grantee text;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector') THEN
    IF NOT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'vector') THEN
      RETURN 'the server has no pgvector';
    END IF;
    BEGIN
      CREATE EXTENSION vector;
    EXCEPTION WHEN insufficient_privilege THEN
      RETURN 'pgvector is not switched on in this database, and this role may not do it: CREATE EXTENSION vector';
    END;
  END IF;
  SELECT n.nspname, e.extversion INTO home, has
  FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
  IF string_to_array(substring(has FROM '^\d+\.\d+'), '.')::integer[] < ARRAY[0, 8] THEN
    RETURN format('pgvector %s is too old, 0.8 is needed: ALTER EXTENSION vector UPDATE', has);
  END IF;

  IF to_regclass('recto.near') IS NULL THEN
    -- Which blocks of sealed rows are in a graph. Whoever removes a lane of a session removes this with it.
    CREATE TABLE recto.linked(
      session text COLLATE "C" NOT NULL,
      lane text COLLATE "C" NOT NULL,
      tenant text COLLATE "C" NOT NULL,
      first bigint NOT NULL,  -- the first entry of the block
      PRIMARY KEY (session, lane, first),
      FOREIGN KEY (session, lane) REFERENCES recto.shelves(session, lane) ON DELETE CASCADE
    ) PARTITION BY HASH (session);

    -- A vector as it is sealed: eight bits for each number, which a half holds exactly, and one scale. It is filled up
    -- with zeros to one of few sizes, so that there is a graph for every length of vectors without anybody making one.
    EXECUTE format('CREATE TABLE recto.near(
      session text COLLATE "C" NOT NULL,
      lane text COLLATE "C" NOT NULL,
      tenant text COLLATE "C" NOT NULL,
      seq bigint NOT NULL,
      piece integer NOT NULL,
      size integer NOT NULL,
      scale real NOT NULL,
      code %I.halfvec NOT NULL,
      PRIMARY KEY (session, lane, seq, piece),
      FOREIGN KEY (session, lane) REFERENCES recto.shelves(session, lane) ON DELETE CASCADE
    ) PARTITION BY HASH (session)', home);

    FOREACH whole IN ARRAY ARRAY['linked', 'near'] LOOP
      FOR part IN 0..15 LOOP
        EXECUTE format('CREATE TABLE recto.%I PARTITION OF recto.%I FOR VALUES WITH (MODULUS 16, REMAINDER %s)', whole || '_' || part, whole, part);
      END LOOP;
      EXECUTE format('ALTER TABLE recto.%I ENABLE ROW LEVEL SECURITY', whole);
      EXECUTE format('ALTER TABLE recto.%I FORCE ROW LEVEL SECURITY', whole);
      EXECUTE format('CREATE POLICY own_tenant ON recto.%I USING (recto.may_see(tenant))', whole);
    END LOOP;
    -- Nothing of what was said goes into the statistics of the server.
    ALTER TABLE recto.near ALTER COLUMN code SET STATISTICS 0, ALTER COLUMN scale SET STATISTICS 0;

    -- Of each partition by itself: so that one can be made anew while the others serve.
    FOR part IN 0..15 LOOP
      EXECUTE format('ALTER TABLE recto.near_%s SET (toast_tuple_target = 8160)', part);
      FOREACH size IN ARRAY ARRAY[384, 768, 1536, 3072] LOOP
        EXECUTE format('CREATE INDEX near_%1$s_of_%2$s ON recto.near_%1$s USING hnsw ((code::%3$I.halfvec(%2$s)) %3$I.halfvec_cosine_ops) WHERE size = %2$s', part, size, home);
      END LOOP;
    END LOOP;
  END IF;

  -- Who keeps the rest of the index keeps this too.
  FOR grantee IN
    SELECT DISTINCT a.grantee::regrole::text FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a
    WHERE c.oid = 'recto.sealed'::regclass AND a.privilege_type = 'INSERT' AND a.grantee NOT IN (0, c.relowner)
  LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON recto.near, recto.linked TO %s', grantee);
  END LOOP;
  RETURN '';
END
$$;

SELECT recto.make_graphs();
