-- The source that owns each document. Not a projection: ingress decides by it and writes it before the
-- acceptance is in the log; a rebuild restores it from `accepted`.
set local search_path = anabranch, extensions, public;

create table document_owners (
  tenant text not null,
  document_id uuid not null,
  source text not null,
  primary key (tenant, document_id)
);
insert into document_owners (tenant, document_id, source) select tenant, id, source from documents where latest is not null and source <> '';
