-- Keys that were made after the backup which this keystore comes from: nobody has them any more.
alter table keystore.keys add column lost_at timestamptz;
