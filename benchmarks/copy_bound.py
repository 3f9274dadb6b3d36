"""The bound of ingestion speed: a binary COPY of the rows that the pipeline wrote."""

from __future__ import annotations

from benchmarks.harness import Timer
from sql.database import Pool

INPUT_COLUMNS = (
    "select column_name from information_schema.columns "
    "where table_schema = 'anabranch' and table_name = $1 and is_generated = 'NEVER' "
    "order by ordinal_position"
)


async def copy_seconds(pool: Pool, table: str, source: str, *, like: str, target: str) -> float:
    """Return the seconds to copy the rows of `source` into a new table like `like`.

    Generated columns are recomputed. `table` determines the columns.
    """
    columns = [row["column_name"] for row in await pool.fetch(INPUT_COLUMNS, table)]
    rows = [tuple(row) for row in await pool.fetch(f"select {', '.join(columns)} from {source}")]
    await pool.execute(f"create table {target} (like {like} including all)")
    with Timer() as timer:
        await pool.copy_records_to_table(
            target, records=rows, columns=columns, schema_name="anabranch"
        )
    assert await pool.fetchval(f"select count(*) from {target}") == len(rows)
    return timer.seconds
