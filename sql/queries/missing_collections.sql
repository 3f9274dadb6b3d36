-- Of these names ($2), those that no document of the tenant has that is not withdrawn and that these readers ($3) may read.
select name from unnest($2::text[]) name
where not exists (
  select from documents d
  where d.tenant = $1 and d.collection = name and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest) and may_read($3::text[], d.readers)
)
