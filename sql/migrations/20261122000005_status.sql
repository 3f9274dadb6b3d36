-- The state of each revision in the live generation.
set local search_path = anabranch, extensions, public;

create index document_revisions_by_accepted on document_revisions (accepted_id);
create index dead_letters_by_time on dead_letters (dead_lettered_at desc, event_id);

-- Log positions of the events from which a revision's stages worked.
create view revision_positions as
select document_id, ord, ''::text as generation, 'transcribe' as stage, log_topic, log_partition, log_offset from document_revisions
union all
select document_id, ord, generation, 'chunk', log_topic, log_partition, log_offset from revision_texts
union all
select document_id, ord, generation, stage, log_topic, log_partition, log_offset
from settled join (values ('chunks', 'embed'), ('chunks', 'extract'), ('vectors', 'index'), ('entities', 'graph')) reader (kind, stage) using (kind);

-- Dead letters by revision. One whose position matches no revision (its rows were never written) belongs to
-- the latest.
create view revision_dead_letters as
select l.*, coalesce(p.ord, (select max(ord) from document_revisions where document_id = l.document_id)) as ord
from dead_letters l
left join lateral (
  select ord from revision_positions
  where document_id = l.document_id and stage = l.stage and log_topic = l.log_topic and log_partition = l.log_partition and log_offset = l.log_offset
    and (generation = '' or generation = l.generation)
  limit 1
) p on true
where l.document_id is not null;

-- `searchable` by words and vectors; entities may follow. An unchanged revision is served by the visible one
-- with the same content.
create view revision_states as
select
  r.document_id, r.ord, r.revision, r.tenant, r.accepted_id, r.unchanged, g.name as generation, v.ord as visible, v.chunks,
  case
    when d.withdrawn >= r.ord then 'withdrawn'
    when v.ord = r.ord then 'searchable'
    when exists (
      select from revision_dead_letters b
      where b.document_id = r.document_id and b.ord = r.ord and b.stage in ('transcribe', 'chunk', 'embed', 'index') and b.generation in ('', g.name)
    ) then 'failed'
    when v.ord > r.ord then 'superseded'
    when r.unchanged and v.ord is not null then 'searchable'
    when d.latest > r.ord then 'superseded'
    else 'running'
  end as state
from document_revisions r
join documents d on d.id = r.document_id
left join live_generation g on true
left join visible v on v.generation = g.name and v.document_id = r.document_id;
