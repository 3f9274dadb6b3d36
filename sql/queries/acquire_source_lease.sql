-- Acquire the lease that makes one process the reader of a source.
update source_states set holder = $2, lease_until = clock_timestamp() + make_interval(secs => $3)
where source = $1 and (holder is null or holder = $2 or lease_until < clock_timestamp()) returning 1
