"""Copy the rows of one generation to make a second one."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from schemas.events import GenerationBuilt, GenerationCreated, GenerationDropped, GenerationPromoted
from schemas.events.control import Purpose
from schemas.generations import Generation
from schemas.ports.ledger import ProjectedEvent
from schemas.rows import EventRow, Row
from sql.database import Pool
from sql.inbox.ledger import PgLedger
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.index.generations import PgGenerations
from tests.support.ledger_events import make_accepted


def created_row(
    generation: Generation, base: str | None = None, purpose: Purpose = "first"
) -> EventRow:
    return EventRow(GenerationCreated(generation=generation, base=base, purpose=purpose))


def built_row(name: str, barrier: dict[str, dict[int, int]]) -> EventRow:
    return EventRow(GenerationBuilt(generation=name, barrier=barrier))


def promoted_row(name: str, offset: int = 0) -> EventRow:
    return EventRow(GenerationPromoted(generation=name), offset)


def dropped_row(name: str) -> EventRow:
    return EventRow(GenerationDropped(generation=name))


async def apply_control_rows(pool: Pool, *rows: Row) -> None:
    fact = replace(make_accepted("decision", 1), id=uuid4())
    await PgLedger(pool, None).claim("control", "always", [ProjectedEvent(fact, rows)])


async def copy_generation(pool: Pool, base: str, name: str) -> Generation:
    """Copy `base` to a shadow with the same visible rows."""
    original = await PgGenerations(pool).fetch(base)
    assert original is not None
    generation = original.model_copy(update={"name": name, "state": "building"})
    await apply_control_rows(pool, created_row(generation), built_row(name, {}))
    for table in PARTITIONED_TABLES:
        rows = await pool.fetch(
            "select column_name from information_schema.columns "
            "where table_schema = 'anabranch' and table_name = $1 and is_generated = 'NEVER'",
            table,
        )
        columns = ", ".join(
            row["column_name"] for row in rows if row["column_name"] != "generation"
        )
        await pool.execute(
            f"insert into {table} (generation, {columns}) select '{name}', {columns} from {table} "
            f"where generation = '{base}' on conflict do nothing"
        )
    return generation
