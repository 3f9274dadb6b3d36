-- What a run stores so that it can be rerun as it was.
set local search_path = anabranch, extensions, public;

alter table runs add column basis jsonb;

-- Texts of a dropped generation that recorded answers used. The log cannot restore them, so checksums exclude
-- them.
alter table chunk_history add column generation text;
