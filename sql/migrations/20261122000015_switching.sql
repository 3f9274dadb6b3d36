-- Which generation answered before the live one: where a rollback leads.
set local search_path = anabranch, extensions, public;

alter table live_generation add column previous text;
