-- Mark a source as removed.
update sources set removed = true, withdraw = $2 where name = $1
