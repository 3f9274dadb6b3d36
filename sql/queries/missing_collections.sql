-- Names of $2 without a current document that readers $3 may read.
select name from unnest($2::text[]) name
where not exists (
  select from documents d
  where d.tenant = $1 and d.collection = name and d.latest is not null and (d.withdrawn is null or d.withdrawn < d.latest) and may_read($3::text[], d.readers)
)
