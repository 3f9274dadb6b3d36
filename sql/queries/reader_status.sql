-- Reader statuses renewed within $1 seconds.
select reader, topic, partition, code, detail, remedy, since from reader_status
where updated_at > clock_timestamp() - make_interval(secs => $1) order by reader, topic, partition
