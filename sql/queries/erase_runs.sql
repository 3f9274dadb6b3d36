-- Clear the contents of runs that cite erased documents; the runs stay.
update runs set request = null, response = null, candidates = '[]', numbers = '{}', basis = null
where id = any($1) and (request, response, basis) is distinct from (null, null, null)
