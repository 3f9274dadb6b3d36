-- What ingress has admitted last, which the tables may not show yet: the event, the one before it, and the newest
-- order of all, with whether its source numbers its changes. A withdrawal of an unknown document has no owner.
set local search_path = anabranch, extensions, public;

alter table document_owners alter column source drop not null;
alter table document_owners add column admitted_id uuid, add column previous_id uuid, add column latest bigint[], add column numbered boolean;

-- How often the event was claimed: a chain of an earlier delivery is not committed.
alter table inbox add column deliveries int not null default 1;

-- The generation in which a chain has applied all events that follow from this one, and the records of the document's
-- outcome while they are not published.
alter table inbox add column chained_in text, add column owed_records jsonb;
