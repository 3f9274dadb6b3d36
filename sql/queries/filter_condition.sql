-- Included condition: document of row `c` passes filters $5 to $11 and is readable for $12, if $4 is set.
(not $4::bool or exists (
  select from documents d
  left join revision_texts t on t.generation = $1 and t.document_id = c.document_id and t.ord = c.ord
  where d.id = c.document_id
    and ($5::text[] is null or d.collection = any ($5))
    and ($6::text[] is null or d.tags @> $6)
    and ($7::text[] is null or d.external_id = any ($7))
    and ($8::text[] is null or coalesce(t.language, d.language) = any ($8))
    and ($9::date is null or coalesce(d.document_date, (d.received_at at time zone 'UTC')::date) >= $9)
    and ($10::date is null or coalesce(d.document_date, (d.received_at at time zone 'UTC')::date) <= $10)
    and ($11::jsonb is null or d.metadata @> $11)
    and may_read($12::text[], d.readers)
    and ($12::text[] is null or 'readers' = any (d.amended) or may_read($12, (
      select r.readers from document_revisions r where r.document_id = c.document_id and r.ord = c.ord
    )))
))
