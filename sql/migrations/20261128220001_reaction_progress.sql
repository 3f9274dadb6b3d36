-- How many pages of a long document a running reaction has parsed.
set local search_path = anabranch, extensions, public;

alter table job_stages add column pages_done int, add column pages_total int;
