-- Feedback about passages of these documents, or about answers that cite them.
select id from feedback where tenant = $1 and run_id = any($3)
union
select feedback_id from judgements where tenant = $1 and document_id = any($2)
order by id
