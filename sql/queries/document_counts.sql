-- Number of a tenant's documents per state of the latest revision, including failures at ingress.
select state, count(*)::int as documents
from (
  select s.state from documents d join revision_states s on s.document_id = d.id and s.ord = (select max(ord) from document_revisions where document_id = d.id)
  where ($1::text is null or d.tenant = $1)
  union all
  select 'failed' from ingress_failures f where ($1::text is null or f.tenant = $1)
) every
group by state
