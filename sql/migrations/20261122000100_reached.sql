-- Offsets of Kafka consumer groups as these tables know them. A group that has committed more has read into
-- newer tables: these were restored.
set local search_path = anabranch, extensions, public;

create table consumer_offsets (
  reader text not null,
  topic text not null,
  partition int not null,
  next_offset bigint not null,
  primary key (reader, topic, partition)
) with (fillfactor = 50);
