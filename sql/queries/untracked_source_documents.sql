-- Documents of a source that its reader's state does not contain.
select d.external_id, d.latest[1:2] as mark from documents d
where d.source = $2 and d.external_id > $4 and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest) and d.latest[1:2] < $3::bigint[]
  and not exists (select 1 from source_rows r where r.source = $1 and r.external_id = d.external_id)
order by d.external_id limit $5
