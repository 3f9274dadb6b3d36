-- Visible chunks of a tenant (of all tenants without one), as the lexical statistics count them.
select coalesce(sum(chunks), 0)::int from corpus_deltas where generation = $1 and ($2::text is null or tenant = $2)
