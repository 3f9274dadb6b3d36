-- How many documents two generations show in different revisions, or only one of them shows.
select count(*)
from (select document_id, ord from visible where generation = $1) a
full join (select document_id, ord from visible where generation = $2) b using (document_id)
where a.ord is distinct from b.ord
