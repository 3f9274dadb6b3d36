-- Revisions of these documents that came after their withdrawal: where their acceptance stands, and where their bytes lie.
select r.document_id, r.log_topic, r.log_partition, r.log_offset, r.blob ->> 'key' as blob
from documents d join document_revisions r on r.document_id = d.id and r.ord > d.withdrawn
where d.id = any($1)
order by r.document_id, r.ord
