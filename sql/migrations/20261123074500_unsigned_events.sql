-- One row: the offsets below which events without a signature are accepted (JSON; topic -> partition -> offset), as they were at the first start of the version
-- that signs, and a code by which it is known that we wrote it. It lies beside the keys, since a rebuild of the tables keeps it.
create table keystore.unsigned_events (
  singleton bool primary key default true check (singleton),
  below bytea not null,
  mac bytea not null
);
