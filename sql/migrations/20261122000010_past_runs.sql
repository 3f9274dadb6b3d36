-- What a question leaves behind so that it can be answered again as it was.
set local search_path = anabranch, extensions, public;

alter table runs add column basis jsonb;

-- Texts of a generation that was dropped, which answers of its time were made from: no log gives them back, so a checksum leaves them out.
alter table chunk_history add column generation text;
