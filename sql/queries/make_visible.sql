-- Point to these revisions, forward only.
insert into visible (generation, document_id, ord, tenant, chunks)
select $1, k.document_id, k.ord::bigint[], k.tenant,
       (select count(*) from child_chunks c where c.generation = $1 and c.document_id = k.document_id and c.ord = k.ord::bigint[])
from unnest($2::uuid[], $3::text[], $4::text[]) k (document_id, ord, tenant)
order by k.document_id
on conflict (generation, document_id) do update set ord = excluded.ord, chunks = excluded.chunks where visible.ord < excluded.ord
returning document_id, chunks
