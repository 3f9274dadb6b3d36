-- Visible revision and state of the latest revision of these documents, in the live generation.
select d.id as document_id, r.revision as visible_revision,
       coalesce((select s.state from revision_states s where s.document_id = d.id order by s.ord desc limit 1), case when d.withdrawn is null then 'running' else 'withdrawn' end) as state
from documents d
left join live_generation g on true
left join visible v on v.generation = g.name and v.document_id = d.id
left join document_revisions r on r.document_id = d.id and r.ord = v.ord
where d.tenant = $1 and d.id = any ($2::uuid[]) and may_read($3::text[], d.readers)
