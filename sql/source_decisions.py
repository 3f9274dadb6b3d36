"""Sources as they are declared, reset and given up."""

from __future__ import annotations

from schemas.rows import SourceEndRow, SourceResetRow, SourceRow
from sql.pool import Connection
from sql.statements import statement


async def declare(connection: Connection, row: SourceRow | SourceEndRow | SourceResetRow) -> None:
    match row:
        case SourceRow(spec=spec, epoch=epoch):
            await connection.execute(statement("declare_source"), spec.name, spec.ce_source, spec.model_dump(mode="json"), epoch)
        case SourceEndRow(source=name, withdraw=withdraw):
            await connection.execute(statement("end_source"), name, withdraw)
        case SourceResetRow(source=name, reset=reset):
            await connection.execute(statement("reset_source"), name, reset.epoch, reset.model_dump(mode="json"))
