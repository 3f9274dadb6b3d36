-- A key is wrapped with the master key and with a share that lies in the key file, in this slot; none for a database of its own, and for keys of older versions.
alter table keystore.keys add column slot bigint;

-- Which key file holds the shares.
alter table keystore.master add column key_file uuid;

-- Keys that verify what former master keys signed, wrapped with the present one.
create table keystore.signing_keys (
  fingerprint text primary key,
  wrapped bytea not null
);
