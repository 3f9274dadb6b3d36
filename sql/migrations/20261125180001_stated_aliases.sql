-- Aliases that documents state are claims. Generations that exist already get their index here, new ones from
-- `sql/partitions.py`.
set local search_path = anabranch, extensions, public;

do $$
declare
  generation_name text;
begin
  for generation_name in select name from generations where to_regclass('claims_' || name) is not null
  loop
    execute format(
      'create index %I on %I (tenant, name_key(value), document_id) where property in (''abbreviation'', ''defined_term'')',
      'claims_' || generation_name || '_by_alias', 'claims_' || generation_name
    );
  end loop;
end $$;
