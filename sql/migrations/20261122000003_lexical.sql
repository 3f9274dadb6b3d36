-- Exact BM25 without an extension but pgvector: the weights of a document's terms as a sparse vector (Robertson and Zaragoza 2009).
set local search_path = anabranch, extensions, public;

-- A stable 30-bit id of a term; md5 is the same on every Postgres version.
create function lexical_term_id(term text) returns int language sql immutable strict parallel safe as
$$ select (('x' || substr(md5(term), 1, 8))::bit(32)::bigint % 999999999)::int + 1 $$;
