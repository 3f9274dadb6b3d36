"""A raw binary COPY of what the pipeline wrote: the bound that its speed is a share of."""

from __future__ import annotations

from benchmarks.harness import Stopwatch
from sql.pool import Pool

INPUT_COLUMNS = "select column_name from information_schema.columns where table_schema = 'anabranch' and table_name = $1 and is_generated = 'NEVER' order by ordinal_position"


async def copy_seconds(pool: Pool, table: str, source: str, *, like: str, into: str) -> float:
    """Of the rows of `source` into a new table like another one, generated columns computed anew; `table` names the columns."""
    columns = [row["column_name"] for row in await pool.fetch(INPUT_COLUMNS, table)]
    rows = [tuple(row) for row in await pool.fetch(f"select {', '.join(columns)} from {source}")]
    await pool.execute(f"create table {into} (like {like} including all)")
    with Stopwatch() as watch:
        await pool.copy_records_to_table(into, records=rows, columns=columns, schema_name="anabranch")
    assert await pool.fetchval(f"select count(*) from {into}") == len(rows)
    return watch.seconds
