-- A kept head only moves forward, like a head. The owner of the tables may set it back when a transcript is accepted as
-- it is ('recto verify --accept'), and says so; no other role can.
CREATE FUNCTION recto.keep_forward() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.session = OLD.session AND NEW.tenant = OLD.tenant
     AND (NEW.seq > OLD.seq OR (NEW.seq = OLD.seq AND NEW.hash = OLD.hash)
          OR (current_setting('recto.accepting', true) = 'on' AND pg_has_role(current_user, (
                SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = TG_RELID), 'MEMBER'))) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'append-only: a kept head only moves forward' USING ERRCODE = 'RCT01';
END
$$;

CREATE TRIGGER kept_heads_advance BEFORE UPDATE ON recto.kept_heads FOR EACH ROW EXECUTE FUNCTION recto.keep_forward();

-- A policy of a table holds for what is asked of the table. Every other role than the owner that may name a partition
-- meets the same wall there. It is not forced upon the owner: pg_dump reads partitions, as the owner, and would refuse.
DO $$
DECLARE
  part regclass;
BEGIN
  FOR part IN
    SELECT i.inhrelid::regclass FROM pg_catalog.pg_inherits AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.inhparent JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'recto' AND c.relkind = 'p' AND c.relrowsecurity
  LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', part);
    EXECUTE format('CREATE POLICY own_tenant ON %s USING (recto.may_see(tenant))', part);
  END LOOP;
END
$$;

-- Roles that were given the rights of a gateway before: of a kept head only its number and hash ever change.
DO $$
DECLARE
  given record;
BEGIN
  FOR given IN
    SELECT r.rolname FROM pg_catalog.pg_class AS c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) AS a
    JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee
    WHERE c.oid = 'recto.kept_heads'::regclass AND a.privilege_type = 'UPDATE' AND a.grantee <> c.relowner
  LOOP
    EXECUTE format('REVOKE UPDATE ON recto.kept_heads FROM %I', given.rolname);
    EXECUTE format('GRANT UPDATE (seq, hash) ON recto.kept_heads TO %I', given.rolname);
  END LOOP;
END
$$;
