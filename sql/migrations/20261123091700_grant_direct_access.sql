-- Grants for the role that reads directly, for where that role could not be made when the tables were: `anabranch doctor` says so and names this function.
set local search_path = anabranch, extensions, public;

create function grant_direct_access(reader text default 'anabranch_reader') returns void language plpgsql set search_path = anabranch, extensions, public
as $$
begin
  execute format('grant usage on schema anabranch, extensions to %I', reader);
  execute format(
    'grant select on documents, document_revisions, revision_texts, parent_chunks, child_chunks, entity_mentions, relations, claims, visible, runs, entities, live_generation to %I',
    reader
  );
end
$$;
revoke execute on function grant_direct_access(text) from public;
