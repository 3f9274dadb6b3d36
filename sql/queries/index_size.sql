-- Size of a generation: documents, parts, distinct passages and texts, tokens, and bytes of its tables.
select
  (select count(*) from visible where generation = $1) as documents,
  (select count(*) from visible v join settled s on s.generation = $1 and s.document_id = v.document_id and s.ord = v.ord and s.kind = 'chunks'
   where v.generation = $1) as parts,
  (select count(distinct (p.document_id, p.section, p.text)) from visible v
   join parent_chunks p on p.generation = $1 and p.document_id = v.document_id and p.ord = v.ord where v.generation = $1) as passages,
  (select count(distinct (c.document_id, c.prefix, c.text)) from visible v
   join child_chunks c on c.generation = $1 and c.document_id = v.document_id and c.ord = v.ord where v.generation = $1) as texts,
  (select coalesce(sum(c.tokens), 0) from visible v
   join child_chunks c on c.generation = $1 and c.document_id = v.document_id and c.ord = v.ord where v.generation = $1) as tokens,
  (select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where c.relnamespace = 'anabranch'::regnamespace and c.relkind = 'r' and pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES IN (%L)', $1::text)
     and i.inhparent <> 'chunk_vectors'::regclass)::bigint as other_bytes,
  (select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where pg_get_expr(c.relpartbound, c.oid) = format('FOR VALUES IN (%L)', $1::text) and i.inhparent = 'chunk_vectors'::regclass)::bigint as vector_bytes
