-- Copy texts of superseded revisions into the history.
insert into chunk_history (document_id, text_sha256, tenant, text)
select distinct document_id, sha256(convert_to(text, 'UTF8')) as hash, tenant, text
from unnest($1::uuid[], $2::text[], $3::text[]) t (document_id, tenant, text) order by document_id, hash
on conflict (document_id, text_sha256) do update set generation = null where chunk_history.generation is not null
