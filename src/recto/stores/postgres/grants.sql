-- What a gateway needs and no more, for a role that does not own the tables: it adds entries with their words, moves heads
-- forward, and keeps the index. It can neither change nor remove an entry, nor switch a guard off, nor serve a tenant
-- without the key that is made for it.
GRANT USAGE ON SCHEMA recto TO {role};
GRANT SELECT ON recto.schema_steps, recto.erasing TO {role};
GRANT SELECT, INSERT ON recto.entries TO {role};
GRANT SELECT, INSERT, UPDATE ON recto.heads, recto.terms TO {role};
GRANT SELECT, INSERT, UPDATE (seq, hash) ON recto.kept_heads TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON recto.shelves, recto.covered, recto.fresh, recto.sealed TO {role};
GRANT SELECT ON recto.transcript, recto.coverage TO {role};
GRANT EXECUTE ON FUNCTION recto.tenant() TO {role};
