-- Make source $3 the owner if there is none, or if the owner is one of $4; returns the owner.
-- `do update` even without a change: `do nothing` would return no row for an existing owner.
insert into document_owners as o (tenant, document_id, source) values ($1, $2, $3)
on conflict (tenant, document_id) do update
  set source = case when o.source = any($4::text[]) or '*' = any($4::text[]) then excluded.source else o.source end
returning source
