-- name: upsert_run
-- Store a query, its answer, its progress, or several of them; any may arrive first.
insert into runs as r (id, tenant, kind, request, received_at, generation, response, answered_at, candidates, numbers, run_record, requested_by,
  deadline, steps, stopped, process_id, experiment)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
on conflict (id) do update set
  kind = coalesce(nullif(excluded.kind, ''), r.kind), request = coalesce(excluded.request, r.request), received_at = coalesce(excluded.received_at, r.received_at),
  generation = coalesce(excluded.generation, r.generation), response = coalesce(excluded.response, r.response),
  answered_at = coalesce(excluded.answered_at, r.answered_at),
  -- The question carries empty candidates, which must not replace those of its answer.
  candidates = case when excluded.response is null then r.candidates else excluded.candidates end,
  numbers = case when excluded.response is null then r.numbers else excluded.numbers end,
  run_record = coalesce(excluded.run_record, r.run_record), requested_by = coalesce(excluded.requested_by, r.requested_by),
  experiment = coalesce(excluded.experiment, r.experiment), deadline = coalesce(excluded.deadline, r.deadline), steps = r.steps || excluded.steps, stopped = coalesce(r.stopped, excluded.stopped),
  -- Another process may have claimed the run.
  process_id = coalesce(r.process_id, excluded.process_id)

-- name: run
-- A run with everything that was recorded of it.
select id as run_id, kind, request, received_at, generation, response, answered_at, candidates, numbers, run_record,
  {run_state}
from runs
where tenant = $1 and id = $2 and ($3::text is null or requested_by = $3)

-- name: run_state
-- Included: the state of a run. Past its deadline, the process that ran it has died.
case when answered_at is not null then 'completed' when stopped is not null then stopped ->> 'state'
  when deadline < now() then 'interrupted' when deadline is not null then 'running' end as state

-- name: run_progress
-- Progress of a run, and its response once it has one.
select id as run_id, received_at, answered_at, deadline, steps, stopped, response,
  {run_state}
from runs
where tenant = $1 and id = $2 and ($3::text is null or requested_by = $3)

-- name: ended_runs
-- The runs among $1 that were answered or stopped, also by another process.
select id, stopped is not null as is_stopped from runs where id = any($1) and (answered_at is not null or stopped is not null)

-- name: ended_run_processes
-- Processes that ended and left open runs. A process locks its name as long as it lives, see PgRunProcesses.
select process_id
from (select distinct process_id from runs where process_id is not null and answered_at is null and stopped is null) open_runs
where pg_try_advisory_xact_lock_shared(hashtext('anabranch runs ' || process_id))

-- name: claim_orphaned_runs
-- Make process $2 the owner of the open runs of ended processes $1, so that no other claims them.
update runs set process_id = $2
where process_id is not null and answered_at is null and stopped is null and process_id = any($1::uuid[])
  and pg_try_advisory_xact_lock_shared(hashtext('anabranch runs ' || process_id))
returning id as run_id, tenant, (select value ->> 'step' from jsonb_each(steps) order by key::int desc limit 1) as step

-- name: runs
-- Runs without their recorded details.
select id as run_id, kind, received_at, generation, answered_at, request -> 'query' as query, request -> 'profile' as profile, response -> 'refused' as refused, response -> 'answer' as answer,
  {run_state}, {sort_key} as sort_value
from runs
{page_of_runs}

-- name: page_of_runs
-- Included: a page of runs in a `PageOrder` after the row of $2 and $3, with text $6 in question or answer, outcome $7, profile $8, and received from $9 until $10, and ids from $11 to $12.
where tenant = $1 and ($5::text is null or requested_by = $5) and ($2::{sort_type} is null or ({sort_key}, id) {beyond} ($2, $3::uuid))
  and ($6::text is null or strpos(lower(request ->> 'query'), lower($6)) > 0 or strpos(lower(response ->> 'answer'), lower($6)) > 0)
  and ($7::text is null or $7 = case
    when answered_at is not null then case when (response ->> 'refused')::bool then 'refused' else 'answered' end
    when stopped is not null or deadline < now() then 'stopped'
    when deadline is not null then 'running' end)
  and ($8::text is null or request ->> 'profile' = $8)
  and ($9::timestamptz is null or coalesce(received_at, answered_at) >= $9) and ($10::timestamptz is null or coalesce(received_at, answered_at) < $10)
  and ($11::uuid is null or id between $11 and $12::uuid)
