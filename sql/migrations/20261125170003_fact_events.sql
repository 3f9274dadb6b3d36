-- Offsets of the events of a fact in topic `feedback`, which the receipt of its erasure counts.
set local search_path = anabranch, extensions, public;

alter table facts add column log_offsets bigint[] not null default '{}';
