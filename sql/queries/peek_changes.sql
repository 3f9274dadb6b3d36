-- Changes of whole transactions that the slot was not yet advanced over. The cursor outlives its transaction, so that none is open while they are read.
declare changes no scroll cursor with hold for
select lsn - '0/0'::pg_lsn as sequence, data from pg_logical_slot_peek_binary_changes($1, null, $2, 'proto_version', '1', 'publication_names', $3)
