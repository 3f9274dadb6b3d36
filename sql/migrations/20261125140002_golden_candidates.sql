-- Questions that a person rejected as golden questions.
set local search_path = anabranch, extensions, public;

alter table feedback add column candidate_rejected bool not null default false;
