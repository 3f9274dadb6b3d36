-- Store up to which offset a source partition is applied.
insert into source_progress (source, topic, partition, next_offset) values ($1, $2, $3, $4)
on conflict (source, topic, partition) do update set next_offset = greatest(source_progress.next_offset, excluded.next_offset)
