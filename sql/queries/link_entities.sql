-- Visible entities with these normalized names ($3), weighted by their share of the name's mentions.
select type, key, (count(*) / sum(count(*)) over (partition by key))::float8 as weight
from entity_mentions m
join visible v on v.generation = $1 and v.document_id = m.document_id and v.ord = m.ord
where m.generation = $1 and m.tenant = $2 and m.key = any ($3::text[]) and ($4::text[] is null or may_read(m.document_id, m.ord, $4))
group by type, key
order by key, count(*) desc, type
