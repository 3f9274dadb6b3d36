-- Pages of runs, audit events and dead letters by what their lists filter, newest first.
set local search_path = anabranch, extensions, public;

drop index runs_by_time;
create index runs_by_time on runs (tenant, coalesce(received_at, answered_at) desc, id desc);
-- Questions of a period, for exams.
create index runs_by_receipt on runs (tenant, received_at);
create index audit_events_by_action on audit_events (tenant, action, occurred_at desc, id desc);
create index audit_events_by_actor on audit_events (tenant, actor, occurred_at desc, id desc);
drop index dead_letters_by_time;
create index dead_letters_by_time on dead_letters (coalesce(tenant, 'default'), dead_lettered_at desc, event_id desc) where closed_at is null;
create index dead_letters_by_cause on dead_letters (coalesce(tenant, 'default'), stage, code, dead_lettered_at desc, event_id desc)
where closed_at is null;
