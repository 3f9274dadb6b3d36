-- Why a reader is stalled. Operational; a row that is not renewed expires.
set local search_path = anabranch, extensions, public;

create table reader_status (
  reader text not null,
  topic text not null,
  partition int not null,
  code text not null,
  detail text not null,
  remedy text not null,
  since timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  primary key (reader, topic, partition)
);
