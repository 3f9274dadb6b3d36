-- Users and groups that may read a document (null: everyone in its tenant), and who asked or sent something.
set local search_path = anabranch, extensions, public;

alter table documents add column readers text[];
-- Those that the revision came with: while it is visible its text is for them, even if a later revision names others.
alter table document_revisions add column readers text[];
alter table runs add column asked_by text;
alter table jobs add column asked_by text;

-- Whether a caller who goes by these names may read what is limited to these readers. Null stands for a caller without limits, and for everyone.
create function may_read(names text[], readers text[]) returns bool language sql immutable parallel safe
as $$ select names is null or readers is null or readers && names $$;

-- The same of the text of a revision. Readers that were amended hold for every revision.
create function may_read(document uuid, of_revision bigint[], names text[]) returns bool language sql stable parallel safe
set search_path = anabranch, extensions, public
as $$
  select names is null or exists (
    select from documents d left join document_revisions r on r.document_id = d.id and r.ord = of_revision
    where d.id = document and may_read(names, d.readers) and ('readers' = any (d.amended) or may_read(names, r.readers))
  )
$$;
