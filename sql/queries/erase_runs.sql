-- Questions that cite what is erased: that they were asked stays, not what was said.
update runs set request = null, response = null, candidates = '[]', numbers = '{}', basis = null
where id = any($1) and (request, response, basis) is distinct from (null, null, null)
