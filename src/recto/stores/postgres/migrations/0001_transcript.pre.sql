-- Schema 1: sessions and their entries. The database itself refuses to change or remove what is in them.
--
-- Every key begins with the session: tables are split by its hash here, and can be distributed by it over many nodes.
-- Names are bytes, because they may hold any character and PostgreSQL's text may not; the view at the end shows text.

CREATE TABLE recto.heads(
  session text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  seq bigint NOT NULL CHECK (seq >= 0),
  hash bytea NOT NULL CHECK (octet_length(hash) = 32),
  first_ts bigint NOT NULL DEFAULT 0,
  last_ts bigint NOT NULL DEFAULT 0,
  -- Another one with every owner: what an owner of before writes is refused. It begins with the time, so that an owner
  -- of a session that was erased has none of the session that took its name.
  epoch bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint,
  owner text COLLATE "C",           -- who has the turn
  lease_until timestamptz,          -- and until when, where nothing is heard of it
  PRIMARY KEY (session)
) PARTITION BY HASH (session);

CREATE TABLE recto.entries(
  session text COLLATE "C" NOT NULL,
  seq bigint NOT NULL CHECK (seq BETWEEN 1 AND 4294967295),
  tenant text COLLATE "C" NOT NULL,
  id bytea NOT NULL,
  ts bigint NOT NULL,  -- microseconds since 1970
  role text COLLATE "C" NOT NULL,
  kind bytea NOT NULL,
  wire bytea NOT NULL,
  surface bytea NOT NULL,
  tokens bigint NOT NULL,
  counter bytea NOT NULL,
  key bytea CHECK (octet_length(key) > 0),
  meta bytea NOT NULL,
  prev bytea NOT NULL CHECK (octet_length(prev) = 32),
  hash bytea NOT NULL CHECK (octet_length(hash) = 32),
  content bytea NOT NULL,
  PRIMARY KEY (session, seq)
) PARTITION BY HASH (session);

-- The end of every session, kept apart from the transcript, as it was acknowledged. It only grows.
CREATE TABLE recto.kept_heads(
  session text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  hash bytea NOT NULL CHECK (octet_length(hash) = 32),
  PRIMARY KEY (session)
) PARTITION BY HASH (session);

DO $$
BEGIN
  FOR part IN 0..15 LOOP
    EXECUTE format('CREATE TABLE recto.heads_%s PARTITION OF recto.heads FOR VALUES WITH (MODULUS 16, REMAINDER %s) WITH (fillfactor = 70)', part, part);
    EXECUTE format('CREATE TABLE recto.entries_%s PARTITION OF recto.entries FOR VALUES WITH (MODULUS 16, REMAINDER %s)', part, part);
    EXECUTE format('CREATE TABLE recto.kept_heads_%s PARTITION OF recto.kept_heads FOR VALUES WITH (MODULUS 16, REMAINDER %s) WITH (fillfactor = 70)', part, part);
    -- Content is compressed by who wants it compressed; the first bytes of large entries are rarely asked for alone.
    EXECUTE format('ALTER TABLE recto.entries_%s ALTER COLUMN content SET STORAGE EXTENDED', part);
  END LOOP;
END
$$;

-- What was said must not be copied into the statistics of the server: it would outlive the erasure of its session.
ALTER TABLE recto.entries ALTER COLUMN content SET STATISTICS 0, ALTER COLUMN meta SET STATISTICS 0,
  ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN key SET STATISTICS 0;

CREATE UNIQUE INDEX entries_by_id ON recto.entries(session, id);
CREATE UNIQUE INDEX entries_by_key ON recto.entries(session, key) WHERE key IS NOT NULL;

CREATE FUNCTION recto.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'append-only: % is not for %', TG_TABLE_NAME, lower(TG_OP) USING ERRCODE = 'RCT01';
END
$$;

-- An entry is taken only directly after the entry it is chained to, so there are no gaps either.
CREATE FUNCTION recto.follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.seq = 1 THEN
    IF NEW.prev = decode(repeat('00', 32), 'hex') THEN
      RETURN NEW;
    END IF;
  ELSIF EXISTS (
    SELECT 1 FROM recto.entries AS e WHERE e.session = NEW.session AND e.seq = NEW.seq - 1 AND e.hash = NEW.prev
  ) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'append-only: entry % does not follow the last one', NEW.seq USING ERRCODE = 'RCT01';
