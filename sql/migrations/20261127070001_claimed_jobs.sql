-- Jobs that are claimed before their event is written: one request per id, and readers that are about to apply.
set local search_path = anabranch, extensions, public;

-- `request_sha256`: hash of the claimed request. `readers`: stated by a request whose event may not be projected yet.
alter table jobs
  add column is_published bool not null default true,
  add column request_sha256 text,
  add column readers text[];
