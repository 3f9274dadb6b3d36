-- For each (tenant $1, generation $2, snapshot version $3), whether no index change was committed since.
-- A transaction that was running or had not begun at the snapshot stays invisible in it, so its commit is a
-- change.
select split_part(s.standing, ' ', 1) = xact_counter_epoch() and not exists (
  select from index_changes c
  where c.tenant = s.tenant and c.generation in ('', s.generation)
    and c.xact >= pg_snapshot_xmin(split_part(s.standing, ' ', 2)::pg_snapshot)
    and not pg_visible_in_snapshot(c.xact, split_part(s.standing, ' ', 2)::pg_snapshot)
) as unchanged
from unnest($1::text[], $2::text[], $3::text[]) with ordinality s (tenant, generation, standing, place)
order by s.place
