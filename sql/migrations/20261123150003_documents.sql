-- Documents and their revisions: projections of `accepted`, shared by all generations.
set local search_path = anabranch, extensions, public;

-- The latest accepted revision, and the withdrawal if there is one. A row without `latest` is a stub that was
-- locked before its document arrived. `amended`: fields whose value comes from an amendment. `readers`: users and
-- groups that may read the document; null: everyone in its tenant.
create table documents (
  id uuid primary key,
  tenant text not null,
  external_id text,
  source text not null default '',
  numbered bool not null default false,
  source_uri text,
  filename text,
  media_type text,
  title text,
  language text,
  collection text,
  tags text[] not null default '{}',
  metadata jsonb not null default '{}',
  document_date date,
  readers text[],
  amended text[] not null default '{}',
  content_sha256 text,
  blob jsonb,
  latest bigint[],
  withdrawn bigint[],
  revision int not null default 0,
  event_id text,
  accepted_id uuid,
  received_at timestamptz
);
create index documents_by_external_id on documents (tenant, external_id);
create index documents_by_collection on documents (tenant, collection);
create index documents_by_tags on documents using gin (tags);
create index documents_by_metadata on documents using gin (metadata jsonb_path_ops);
create index documents_by_date on documents (tenant, (coalesce(document_date, (received_at at time zone 'UTC')::date)));
create index documents_by_arrival on documents (tenant, received_at, id);

-- Accepted revisions. `fields` are the producer's fields of this revision, `readers` those that it was sent with:
-- while it is visible they restrict its text, even if a later revision names others.
create table document_revisions (
  document_id uuid not null,
  ord bigint[] not null,
  revision int not null,
  tenant text not null,
  title text,
  filename text,
  media_type text,
  content_sha256 text not null,
  blob jsonb not null,
  fields jsonb not null default '{}',
  readers text[],
  forced bool not null default false,
  event_id text not null,
  source text not null,
  accepted_id uuid not null,
  received_at timestamptz not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  primary key (document_id, ord)
);
create index document_revisions_by_event on document_revisions (tenant, source, event_id);
create index document_revisions_by_accepted on document_revisions (accepted_id);

-- Amendments of documents, each with its own order, and the fields of late revisions (`by_revision`).
create table document_amendments (
  document_id uuid not null,
  ord bigint[] not null,
  accepted_id uuid not null,
  tenant text not null,
  fields jsonb not null,
  by_revision bool not null default false,
  received_at timestamptz not null,
  log_topic text not null,
  log_partition int not null,
  log_offset bigint not null,
  primary key (document_id, ord, accepted_id)
);
create index document_amendments_by_event on document_amendments (accepted_id);

-- The source that owns each document. Not a projection: ingress decides by it and writes it before the
-- acceptance is in the log; a rebuild restores it from `accepted`.
create table document_owners (
  tenant text not null,
  document_id uuid not null,
  source text not null,
  primary key (tenant, document_id)
);

-- Superseded chunk texts, so that past answers can be displayed. Shared by all generations, without vectors.
-- Texts of a dropped `generation` that recorded answers used cannot be restored from the log: checksums exclude
-- them.
create table chunk_history (
  document_id uuid not null,
  text_sha256 bytea not null,
  tenant text not null,
  text text not null,
  generation text,
  primary key (document_id, text_sha256)
);

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
