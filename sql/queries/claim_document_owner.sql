-- Make source $3 the owner where there is none, or where the owner is one of $4. The owner after that: an update that changes nothing returns the row as well, also
-- where another transaction has just made it.
insert into document_owners as o (tenant, document_id, source) values ($1, $2, $3)
on conflict (tenant, document_id) do update
  set source = case when o.source = any($4::text[]) or '*' = any($4::text[]) then excluded.source else o.source end
returning source
