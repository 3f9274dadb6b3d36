-- Delete amendments that precede a withdrawal.
delete from document_amendments a using unnest($1::uuid[], $2::text[]) k (document_id, ord) where a.document_id = k.document_id and a.ord < k.ord::bigint[]
