-- Open a cursor over changes that the slot was not yet advanced past, in whole transactions.
-- `with hold` lets the cursor outlive its transaction, so that none is open while changes are read.
declare changes no scroll cursor with hold for
select lsn - '0/0'::pg_lsn as sequence, data from pg_logical_slot_peek_binary_changes($1, null, $2, 'proto_version', '1', 'publication_names', $3)
