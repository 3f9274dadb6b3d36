"""Write declarations, resets and removals of sources."""

from __future__ import annotations

from schemas.rows import SourceRemovedRow, SourceResetRow, SourceRow
from sql.pool import Connection
from sql.query_loader import load_query


async def write_source_decision(
    connection: Connection, row: SourceRow | SourceRemovedRow | SourceResetRow
) -> None:
    match row:
        case SourceRow(spec=spec, epoch=epoch):
            await connection.execute(
                load_query("declare_source"),
                spec.name,
                spec.ce_source,
                spec.model_dump(mode="json"),
                epoch,
            )
        case SourceRemovedRow(source=name, withdraw=withdraw):
            await connection.execute(load_query("end_source"), name, withdraw)
        case SourceResetRow(source=name, reset=reset):
            await connection.execute(
                load_query("reset_source"), name, reset.epoch, reset.model_dump(mode="json")
            )
