-- Blobs of dead-lettered records.
select blob ->> 'key' as key
from dead_letters, unnest(array[record, headers]) blob
where coalesce(document_id, event_id) = any($1::uuid[]) and blob is not null
