-- Texts of revisions that came too late.
insert into chunk_history (document_id, text_sha256, tenant, text)
select document_id, sha256(convert_to(text, 'UTF8')) as hash, tenant, text
from unnest($1::uuid[], $2::text[], $3::text[]) t (document_id, tenant, text) order by document_id, hash
on conflict do nothing
