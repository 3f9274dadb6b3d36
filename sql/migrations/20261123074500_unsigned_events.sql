-- One row: the offsets below which unsigned events are accepted (JSON; topic -> partition -> offset),
-- recorded at the first start of a version that signs, with a MAC. Part of the keystore, since a rebuild of
-- the tables keeps it.
create table keystore.unsigned_events (
  singleton bool primary key default true check (singleton),
  below bytea not null,
  mac bytea not null
);
