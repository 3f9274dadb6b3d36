-- Latest revision of a document, or a row without order if only a job or an ingress failure knows it.
select numbered, external_id, latest
from (
  select numbered, external_id, latest, 1 as place from documents where tenant = $1 and id = $2 and latest is not null
  union all
  select false, external_id, null, 2 from jobs where tenant = $1 and document_id = $2
  union all
  select false, external_id, null, 3 from ingress_failures where tenant = $1 and document_id = $2
) every
order by place
limit 1
