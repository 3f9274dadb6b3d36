"""A second generation by the shortest way: the rows of the first, copied."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from schemas.generations import Generation
from schemas.ports.ledger import Projected
from schemas.rows import BuiltRow, GenerationRow, Row
from sql.derived_tables import PARTITIONED
from sql.generations import PgGenerations
from sql.ledger import PgLedger
from sql.pool import Pool
from tests.contract.ledger_facts import accepted


async def decide(pool: Pool, *rows: Row) -> None:
    fact = replace(accepted("decision", 1), id=uuid4())
    await PgLedger(pool, None).claim("control", "always", [Projected(fact, rows)])


async def copied(pool: Pool, base: str, name: str) -> Generation:
    """A shadow that shows what `base` shows at this moment."""
    original = await PgGenerations(pool).get(base)
    assert original is not None
    generation = original.model_copy(update={"name": name, "state": "building"})
    await decide(pool, GenerationRow(generation), BuiltRow(name, {}))
    for table in PARTITIONED:
        rows = await pool.fetch(
            "select column_name from information_schema.columns where table_schema = 'anabranch' and table_name = $1 and is_generated = 'NEVER'", table
        )
        columns = ", ".join(row["column_name"] for row in rows if row["column_name"] != "generation")
        await pool.execute(
            f"insert into {table} (generation, {columns}) select '{name}', {columns} from {table} where generation = '{base}' on conflict do nothing"
        )
    return generation
