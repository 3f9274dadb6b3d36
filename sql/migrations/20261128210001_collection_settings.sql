-- How the documents of a collection are split and what is extracted from them, where it differs from the index.
set local search_path = anabranch, extensions, public;

alter table collection_profiles add column chunking text;
alter table collection_profiles add column chunk jsonb;
alter table collection_profiles add column extract jsonb;
