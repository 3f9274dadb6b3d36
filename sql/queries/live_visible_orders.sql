-- Visible orders of these documents in the live generation.
select v.document_id, v.ord from visible v join live_generation l on l.name = v.generation where v.document_id = any($1::uuid[])
