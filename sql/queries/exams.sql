-- name: insert_exam
-- Store an exam. Repeating it has no effect.
insert into exams (id, tenant, generation, completed_at, exam) values ($1, $2, $3, $4, $5) on conflict do nothing

-- name: upsert_calibration
-- Store the calibration that was decided at offset $4 of topic `control`, unless a later one is stored.
insert into calibrations as c (tenant, generation, scores, decided_at, calibration) values ($1, $2, $3, $4, $5)
on conflict (tenant, generation, scores) do update set decided_at = excluded.decided_at, calibration = excluded.calibration
where c.decided_at < excluded.decided_at

-- name: exam
-- Exam $2 of tenant $1.
select exam from exams where tenant = $1 and id = $2

-- name: exams
-- The newest $2 exams of tenant $1.
select exam from exams where tenant = $1 order by completed_at desc, id desc limit $2

-- name: calibrations
-- Calibrations of tenant $1 for the scores $3 (null: of any models), of generation $2 or of those that it is a
-- rebuild of: a rebuild has the same chunks and vectors. The nearest generation comes first.
with recursive origins (name, distance) as (
  select $2::text, 0
  union all
  select g.base, o.distance + 1 from origins o join generations g on g.name = o.name where g.purpose = 'rebuild' and g.base is not null
)
select c.calibration from origins o join calibrations c on c.generation = o.name
where c.tenant = $1 and ($3::text is null or c.scores = $3)
order by o.distance, c.decided_at desc

-- name: exam_passages
-- Up to $4 visible chunks of tenant $2 in generation $1 in an order that the seed $3 decides, and the chunks of their
-- documents.
select c.id, c.parent_id, c.document_id, coalesce(d.external_id, d.filename, d.source_uri, d.id::text) as name, d.collection, c.kind, c.language, c.text, c.prefix,
       c.char_start, c.char_end, v.chunks
from child_chunks c
join visible v on v.generation = c.generation and v.document_id = c.document_id and v.ord = c.ord
join documents d on d.id = c.document_id
where c.generation = $1 and c.tenant = $2
order by md5(c.id::text || $3::text), c.id
limit $4

-- name: document_labels
-- Name and collection of the documents $2 of tenant $1.
select d.id, coalesce(d.external_id, d.filename, d.source_uri, d.id::text) as name, d.collection
from documents d where d.tenant = $1 and d.id = any ($2::uuid[])
