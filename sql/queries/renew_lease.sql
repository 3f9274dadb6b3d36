-- Store the cursor and renew the lease for $4 seconds; no row if another process has the lease.
update log_readers
set xact = $5::xid8, position = $6, lease_until = clock_timestamp() + make_interval(secs => $4)
where reader = $1 and topic = $2 and lease_owner = $3
returning position
