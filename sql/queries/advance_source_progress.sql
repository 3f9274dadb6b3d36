-- How far a partition is in the state.
insert into source_progress (source, topic, partition, next_offset) values ($1, $2, $3, $4)
on conflict (source, topic, partition) do update set next_offset = greatest(source_progress.next_offset, excluded.next_offset)
