-- Store a query, its answer, or both; either may arrive first.
insert into runs as r (id, tenant, kind, request, received_at, generation, response, answered_at, candidates, numbers, basis, asked_by)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
on conflict (id) do update set
  kind = coalesce(nullif(excluded.kind, ''), r.kind), request = coalesce(excluded.request, r.request), received_at = coalesce(excluded.received_at, r.received_at),
  generation = coalesce(excluded.generation, r.generation), response = coalesce(excluded.response, r.response),
  answered_at = coalesce(excluded.answered_at, r.answered_at),
  candidates = case when excluded.response is null then r.candidates else excluded.candidates end,
  numbers = case when excluded.response is null then r.numbers else excluded.numbers end,
  basis = coalesce(excluded.basis, r.basis), asked_by = coalesce(excluded.asked_by, r.asked_by)
