-- How many documents of a tenant are in each state, by their latest revision.
select s.state, count(*)::int as documents
from documents d join revision_states s on s.document_id = d.id and s.ord = (select max(ord) from document_revisions where document_id = d.id)
where d.tenant = $1
group by s.state
