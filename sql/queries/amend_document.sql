-- Store the effective amendable fields of a document.
update documents set title = $2, collection = $3, tags = $4, metadata = $5, amended = $6, readers = $7 where id = $1
