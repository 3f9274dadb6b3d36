-- Number of visible chunks of a tenant, or of all, from the lexical statistics.
select coalesce(sum(chunks), 0)::int from corpus_deltas where generation = $1 and ($2::text is null or tenant = $2)
