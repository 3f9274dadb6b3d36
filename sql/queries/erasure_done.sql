-- Mark an erasure as done and keep only its counts.
with items as (
  delete from erasure_items where receipt_id = $1 returning place
), subjects as (
  delete from erasure_subjects where receipt_id = $1
)
insert into erasure_counts (receipt_id, place, removed)
select $1, place, count(*) from items group by place
union all
select $1, $2, 1
