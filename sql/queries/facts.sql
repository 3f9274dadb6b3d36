-- name: fact_columns
-- Included columns of a fact.
id as fact_id, subject, predicate, object, certainty, half_life_days, source, readers, status, stated_by, stated_at, expires_at, replaces, decided_by, decided_at, reason

-- name: insert_fact
-- Store a proposed fact. Repeating it has no effect.
insert into facts (id, tenant, subject, predicate, object, certainty, half_life_days, source, readers, status, stated_by, stated_at, expires_at, replaces, words)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'proposed', $10, $11, $12, $13, to_tsvector('simple', $14))
on conflict (id) do nothing

-- name: record_fact_event
-- Record the offset $3 of an event of a fact. Repeating it has no effect.
update facts set log_offsets = log_offsets || $3::bigint where tenant = $1 and id = $2 and $3 <> all (log_offsets)

-- name: decide_fact
-- Approve or reject a fact. One that was replaced or retracted stays so.
update facts set status = $3, decided_by = $4, decided_at = $5, reason = $6
where tenant = $1 and id = $2 and status not in ('replaced', 'retracted')

-- name: replace_facts
-- Mark the facts that an approved one replaces: the one that it names, and approved equals of the same readers.
update facts o set status = 'replaced'
from facts f
where f.tenant = $1 and f.id = $2 and f.status = 'approved' and o.tenant = f.tenant and o.id <> f.id
  and (
    o.id = f.replaces and o.status <> 'retracted'
    or o.status = 'approved' and (o.subject, o.predicate, o.object) = (f.subject, f.predicate, f.object) and o.readers is not distinct from f.readers
  )

-- name: retract_fact
-- Remove the text of a fact.
update facts
set (subject, predicate, object, source, readers, reason, words, status) = ('', '', '', null, '{}', null, '', 'retracted')
where tenant = $1 and id = $2

-- name: fact
-- A fact of a tenant that these readers may see.
select {fact_columns} from facts where tenant = $1 and id = $2 and status <> 'retracted' and may_read($3, readers)

-- name: equal_fact
-- A fact with the same text and readers that is proposed or approved, and not expired.
select id from facts
where tenant = $1 and (subject, predicate, object) = ($2, $3, $4) and readers is not distinct from $5
  and status in ('proposed', 'approved') and (expires_at is null or expires_at > $6)
order by status, stated_at, id
limit 1

-- name: facts
-- A page of facts that these readers may see, newest first.
select {fact_columns} from facts
where tenant = $1 and status <> 'retracted' and may_read($2, readers) and ($3::text is null or status = $3)
  and ($4::timestamptz is null or (stated_at, id) < ($4, $5::uuid))
order by stated_at desc, id desc
limit $6

-- name: matching_facts
-- Approved facts that hold a word of the query $3, those with most of them first.
select {fact_columns} from facts
where tenant = $1 and status = 'approved' and may_read($2, readers) and words @@ to_tsquery('simple', $3)
  and (expires_at is null or expires_at > $4)
order by ts_rank(words, to_tsquery('simple', $3)) desc, stated_at desc, id
limit $5

-- name: erasable_facts
-- Facts in an erasure scope.
select id from facts where tenant = $1 and ($2 = 'tenant' or $2 = 'fact' and id::text = $3) order by id

-- name: count_facts
-- Number of these ids that are facts.
select count(*) from facts where id = any($1)

-- name: erase_facts
-- Delete facts. If events stay readable ($2), keep them without text, as a rebuild does.
delete from facts where id = any($1) and not $2
