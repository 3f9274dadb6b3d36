-- The generation that was live before, to which a rollback returns.
set local search_path = anabranch, extensions, public;

alter table live_generation add column previous text;
