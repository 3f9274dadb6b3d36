-- Judgements of a period by query, newest first; the latest grade of a passage wins.
select distinct on (query, j.document_id, j.revision, j.char_start, j.char_end)
  coalesce(f.query, r.request ->> 'query') as query, j.document_id, j.external_id, j.revision, j.char_start, j.char_end, j.quote, j.grade
from feedback f
join judgements j on j.feedback_id = f.id
left join runs r on r.id = f.run_id
where f.tenant = $1 and f.given_at >= coalesce($2::timestamptz, '-infinity') and f.given_at < coalesce($3::timestamptz, 'infinity')
  and coalesce(f.query, r.request ->> 'query') is not null
order by query, j.document_id, j.revision, j.char_start, j.char_end, f.given_at desc, f.id
