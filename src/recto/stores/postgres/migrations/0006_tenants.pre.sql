-- Schema 6: which tenant a connection serves is signed. A setting of the session can be written by every role, so by
-- itself it proves nothing. The owner of the tables, and members of its role, name any tenant, or '*' for all of them.
-- Every other role has to bring a token besides: the HMAC-SHA256 of the tenant's name under a key that
-- `recto store grant` makes for its gateways. Nothing is written for it, so it holds on a replica too.

-- The keys, with the two paddings of HMAC applied. Only the owner reads them: row security without a policy keeps them
-- from a role that was given all tables of the schema.
CREATE TABLE recto.store_keys(
  role text COLLATE "C" NOT NULL PRIMARY KEY,  -- for whom it was made
  inner_pad bytea NOT NULL CHECK (octet_length(inner_pad) = 64),
  outer_pad bytea NOT NULL CHECK (octet_length(outer_pad) = 64),
  made timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE recto.store_keys ENABLE ROW LEVEL SECURITY;
REVOKE ALL ON recto.store_keys FROM PUBLIC;

-- The tenant of the transaction; NULL where none is named. A tenant that is named without its token is an error, so that
-- a gateway with a wrong key does not take its sessions for empty.
CREATE FUNCTION recto.tenant() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  named text := current_setting('recto.tenant', true);
  token text := current_setting('recto.token', true);
BEGIN
  IF pg_has_role(session_user, current_user, 'MEMBER') THEN  -- the current user is the owner of this function
    RETURN named;
  END IF;
  IF coalesce(named, '') = '' AND coalesce(token, '') = '' THEN
    RETURN NULL;
  END IF;
  IF EXISTS (
    SELECT 1 FROM recto.store_keys AS k
    WHERE encode(sha256(k.outer_pad || sha256(k.inner_pad || convert_to(named, 'UTF8'))), 'hex') = token
  ) THEN
    RETURN named;
  END IF;
  RAISE EXCEPTION 'this role names a tenant without the key of the store' USING ERRCODE = 'RCT02';
END
$$;
