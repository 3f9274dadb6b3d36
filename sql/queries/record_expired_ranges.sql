-- Part of a statement that takes records out of the log (`gone`): keep their places as one batch, for those who had not read them.
counted as (
  update expired_batches set batch = batch + 1 returning batch
), noted as (
  insert into expired_ranges (topic, first_xact, first_position, xact, position, first_batch, batch, records)
  select topic, xact, position, xact, position, batch, batch, 1 from gone, counted
)
