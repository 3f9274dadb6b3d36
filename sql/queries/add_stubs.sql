-- Insert rows to lock for documents that have none.
insert into documents (id, tenant)
select id, tenant from unnest($1::uuid[], $2::text[]) stub (id, tenant) order by id
on conflict do nothing
