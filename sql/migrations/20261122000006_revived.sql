-- Store whether a revision changed anything: it depends on what was visible, so a rebuild cannot derive it.
set local search_path = anabranch, extensions, public;

drop view revision_states;
alter table document_revisions add column forced bool not null default false, drop column unchanged;

-- The revision that a late withdrawal revived, while its reaction is pending.
alter table handled add column revived bigint[];

-- `searchable` by words and vectors; entities may follow. A revision with the same content as the visible one
-- is served by it.
create view revision_states as
select
  r.document_id, r.ord, r.revision, r.tenant, r.accepted_id, same.unchanged, g.name as generation, v.ord as visible, v.chunks,
  case
    when d.withdrawn >= r.ord then 'withdrawn'
    when v.ord = r.ord then 'searchable'
    when exists (
      select from revision_dead_letters b
      where b.document_id = r.document_id and b.ord = r.ord and b.stage in ('transcribe', 'chunk', 'embed', 'index') and b.generation in ('', g.name)
    ) then 'failed'
    when v.ord > r.ord then 'superseded'
    when same.unchanged then 'searchable'
    when d.latest > r.ord then 'superseded'
    else 'running'
  end as state
from document_revisions r
join documents d on d.id = r.document_id
left join live_generation g on true
left join visible v on v.generation = g.name and v.document_id = r.document_id
left join document_revisions shown on shown.document_id = v.document_id and shown.ord = v.ord
cross join lateral (
  select coalesce(shown.ord < r.ord and not exists (
    select from document_revisions other
    where other.document_id = r.document_id and other.ord > shown.ord and other.ord <= r.ord
      and (other.forced or other.content_sha256 <> shown.content_sha256 or other.fields <> shown.fields)
  ), false) as unchanged
) same;
