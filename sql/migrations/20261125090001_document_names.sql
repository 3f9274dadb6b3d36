-- Names of documents, so that a question that names a document is linked to it. Nothing is stored: the names are
-- expressions that the partitions of `child_chunks` index for the first chunk of each document.
set local search_path = anabranch, extensions, public;

-- A name without case, accents, punctuation and a leading English article.
create function name_key(name text) returns text language sql immutable strict parallel safe as
$$
  select regexp_replace(btrim(regexp_replace(
    lower(regexp_replace(normalize(name, NFKD), '[\u0300-\u036f''’`´]', '', 'g')),
    -- Not [^[:alnum:]], which depends on the locale of the database.
    '[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00bf\u2000-\u206f\u3000-\u303f]+', ' ', 'g'
  )), '^(the|an?) (?=.)', '')
$$;

-- The keys of a document's names, from its first chunk. The prefix begins with the title. Names are the title; the
-- title without a final parenthesis, a file extension, or the part after a comma; and the words that the text
-- begins with, up to a line end, a parenthesis, a comma or a form of `to be`.
create function document_names(prefix text, body text) returns text[] language sql immutable strict parallel safe as
$$
  select coalesce(array_agg(distinct key), '{}')
  from (select split_part(split_part(prefix, E'\n', 1), ' > ', 1) as title) t
  cross join lateral (values
    (title),
    (regexp_replace(title, '\s*\([^()]*\)\s*$', '')),
    (regexp_replace(title, '\.[a-z]{2,4}[0-9]?$', '')),
    (substring(title from '^(\S+\s+\S[^,]*),')),
    (substring(left(body, 160) from
      '^[#>*_\s]*?([^(),;:?!\n]{2,80}?)\s*(?:[(,\n]|\s(?:is|was|are|were|é|foi|são|es|era|fue|son|est|était|sont|ist|war|sind)\s)'))
  ) as variant (name)
  cross join lateral anabranch.name_key(variant.name) key
  where length(key) > 1
$$;

-- Generations that exist already; new ones get the index from `sql/partitions.py`.
do $$
declare
  generation_name text;
begin
  for generation_name in select name from generations where to_regclass('child_chunks_' || name) is not null
  loop
    execute format(
      'create index %I on %I using gin (document_names(prefix, text)) where ordinal = 0',
      'child_chunks_' || generation_name || '_by_name', 'child_chunks_' || generation_name
    );
  end loop;
end $$;

-- A title that an amendment replaced is not in the prefix, which was embedded before.
create index documents_by_amended_title on documents (tenant, name_key(title)) where 'title' = any (amended);
