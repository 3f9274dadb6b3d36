"""Apply corrections of entities: the types that people gave them, and those that they merged.

Mentions, relations and claims are stored under the corrected entity, together with the one that
documents write. Rows that arrive later are corrected when they are inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from schemas.events import EntityMerged, EntityRetyped, EntitySplit
from sql.invalidation import ALL_GENERATIONS, record_index_change
from sql.pool import Connection
from sql.query_loader import load_query


async def write_correction(
    connection: Connection, data: EntityRetyped | EntityMerged | EntitySplit, offset: int
) -> None:
    """Store a correction and apply it to the rows of all generations. Earlier decisions are
    ignored.

    Blocks until transactions that insert rows of the tenant have ended, and those that begin
    meanwhile.
    """
    entity = (data.tenant, data.entity_id)
    await connection.execute(load_query("lock_for_entity_correction"), data.tenant)
    match data:
        case EntityRetyped(type=entity_type):
            await connection.execute(load_query("retype_entity"), *entity, entity_type, offset)
        # An entity cannot be part of itself.
        case EntityMerged(into=into, into_type=into_type) if into != data.entity_id:
            await connection.execute(load_query("merge_entity"), *entity, into, into_type, offset)
        case EntitySplit():
            await connection.execute(load_query("merge_entity"), *entity, None, None, offset)
        case _:
            return
    await _apply_corrections(connection, data.tenant)


async def erase_corrections(
    connection: Connection,
    tenant: str,
    entities: Sequence[UUID] | None = None,
    before_offset: int | None = None,
) -> None:
    """Delete corrections, of all entities of the tenant by default, that were decided before an
    offset of topic `control`. Rows that are left return to the entities that documents write.
    """
    scope = (tenant, None if entities is None else list(entities), before_offset)
    await connection.execute(load_query("lock_for_entity_correction"), tenant)
    await connection.execute(load_query("reset_corrections"), *scope)
    await _apply_corrections(connection, tenant)
    await connection.execute(load_query("delete_corrections"), *scope)


async def _apply_corrections(connection: Connection, tenant: str) -> None:
    changed = await connection.fetch(load_query("derive_entity_corrections"), tenant)
    for row in changed:
        scope = (tenant, row["entity_id"], row["previous_root_id"], row["root_id"])
        await connection.execute(load_query("correct_mentions"), *scope, row["entity_type"])
        if row["root_id"] != row["previous_root_id"]:
            await connection.execute(load_query("correct_relations"), *scope)
            await connection.execute(load_query("correct_claims"), *scope)
    if changed:
        # Cached answers were linked by the entities before.
        await record_index_change(connection, ALL_GENERATIONS, [tenant])