order by {sort_key} {direction}, id {direction}
limit $4

-- name: run_telemetry
-- The measurements of a page of runs, newest first. Expired or erased texts leave them null.
select id as run_id, kind, received_at, answered_at, {run_state},
  request ->> 'query' as query, response #>> '{trace,profile}' as profile, generation, response #>> '{trace,route,mode}' as mode,
  (response ->> 'refused')::bool as refused, response ->> 'code' as code, (response #>> '{confidence,probability}')::float8 as confidence,
  (request ->> 'k')::int as k, passages.sources, passages.mean_score, (response #>> '{trace,max_rerank_score}')::float8 as max_rerank_score,
  graph.nodes as graph_nodes, graph.edges as graph_edges, (response #>> '{trace,timings_ms,total}')::float8 as latency_ms,
  (response #>> '{trace,model_calls}')::int as model_calls, (response #>> '{trace,tokens}')::int as tokens,
  (response #>> '{trace,cost}')::float8 as cost, response #>> '{trace,currency}' as currency, (response #>> '{trace,cached}')::bool as cached, experiment ->> 'arm' as arm,
  (select useful from feedback where run_id = runs.id and tenant = $1 and useful is not null order by given_at desc, id limit 1) as useful, {sort_key} as sort_value
-- Limited first: the numbers of other runs are not computed.
from (select * from runs {page_of_runs}) as runs,
  lateral (select count(distinct passage -> 'document_id') as sources, avg((passage ->> 'score')::float8) as mean_score
    from jsonb_array_elements(case kind when 'search' then response -> 'results' else response -> 'contexts' end) as passage) as passages,
  lateral (select count(distinct lower(name)) as nodes, count(distinct fact) filter (where fact ->> 'kind' = 'relation') as edges
    from jsonb_array_elements(response -> 'graph_facts') as fact,
      unnest(array[fact ->> 'subject', case fact ->> 'kind' when 'relation' then fact ->> 'object' end]) as name) as graph
order by coalesce(received_at, answered_at) desc, id desc

-- name: recent_questions
-- Runs of a period, newest first, one per distinct request regardless of generation.
select id as run_id, request from (
  select distinct on (request - 'generation') id, request, received_at
  from runs
  where tenant = $1 and request is not null and response is not null
    and received_at >= coalesce($2::timestamptz, '-infinity') and received_at < coalesce($3::timestamptz, 'infinity')
  order by request - 'generation', received_at desc, id
) asked
order by received_at desc, run_id
limit $4

-- name: insert_feedback
-- Store feedback ($1 to $8, $10) and its judgements ($9, a list of objects). Repeating it has no effect.
with inserted as (
  insert into feedback (id, tenant, given_at, run_id, query, useful, corrected_answer, note, candidate_rejected) values ($1, $2, $3, $4, $5, $6, $7, $8, $10)
  on conflict do nothing returning id
)
insert into judgements (feedback_id, part, tenant, document_id, external_id, revision, char_start, char_end, quote, grade)
select inserted.id, j.part, $2, (j.judged ->> 'document_id')::uuid, j.judged ->> 'external_id', (j.judged ->> 'revision')::int,
       (j.judged ->> 'char_start')::int, (j.judged ->> 'char_end')::int, j.judged ->> 'quote', (j.judged ->> 'grade')::int
from inserted, jsonb_array_elements($9::jsonb) with ordinality j (judged, part)

-- name: question_judgements
-- Judgements of a period by query, newest first; the latest grade of a passage wins.
select distinct on (query, j.document_id, j.revision, j.char_start, j.char_end)
  coalesce(f.query, r.request ->> 'query') as query, j.document_id, j.external_id, j.revision, j.char_start, j.char_end, j.quote, j.grade
from feedback f
join judgements j on j.feedback_id = f.id
left join runs r on r.id = f.run_id
where f.tenant = $1 and f.given_at >= coalesce($2::timestamptz, '-infinity') and f.given_at < coalesce($3::timestamptz, 'infinity')
  and coalesce(f.query, r.request ->> 'query') is not null
order by query, j.document_id, j.revision, j.char_start, j.char_end, f.given_at desc, f.id

-- name: passages
-- Spans and texts of visible chunks; the live generation wins if several have the same chunk.
select distinct on (c.id) c.id, c.document_id, d.external_id, coalesce(r.revision, d.revision, 0) as revision, c.char_start, c.char_end, c.text
from child_chunks c
join generations g on g.name = c.generation and g.state <> 'dropped'
join visible v on v.generation = c.generation and v.document_id = c.document_id and v.ord = c.ord
left join documents d on d.id = c.document_id
left join document_revisions r on r.document_id = c.document_id and r.ord = c.ord
where c.tenant = $1 and c.id = any ($2::uuid[]) and ($3::text[] is null or may_read(c.document_id, c.ord, $3))
order by c.id, g.state = 'live' desc, g.name

-- name: parent_spans
-- Spans and texts of parent chunks in generation $1.
select p.id, p.document_id, p.char_start, p.char_end, p.text
from parent_chunks p join visible v on v.generation = p.generation and v.document_id = p.document_id and v.ord = p.ord
where p.generation = $1 and p.id = any ($2::uuid[])

-- name: document_parent_spans
-- Spans of the parent chunks of document $2 in generation $1.
select p.id, p.char_start, p.char_end
from parent_chunks p join visible v on v.generation = p.generation and v.document_id = p.document_id and v.ord = p.ord
where p.generation = $1 and p.document_id = $2
order by p.ordinal, p.id

-- name: recorded_texts
-- Texts of chunks and parents ($2) that recorded answers used, by hash, from any generation or the history.
with wanted as (
  select * from unnest($2::uuid[], $3::uuid[], $4::bytea[]) w (id, document_id, hash)
), standing as materialized (
  select array_agg(name) as names from generations where state in ('live', 'standby', 'shadow')
)
select w.id, coalesce(h.text, c.text, p.text) as text
from wanted w
left join chunk_history h on h.document_id = w.document_id and h.text_sha256 = w.hash and h.tenant = $1 and sha256(convert_to(h.text, 'UTF8')) = w.hash
left join lateral (
  select x.text from child_chunks x, standing s
  where x.generation = any (s.names) and x.id = w.id and x.document_id = w.document_id and x.tenant = $1 and sha256(convert_to(x.text, 'UTF8')) = w.hash limit 1
) c on h.text is null
left join lateral (
  select x.text from parent_chunks x, standing s
  where x.generation = any (s.names) and x.id = w.id and x.document_id = w.document_id and x.tenant = $1 and sha256(convert_to(x.text, 'UTF8')) = w.hash limit 1
) p on h.text is null
where coalesce(h.text, c.text, p.text) is not null
  and ($5::text[] is null or exists (select from documents d where d.id = w.document_id and may_read($5, d.readers)))

-- name: archive_run_texts
-- Copy texts that recorded answers used, and that no other generation has, into the history.
-- Run before generation $1 is dropped. Includes texts used in earlier, dropped generations, which this one may
-- share.
with others as materialized (
  select coalesce(array_agg(name), '{}') as names from generations where name <> $1 and state in ('live', 'standby', 'shadow')
), asked as (
  select distinct (c ->> 'id')::uuid as id
  from runs r, jsonb_array_elements((r.run_record -> 'chunks') || (r.run_record -> 'parents')) c
  where r.run_record is not null and (r.generation = $1 or r.generation not in (select name from generations where state in ('live', 'standby', 'shadow')))
), texts as (
  select t.document_id, t.tenant, t.text from asked a join child_chunks t on t.generation = $1 and t.id = a.id
  where not exists (select from child_chunks o, others where o.generation = any (others.names) and o.id = a.id)
  union all
  select t.document_id, t.tenant, t.text from asked a join parent_chunks t on t.generation = $1 and t.id = a.id
  where not exists (select from parent_chunks o, others where o.generation = any (others.names) and o.id = a.id)
)
insert into chunk_history (document_id, text_sha256, tenant, text, generation)
select distinct document_id, sha256(convert_to(text, 'UTF8')) as hash, tenant, text, $1 from texts order by document_id, hash
on conflict do nothing

-- name: current_document_states
-- Visible revision and state of the latest revision of these documents, in the live generation.
select d.id as document_id, r.revision as visible_revision,
       coalesce((select s.state from revision_states s where s.document_id = d.id order by s.ord desc limit 1), case when d.withdrawn is null then 'running' else 'withdrawn' end) as state
from documents d
left join live_generation g on true
left join visible v on v.generation = g.name and v.document_id = d.id
left join document_revisions r on r.document_id = d.id and r.ord = v.ord
where d.tenant = $1 and d.id = any ($2::uuid[]) and may_read($3::text[], d.readers)

-- name: revision_arrivals
-- The revisions of these documents, and where the log received them and the event that withdrew the document.
select r.document_id, r.revision, coalesce(r.title, d.title) as title, d.external_id, r.received_at,
       row(r.log_topic, r.log_partition, r.log_offset) as position,
       concat_ws(' ', r.content_sha256, r.fields, r.readers, case when r.forced then r.revision end) as content, coalesce(d.withdrawn >= r.ord, false) as is_withdrawn,
       case when w.event_id is not null then row(w.log_topic, w.log_partition, w.log_offset) end as withdrawal
from document_revisions r join documents d on d.id = r.document_id
left join document_owners o on o.tenant = r.tenant and o.document_id = r.document_id
left join inbox w on d.withdrawn >= r.ord and o.latest = d.withdrawn and w.generation = '' and w.stage = 'receive' and w.event_id = o.admitted_id
where r.tenant = $1 and r.document_id = any ($2::uuid[]) and ($3::text[] is null or may_read(r.document_id, r.ord, $3))

-- name: lineage_chunk
-- A stored chunk with its vector, while its revision is visible.
select c.text, c.prefix, c.char_start, c.char_end, n.embedding::text as vector
from child_chunks c
left join chunk_vectors n on n.generation = c.generation and n.document_id = c.document_id and n.ord = c.ord and n.chunk_id = c.id
where c.generation = $1 and c.document_id = $2 and c.ord = $3 and c.id = $4

-- name: lineage_revision
-- A revision with its text: by order ($3), else the one visible in the live generation, else the latest.
select
  r.document_id, r.tenant, r.ord, r.revision, r.source, r.event_id, r.accepted_id, r.content_sha256, r.blob, r.log_topic, r.log_partition, r.log_offset,
  d.external_id, coalesce(t.title, r.title, r.filename, d.title) as title, t.generation, t.text_sha256, t.markdown
from document_revisions r
join documents d on d.id = r.document_id
left join live_generation g on true
left join visible v on v.generation = g.name and v.document_id = r.document_id
left join revision_texts t on t.generation = coalesce($4, g.name) and t.document_id = r.document_id and t.ord = r.ord
where r.tenant = $1 and r.document_id = $2 and ($3::bigint[] is null or r.ord = $3)
  and ($5::text[] is null or may_read(r.document_id, r.ord, $5))
order by r.ord = v.ord desc nulls last, r.ord desc
limit 1

-- name: lineage_positions
-- Positions of a revision's events, from its rows or else from job rows.
-- All parts of a step come from one generation: $3 if possible, else any.
with known as (
  select 'transcribed' as step, 1 as part, generation, log_topic, log_partition, log_offset, event_id, 0 as note
  from revision_texts where document_id = $1 and ord = $2
  union all
  select case kind when 'chunks' then 'chunked' else 'embedded' end, part, generation, log_topic, log_partition, log_offset, event_id, 0
  from revision_parts where document_id = $1 and ord = $2 and kind in ('chunks', 'vectors')
  union all
  select s.step, j.part, j.generation, j.log_topic, j.log_partition, j.log_offset, null, 1
  from job_stages j join (values ('chunk', 'transcribed'), ('embed', 'chunked'), ('index', 'embedded')) s (stage, step) using (stage)
  where j.document_id = $1 and j.ord = $2
), selected as (
  select distinct on (step) step, generation from known order by step, generation = coalesce($3, '') desc, note, generation
)
select distinct on (position(step in 'transcribed chunked embedded'), part) step, part, generation, log_topic, log_partition, log_offset, event_id
from known join selected using (step, generation)
order by position(step in 'transcribed chunked embedded'), part, note

-- name: text_position
-- Position of the event that holds the text of revision $3 of document $2, null if it is not recorded. A revision with
-- the bytes of an earlier one may share its text.
select j.log_topic, j.log_partition, j.log_offset
from document_revisions r
join document_revisions s on s.document_id = r.document_id and s.content_sha256 = r.content_sha256 and s.ord <= r.ord
left join live_generation g on true
left join job_stages j on j.document_id = s.document_id and j.ord = s.ord and j.stage = 'chunk'
where r.tenant = $1 and r.document_id = $2 and r.revision = $3 and ($4::text[] is null or may_read(r.document_id, r.ord, $4))
order by j.log_offset is null, s.ord desc, j.generation = g.name desc, j.generation
limit 1

-- name: lineage_ingress
-- Position of an event in topic `raw`, as its ingress claim recorded it.
-- Claims are kept forever, but a rebuild of the tables loses the position (partition -1).
select log_topic, log_partition, log_offset from inbox where log_partition >= 0 and generation = '' and stage = 'receive' and event_id = $1

-- name: run_question
-- Query of a run, of any caller or only of caller $3.
select request ->> 'query' from runs where tenant = $1 and id = $2 and ($3::text is null or requested_by = $3)

-- name: difficult_questions
-- Questions of a period that were refused, answered with low confidence or judged not useful; the latest run of each.
select * from (
  select distinct on (r.request ->> 'query')
    r.request ->> 'query' as query, r.id as run_id, r.answered_at, coalesce((r.response ->> 'refused')::bool, false) as refused, r.response ->> 'code' as code,
    r.response #>> array['confidence', 'level'] as confidence, f.useful, f.corrected_answer, f.note
  from runs r
  left join lateral (select useful, corrected_answer, note from feedback where run_id = r.id and tenant = r.tenant order by given_at desc, id limit 1) f on true
  where r.tenant = $1 and r.kind = 'query' and r.request is not null and r.response is not null
    and r.received_at >= coalesce($2::timestamptz, '-infinity') and r.received_at < coalesce($3::timestamptz, 'infinity')
  order by r.request ->> 'query', r.received_at desc, r.id
) latest
where refused or confidence = 'low' or useful = false
order by answered_at desc, run_id
limit $4

-- name: golden_candidates
-- The latest run of each answered question of tenant $1 that has no judged passages and was not rejected. Answers judged
-- useful come first, then the most probable ones; answers judged not useful are left out.
with settled as materialized (
  select distinct coalesce(f.query, r.request ->> 'query') as query
  from feedback f left join runs r on r.id = f.run_id
  where f.tenant = $1 and (f.candidate_rejected or exists (select from judgements j where j.feedback_id = f.id))
), latest as (
  select distinct on (r.request ->> 'query')
    r.request ->> 'query' as query, r.id as run_id, r.answered_at, r.response ->> 'answer' as answer, r.response -> 'citations' as citations,
    (r.response #>> array['confidence', 'probability'])::float8 as probability, f.useful
  from runs r
  left join lateral (select useful from feedback where run_id = r.id and tenant = r.tenant and useful is not null order by given_at desc, id limit 1) f on true
  where r.tenant = $1 and r.kind = 'query' and r.request is not null and not (r.response ->> 'refused')::bool
    and jsonb_array_length(r.response -> 'citations') > 0
  order by r.request ->> 'query', r.received_at desc, r.id
)
select * from latest
where useful is distinct from false and not exists (select from settled where settled.query = latest.query)
order by useful nulls last, probability desc nulls last, answered_at desc, run_id
limit $2
