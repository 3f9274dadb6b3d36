-- Positions of a revision's events, from its rows or else from job rows.
-- All parts of a step come from one generation: $3 if possible, else any.
with known as (
  select 'transcribed' as step, 1 as part, generation, log_topic, log_partition, log_offset, fact_id, 0 as note
  from revision_texts where document_id = $1 and ord = $2
  union all
  select case kind when 'chunks' then 'chunked' else 'embedded' end, part, generation, log_topic, log_partition, log_offset, fact_id, 0
  from settled where document_id = $1 and ord = $2 and kind in ('chunks', 'vectors')
  union all
  select s.step, j.part, j.generation, j.log_topic, j.log_partition, j.log_offset, null, 1
  from job_stages j join (values ('chunk', 'transcribed'), ('embed', 'chunked'), ('index', 'embedded')) s (stage, step) using (stage)
  where j.document_id = $1 and j.ord = $2
), chosen as (
  select distinct on (step) step, generation from known order by step, generation = coalesce($3, '') desc, note, generation
)
select distinct on (position(step in 'transcribed chunked embedded'), part) step, part, generation, log_topic, log_partition, log_offset, fact_id
from known join chosen using (step, generation)
order by position(step in 'transcribed chunked embedded'), part, note
