-- The date found in the text of a revision. One that the producer states precedes it.
set local search_path = anabranch, extensions, public;

alter table revision_texts add column document_date date;
-- Filters read the found date too, so the index no longer has their expression.
drop index documents_by_date;

create or replace view graph_documents with (security_barrier) as
select d.id::text as id, d.tenant, d.external_id, coalesce(d.title, d.filename) as title, d.source_uri, d.collection, coalesce(d.document_date, t.document_date)::text as document_date
from live_generation g
join visible v on v.generation = g.name
join documents d on d.id = v.document_id
left join revision_texts t on t.generation = g.name and t.document_id = d.id and t.ord = v.ord
where d.tenant = (select graph_tenant());
