-- Events that consumer groups have processed before they were in the log.
set local search_path = anabranch, extensions, public;

-- Consumer groups whose effects were committed with the event; they do not read it again. Null: all groups read it.
alter table events add column applied_by text[];
-- Revisions that wait for stage `transcribe`: a chained revision must not overtake them.
create index events_unapplied_revisions on events (key) where topic = 'accepted' and applied_by is null;
