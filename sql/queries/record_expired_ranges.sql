-- Included CTEs: record the deleted records of `gone` as one batch, for readers that missed them.
counted as (
  update expired_batches set batch = batch + 1 returning batch
), noted as (
  insert into expired_ranges (topic, first_xact, first_position, xact, position, first_batch, batch, records)
  select topic, xact, position, xact, position, batch, batch, 1 from gone, counted
)
