-- Store feedback ($1 to $8) and its judgements ($9, a list of objects). Repeating it has no effect.
with said as (
  insert into feedback (id, tenant, given_at, run_id, query, useful, corrected_answer, note) values ($1, $2, $3, $4, $5, $6, $7, $8)
  on conflict do nothing returning id
)
insert into judgements (feedback_id, part, tenant, document_id, external_id, revision, char_start, char_end, quote, grade)
select said.id, j.part, $2, (j.judged ->> 'document_id')::uuid, j.judged ->> 'external_id', (j.judged ->> 'revision')::int,
       (j.judged ->> 'char_start')::int, (j.judged ->> 'char_end')::int, j.judged ->> 'quote', (j.judged ->> 'grade')::int
from said, jsonb_array_elements($9::jsonb) with ordinality j (judged, part)
