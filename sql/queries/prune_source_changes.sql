-- Delete changes that no later change needs.
-- These are older than a complete change, not among the newest 16, and older than a week or than the newest 256.
delete from source_changes c using (
  select key, epoch, sequence, read, gone,
    row_number() over w as age,
    bool_or(unknown = '{}') over (w rows between unbounded preceding and 1 preceding) as covered,
    added_at < clock_timestamp() - interval '7 days' as old
  from source_changes where source = $1 and key = any($2::text[])
  window w as (partition by key order by epoch desc, sequence desc, read, gone)
) known
where c.source = $1 and (c.key, c.epoch, c.sequence, c.read, c.gone) = (known.key, known.epoch, known.sequence, known.read, known.gone)
  and known.covered and known.age > 16 and (known.old or known.age > 256)
