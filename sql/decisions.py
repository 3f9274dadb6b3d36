"""Rows that no generation owns: generations themselves, questions, dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.generations import Generation
from schemas.rows import DeadLetterRow, GenerationRow, LiveRow, Row, RunRow
from sql.partitions import create_partitions
from sql.pool import Connection
from sql.statements import statement
from sql.storable import text


async def write_decisions(connection: Connection, rows: Iterable[Row]) -> None:
    """One at a time and in order: they are few, and later ones build on earlier ones."""
    for row in rows:
        match row:
            case GenerationRow(generation=generation):
                await _create(connection, generation)
            case LiveRow(generation=name):
                await connection.execute(statement("promote"), name)
            case RunRow():
                await connection.execute(statement("answer_run"), *_run(row))
            case DeadLetterRow():
                await connection.execute(statement("bury"), *_dead_letter(row))
            case _:
                raise TypeError(f"{type(row).__name__} belongs to a document: its stage must count by `latest` or `visible`")


async def _create(connection: Connection, generation: Generation) -> None:
    """The first one answers from the start."""
    values = generation.model_dump(mode="json")
    columns = [values[name] for name in ("name", "config", "how", "topics", "state")]
    new = await connection.fetchval(
        "insert into generations (name, config, how, topics, state) values ($1, $2, $3, $4, $5) on conflict do nothing returning name", *columns
    )
    if new is None:
        return
    await create_partitions(connection, generation)
    if await connection.fetchval("insert into live_generation (name) values ($1) on conflict do nothing returning name", generation.name):
        await connection.execute("update generations set state = 'live' where name = $1", generation.name)


def _run(row: RunRow) -> tuple[Any, ...]:
    return (
        *(row.run_id, row.tenant, row.kind, row.request, row.received_at, row.generation, row.response, row.answered_at),
        *(row.candidates, row.numbers),
    )


def _dead_letter(row: DeadLetterRow) -> tuple[Any, ...]:
    record = row.record.model_dump(mode="json") if row.record else None
    return (
        *(row.event_id, row.stage, row.generation or "", text(row.buried_type), text(row.tenant), row.document_id, row.topic, row.partition, row.offset),
        *(row.code, text(row.detail), text(row.remedy), text(row.traceback), row.attempts, record),
        *(text(row.producer_event_id), text(row.producer_source), row.buried_at),
    )
