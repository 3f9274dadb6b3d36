-- Mark a generation as dropped, unless it is live.
update generations set state = 'dropped' where name = $1 and not exists (select from live_generation where name = $1)
