-- Up to where consumer groups of Kafka have come, as these tables know it: a group that has acknowledged more has seen later ones.
set local search_path = anabranch, extensions, public;

create table consumer_offsets (
  reader text not null,
  topic text not null,
  partition int not null,
  next_offset bigint not null,
  primary key (reader, topic, partition)
) with (fillfactor = 50);
