-- name: insert_standing_question
-- Save a question, to be asked at once. A repeated event changes nothing.
insert into standing_questions (id, tenant, asked_by, readers, request, saved_at, due_at) values ($1, $2, $3, $4, $5, $6, now())
on conflict do nothing

-- name: delete_standing_question
-- Delete a question with its words and its changes.
with changes as (
  delete from answer_changes where question_id = $1 and tenant = $2
), terms as (
  delete from standing_terms where question_id = $1 and tenant = $2
)
update standing_questions
set request = null, due_at = null, leased_until = null, run_id = null, documents = '{}', generation = null, vector = null, problem = null
where id = $1 and tenant = $2

-- name: insert_answer_change
-- Store a change that an event states, without a delivery.
with asked as (
  update standing_questions set changed_at = greatest(changed_at, $4) where id = $2 and tenant = $3
)
insert into answer_changes (id, question_id, tenant, changed_at, data)
select $1, $2, $3, $4, $5 where exists (select from standing_questions where id = $2 and tenant = $3 and request is not null)
on conflict (id) do update set is_published = true

-- name: standing_questions
-- Saved questions, newest first: of the caller ($2) if it is limited, one of them by id $6.
select id as question_id, asked_by, request, saved_at, answered_at, changed_at, run_id, problem,
  due_at is not null or leased_until is not null as is_due
from standing_questions
where tenant = $1 and request is not null and ($2::text is null or asked_by = $2) and ($3::timestamptz is null or (saved_at, id) < ($3, $4::uuid))
  and ($6::uuid is null or id = $6)
order by saved_at desc, id desc
limit $5

-- name: answer_changes
-- Changes of a question, newest first.
select data as change, delivery, attempts, delivery_error from answer_changes where question_id = $1
order by changed_at desc, id desc limit $2

-- name: count_standing_questions
-- Number of a tenant's questions.
select count(*) from standing_questions where tenant = $1 and request is not null

-- name: standing_state
-- Whether any question is saved, how far `outcomes` was matched, and the live generation.
select exists (select from standing_questions where request is not null) as is_used, (select cursor from standing_cursor) as cursor,
  (select name from live_generation) as generation

-- name: store_standing_cursor
-- Store how far `outcomes` was matched.
insert into standing_cursor (cursor) values ($1) on conflict (singleton) do update set cursor = excluded.cursor

-- name: delete_standing_cursor
-- Forget it, unless a question was saved meanwhile.
delete from standing_cursor where not exists (select from standing_questions where request is not null)

-- name: match_standing_questions
-- Mark the questions as due that the new revisions of documents $1 could matter to, and return their number.
-- A chunk matters that holds the words with share $2 of the question's weight, or is similar to the question ($3, $4:
-- documents and questions); and so does each document that the answer was read from, also a withdrawn one.
with live as materialized (
  select name from live_generation
), shown as materialized (
  select v.generation, v.document_id, v.ord, v.tenant, d.readers
  from live join visible v on v.generation = live.name join documents d on d.id = v.document_id
  where v.document_id = any ($1::uuid[])
), chunks as materialized (
  select s.document_id, s.tenant, c.cfg, c.id, tsvector_to_array(c.tsv) as lexemes
  from shown s join child_chunks c on c.generation = s.generation and c.document_id = s.document_id and c.ord = s.ord
), keyed as materialized (
  select distinct c.id, k.question_id
  from chunks c cross join unnest(c.lexemes) word
  join standing_terms k on k.is_key and k.tenant = c.tenant and k.cfg = c.cfg and k.lexeme = word
), matched as materialized (
  select q.id
  from (
    select c.document_id, k.question_id from keyed k join chunks c using (id)
    where (select sum(share) from standing_terms t where t.question_id = k.question_id and t.cfg = c.cfg and t.lexeme = any (c.lexemes)) >= $2
    union
    select * from unnest($3::uuid[], $4::uuid[])
  ) m (document_id, question_id)
  join standing_questions q on q.id = m.question_id
  join shown s using (document_id)
  -- A document that the owner may not read changes no answer of it.
  where may_read(q.readers, s.readers)
  union
  select id from standing_questions where documents && $1::uuid[]
  union
  select q.id from standing_questions q where q.run_id is not null and q.min_similarity is null and q.tenant in (select tenant from shown)
), due as (
  -- A second later, since changes come in groups.
  update standing_questions q set due_at = coalesce(due_at, now() + interval '1 second'), is_silent = false
  where q.id = any (array(select id from matched)) and q.request is not null returning 1
)
select count(*) from due

-- name: standing_vectors
-- Vectors of the questions that were answered after $1.
select id, tenant, generation, vector, min_similarity, answered_at from standing_questions
where vector is not null and ($1::timestamptz is null or answered_at > $1)

-- name: visible_vectors
-- Vectors of the visible chunks of documents $1 in the live generation.
select n.document_id, n.tenant, n.generation, n.embedding
from live_generation l
join visible v on v.generation = l.name
join chunk_vectors n on n.generation = v.generation and n.document_id = v.document_id and n.ord = v.ord
where v.document_id = any ($1::uuid[])

