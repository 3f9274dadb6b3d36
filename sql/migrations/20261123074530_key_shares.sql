-- A key is wrapped with the master key and a share in this slot of the key file; null for databases without
-- one and for keys of older versions.
alter table keystore.keys add column slot bigint;

-- The key file that contains the shares.
alter table keystore.master add column key_file uuid;

-- Keys that verify signatures of former master keys, wrapped with the present one.
create table keystore.signing_keys (
  fingerprint text primary key,
  wrapped bytea not null
);
