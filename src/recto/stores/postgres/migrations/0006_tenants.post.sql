-- From here on a tenant that is not signed opens nothing. A row also belongs to the tenant that its session names, so
-- that no tenant takes the name of another's session.

CREATE FUNCTION recto.wall(walled regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', walled);
  EXECUTE format('DROP POLICY IF EXISTS own_tenant ON %s', walled);
  -- The sub-select is evaluated once for a statement, not for every row.
  EXECUTE format('CREATE POLICY own_tenant ON %s USING ((SELECT recto.tenant()) = ANY (ARRAY[tenant, ''*'']))
    WITH CHECK ((SELECT recto.tenant()) = ANY (ARRAY[tenant, ''*''])
      AND tenant = coalesce(substring(session FROM ''^tenant:([A-Za-z0-9._-]{1,64})/''), ''''))', walled);
END
$$;

-- Every table with a tenant, and every partition. Of partitions nothing is forced upon the owner: pg_dump reads them as
-- the owner, and would refuse. The owner may name all tenants anyway.
CREATE FUNCTION recto.wall_all() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  walled regclass;
BEGIN
  FOR walled IN
    SELECT c.oid::regclass FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant'
    WHERE n.nspname = 'recto' AND c.relkind IN ('r', 'p') ORDER BY c.oid
  LOOP
    PERFORM recto.wall(walled);
  END LOOP;
END
$$;

SELECT recto.wall_all();

-- What older steps still name.
CREATE OR REPLACE FUNCTION recto.may_see(tenant text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT recto.tenant() IN (tenant, '*')
$$;

-- The tables of graphs are made later where pgvector comes later.
ALTER FUNCTION recto.make_graphs() RENAME TO make_graph_tables;
CREATE FUNCTION recto.make_graphs() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  lacking text;
BEGIN
  lacking := recto.make_graph_tables();
  PERFORM recto.wall(c.oid::regclass) FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  WHERE n.nspname = 'recto' AND c.relkind IN ('r', 'p') AND c.relname ~ '^(near|linked)(_[0-9]+)?$'
    AND NOT EXISTS (
      SELECT 1 FROM pg_catalog.pg_policy AS p
      WHERE p.polrelid = c.oid AND pg_get_expr(p.polqual, c.oid) LIKE '%recto.tenant()%'
    );
  RETURN lacking;
END
$$;
