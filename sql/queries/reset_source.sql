-- Record that a source's sequence numbers restart. An undeclared producer is stored under its ce_source.
insert into sources (name, ce_source, epoch, resets) values ($1, $1, $2, jsonb_build_array($3::jsonb))
on conflict (name) do update set epoch = greatest(sources.epoch, excluded.epoch), resets = sources.resets || excluded.resets
