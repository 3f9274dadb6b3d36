-- Changes that a caller limited to readers requested.
set local search_path = anabranch, extensions, public;

-- `limited_to`: reader names of the caller. Readers that precede the change and name none of them leave it without effect.
alter table document_amendments add column limited_to text[];
