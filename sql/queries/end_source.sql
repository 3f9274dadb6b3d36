-- Nothing is read from it any more.
update sources set removed = true, withdraw = $2 where name = $1
