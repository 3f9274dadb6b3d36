-- name: last_profile_reload
-- Number of the last reload of the profiles.
select number from reloaded_profiles

-- name: newer_profiles
-- The profiles of the last reload, if it came after reload $1.
select number, files from reloaded_profiles where number > $1

-- name: store_profiles
-- Store the profiles of a reload, and return its number.
insert into reloaded_profiles as p (number, sha256, files) values (1, $1, $2)
on conflict (singleton) do update set number = p.number + 1, sha256 = excluded.sha256, files = excluded.files
returning number
