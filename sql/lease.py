"""A group's place in a topic, and the lease that makes one process its reader."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from schemas.errors import TransientError
from sql.errors import log_errors
from sql.pool import Pool
from sql.statements import statement


class LeaseLost(TransientError):
    """Another process reads for this group now."""

    code = "LEASE_LOST"


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """The last record that is finished, in reading order."""

    xact: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    pool: Pool
    group: str
    topic: str
    owner: UUID
    seconds: float

    async def take(self) -> Cursor | None:
        """The group's cursor, or None while another process holds the lease."""
        with log_errors():
            row = await self.pool.fetchrow(statement("take_lease"), self.group, self.topic, self.owner, self.seconds)
        return Cursor(row["xact"], row["position"]) if row else None

    async def keep(self, cursor: Cursor) -> None:
        """Write the cursor and stay the reader. Raises LeaseLost."""
        with log_errors():
            kept = await self.pool.fetchval(statement("keep_lease"), self.group, self.topic, self.owner, self.seconds, cursor.xact, cursor.position)
        if kept is None:
            raise LeaseLost(f"Another process took over reading {self.topic} for {self.group}.")

    async def end(self) -> None:
        with log_errors():
            await self.pool.execute(statement("end_lease"), self.group, self.topic, self.owner)
