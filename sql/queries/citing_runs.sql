-- Runs whose answer, candidates or numbers name one of these documents.
select distinct r.id
from runs r, lateral (
  select jsonb_path_query(r.response, 'lax $.**.document_id') #>> '{}' as named
  union all
  select jsonb_path_query(r.candidates, 'lax $.**.document_id') #>> '{}'
  union all
  select jsonb_path_query(r.basis, 'lax $.**.document_id') #>> '{}'
) cited
where r.tenant = $1 and cited.named = any($2)
order by r.id
