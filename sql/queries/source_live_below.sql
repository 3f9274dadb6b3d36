-- Rows whose documents are live and were last published below a mark.
select key from source_rows where source = $1 and table_name = $2 and live and (epoch, sequence) < ($3, $4) and key > $5 order by key limit $6
