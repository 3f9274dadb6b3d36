-- Number of documents whose visible revision differs between two generations.
select count(*)
from (select document_id, ord from visible where generation = $1) a
full join (select document_id, ord from visible where generation = $2) b using (document_id)
where a.ord is distinct from b.ord