-- name: mark_outdated_questions
-- Mark the questions as due whose vectors are of another generation than the live one.
update standing_questions set due_at = now(), is_silent = true
where due_at is null and leased_until is null and run_id is not null and problem is null
  and generation is distinct from (select name from live_generation)

-- name: has_valid_owner
-- Included: whether question `q` is of no API key, or of one that is neither revoked nor expired.
(q.asked_by not like 'key:%' or exists (
  select from credentials.api_keys k where 'key:' || k.id = q.asked_by and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
))

-- name: claim_due_question
-- Claim a question that is due, or whose claim has expired, of the next tenant behind $2: tenants take turns. It waits until
-- the tables have its last answer, but not for long: that may be lost.
update standing_questions set due_at = null, leased_until = now() + $1::interval
where id = (
  select id from standing_questions q
  where coalesce(leased_until, due_at) <= now() and request is not null and exists (select from standing_cursor) and {has_valid_owner}
    and (run_id is null or answered_at < now() - interval '10 minutes' or exists (select from runs r where r.id = q.run_id and r.answered_at is not null))
  order by tenant <= $2, tenant, coalesce(leased_until, due_at) limit 1 for update skip locked
)
returning id, tenant, asked_by, readers, request, case when not is_silent then run_id end as run_id

-- name: record_standing_answer
-- Store what the answer was, and end the claim. Returns nothing for a question that was deleted meanwhile.
-- While it was asked, another generation may have become live, for which the claimed question was not marked.
update standing_questions
set leased_until = null, problem = null, is_silent = due_at is null and exists (select from live_generation where name <> $5),
    due_at = coalesce(due_at, case when exists (select from live_generation where name <> $5) then now() end), run_id = $2, answered_at = $3, documents = $4, generation = $5, vector = $6, min_similarity = $7,
    changed_at = case when $8 then $3 else changed_at end
where id = $1 and request is not null
returning tenant

-- name: delete_standing_terms
-- Delete the words of a question.
delete from standing_terms where question_id = $1

-- name: insert_standing_terms
-- Store the words of a question.
insert into standing_terms (tenant, question_id, cfg, lexeme, share, is_key)
select $1, $2, * from unnest($3::text[]::regconfig[], $4::text[], $5::real[], $6::bool[]) on conflict do nothing

-- name: insert_found_change
-- Store a change that was found, to be published and delivered.
insert into answer_changes (id, question_id, tenant, changed_at, data, is_published, delivery, attempt_at)
values ($1, $2, $3, $4, $5, false, $6, now())

-- name: release_standing_question
-- End a claim without an answer; ask again at $3, or when the next change could matter.
update standing_questions set leased_until = null, problem = $2, due_at = coalesce(due_at, $3) where id = $1 and request is not null

-- name: claim_unpublished_changes
-- Claim changes that are not in the log yet for a minute, after which another process publishes them.
update answer_changes set attempt_at = now() + interval '1 minute'
where id in (select id from answer_changes where not is_published and attempt_at <= now() order by attempt_at limit 100 for update skip locked)
returning data

-- name: mark_change_published
-- Mark a change as published, to be delivered now.
update answer_changes set is_published = true, attempt_at = now() where id = $1

-- name: claim_deliveries
-- Claim the next deliveries for a minute, once the tables have their answers. After a minute they are sent without text. The first of each tenant come before the second of any, so that slow addresses of one hold up no other. Due again where they are written: another process may have claimed them meanwhile.
update answer_changes set attempts = attempts + 1, attempt_at = now() + interval '1 minute'
where delivery = 'pending' and attempt_at <= now() and id in (
  select c.id from answer_changes c join standing_questions q on q.id = c.question_id
  where delivery = 'pending' and is_published and attempt_at <= now() and {has_valid_owner}
    and (c.changed_at < now() - interval '1 minute' or exists (select from runs r where r.id = (c.data ->> 'run_id')::uuid and r.answered_at is not null))
  order by row_number() over (partition by c.tenant order by attempt_at), attempt_at limit $1
)
returning attempts, data

-- name: standing_question_owner
-- Who asks a question, and what it is.
select id, tenant, asked_by, readers, request, run_id from standing_questions where id = $1 and request is not null

-- name: end_delivery
-- Store how an attempt ended: state, error and when to try again.
update answer_changes set delivery = $2, delivery_error = $3, attempt_at = coalesce($4, attempt_at) where id = $1

-- name: redeliver_changes
-- Deliver the failed changes of a question again.
update answer_changes set delivery = 'pending', attempts = 0, attempt_at = now() where question_id = $1 and delivery = 'failed'

-- name: erase_questions
-- Delete erased questions with their words and changes.
with erased as (
  delete from standing_questions where id = any ($1::uuid[]) returning id
)
delete from answer_changes c using erased e where c.question_id = e.id

-- name: count_questions
-- Number of saved questions among these ids.
select count(*) from standing_questions where id = any ($1::uuid[]) and request is not null

-- name: erase_tenant_questions
-- Delete the questions that an erased tenant had saved before. They come back where the tables are made again from
-- events that stay readable.
delete from standing_questions q using erasures e
where e.receipt_id = $1 and e.scope = 'tenant' and q.tenant = e.tenant and q.saved_at <= e.requested_at
