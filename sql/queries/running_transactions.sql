-- Number of our transactions that began before $1: they may read tables that are about to be truncated.
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'anabranch%' and xact_start < $1