END
$$;

-- A head moves forward, or its owner changes; it never goes back and never becomes another session's.
CREATE FUNCTION recto.advance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.session <> OLD.session OR NEW.tenant <> OLD.tenant OR NEW.seq < OLD.seq
     OR (NEW.seq = OLD.seq AND NEW.hash <> OLD.hash) THEN
    RAISE EXCEPTION 'append-only: a head only moves forward' USING ERRCODE = 'RCT01';
  END IF;
  RETURN NEW;
END
$$;

CREATE TRIGGER entries_follow BEFORE INSERT ON recto.entries FOR EACH ROW EXECUTE FUNCTION recto.follow();
CREATE TRIGGER heads_advance BEFORE UPDATE ON recto.heads FOR EACH ROW EXECUTE FUNCTION recto.advance();

CREATE TABLE recto.erasing(
  session text COLLATE "C" NOT NULL PRIMARY KEY
);
-- The sessions that are being erased on purpose, in the transaction that does it; empty at all other times.

CREATE FUNCTION recto.stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM recto.erasing AS e WHERE e.session = OLD.session) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'append-only: nothing is removed from %', TG_TABLE_NAME USING ERRCODE = 'RCT01';
END
$$;

CREATE TRIGGER entries_keep BEFORE UPDATE ON recto.entries FOR EACH ROW EXECUTE FUNCTION recto.refuse();
CREATE TRIGGER entries_stay BEFORE DELETE ON recto.entries FOR EACH ROW EXECUTE FUNCTION recto.stay();
CREATE TRIGGER heads_stay BEFORE DELETE ON recto.heads FOR EACH ROW EXECUTE FUNCTION recto.stay();
CREATE TRIGGER kept_heads_stay BEFORE DELETE ON recto.kept_heads FOR EACH ROW EXECUTE FUNCTION recto.stay();

-- Rows of a table are emptied past the triggers of its rows, so a statement's trigger stands before each partition.
DO $$
BEGIN
  FOR part IN 0..15 LOOP
    EXECUTE format('CREATE TRIGGER stay_whole BEFORE TRUNCATE ON recto.entries_%s EXECUTE FUNCTION recto.refuse()', part);
    EXECUTE format('CREATE TRIGGER stay_whole BEFORE TRUNCATE ON recto.heads_%s EXECUTE FUNCTION recto.refuse()', part);
    EXECUTE format('CREATE TRIGGER stay_whole BEFORE TRUNCATE ON recto.kept_heads_%s EXECUTE FUNCTION recto.refuse()', part);
  END LOOP;
END
$$;

-- A connection sees the tenant it names for its transaction, and nobody else's; '*' is who looks after all of them.
ALTER TABLE recto.heads ENABLE ROW LEVEL SECURITY;
ALTER TABLE recto.heads FORCE ROW LEVEL SECURITY;
ALTER TABLE recto.entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE recto.entries FORCE ROW LEVEL SECURITY;
ALTER TABLE recto.kept_heads ENABLE ROW LEVEL SECURITY;
ALTER TABLE recto.kept_heads FORCE ROW LEVEL SECURITY;

CREATE FUNCTION recto.may_see(tenant text) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT current_setting('recto.tenant', true) IN (tenant, '*')
$$;

CREATE POLICY own_tenant ON recto.heads USING (recto.may_see(tenant));
CREATE POLICY own_tenant ON recto.entries USING (recto.may_see(tenant));
CREATE POLICY own_tenant ON recto.kept_heads USING (recto.may_see(tenant));

-- For people who look without Recto: SET recto.tenant = '*' first.
CREATE VIEW recto.transcript WITH (security_invoker = true) AS
SELECT
  session,
  seq,
  to_timestamp(ts / 1000000.0) AS time,
  role,
  encode(kind, 'escape') AS kind,
  tokens,
  encode(surface, 'escape') AS surface,
  encode(id, 'escape') AS id,
  encode(content, 'escape') AS content
FROM recto.entries;
