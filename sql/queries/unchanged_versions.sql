-- For each of these standings of a tenant's index in a generation ($1 to $3), in order: whether every change of it that has committed was seen already.
-- What had not begun when a snapshot was taken, and what had not ended, is invisible in it for ever.
select split_part(s.standing, ' ', 1) = xact_counter_epoch() and not exists (
  select from index_changes c
  where c.tenant = s.tenant and c.generation in ('', s.generation)
    and c.xact >= pg_snapshot_xmin(split_part(s.standing, ' ', 2)::pg_snapshot)
    and not pg_visible_in_snapshot(c.xact, split_part(s.standing, ' ', 2)::pg_snapshot)
) as unchanged
from unnest($1::text[], $2::text[], $3::text[]) with ordinality s (tenant, generation, standing, place)
order by s.place
