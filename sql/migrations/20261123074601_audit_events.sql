-- Administrative actions, projected from topic `control`. They name the action, never a secret or a text.
set local search_path = anabranch, extensions, public;

create table audit_events (
  id uuid primary key,
  tenant text not null,
  at timestamptz not null,
  who text not null,
  role text not null,
  what text not null,
  subject text,
  request_id text,
  outcome text not null
);
create index audit_events_by_tenant on audit_events (tenant, at desc, id desc);
create index audit_events_by_time on audit_events (at desc, id desc);
