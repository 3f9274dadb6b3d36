-- A generation is given up. The one that answers stays.
update generations set state = 'dropped' where name = $1 and not exists (select from live_generation where name = $1)
