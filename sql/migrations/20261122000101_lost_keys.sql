-- Keys created after the backup from which this keystore was restored; they are lost.
alter table keystore.keys add column lost_at timestamptz;
