-- Users and groups that may read a document (null: everyone in its tenant), and who created a run or job.
set local search_path = anabranch, extensions, public;

alter table documents add column readers text[];
-- Readers that the revision was sent with. While it is visible they restrict its text, even if a later
-- revision names others.
alter table document_revisions add column readers text[];
alter table runs add column asked_by text;
alter table jobs add column asked_by text;

-- Whether a caller with these names may read data restricted to these readers. Null means a caller without
-- limits, or everyone.
create function may_read(names text[], readers text[]) returns bool language sql immutable parallel safe
as $$ select names is null or readers is null or readers && names $$;

-- The same for the text of a revision. Amended readers apply to every revision.
create function may_read(document uuid, of_revision bigint[], names text[]) returns bool language sql stable parallel safe
set search_path = anabranch, extensions, public
as $$
  select names is null or exists (
    select from documents d left join document_revisions r on r.document_id = d.id and r.ord = of_revision
    where d.id = document and may_read(names, d.readers) and ('readers' = any (d.amended) or may_read(names, r.readers))
  )
$$;
