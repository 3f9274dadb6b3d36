"""A group's place in a topic, and the lease that makes one process its reader."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from schemas.errors import TransientError
from sql.errors import translate_log_errors
from sql.pool import Pool
from sql.query_loader import load_query


class LeaseLost(TransientError):
    """Another process reads for this group now."""

    code = "LEASE_LOST"


@dataclass(frozen=True, slots=True, order=True)
class ReaderCursor:
    """The last record that is finished, in reading order."""

    xact: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class ReaderLease:
    pool: Pool
    group: str
    topic: str
    owner: UUID
    seconds: float

    async def acquire(self) -> ReaderCursor | None:
        """The group's cursor, or None while another process holds the lease."""
        with translate_log_errors():
            row = await self.pool.fetchrow(load_query("acquire_lease"), self.group, self.topic, self.owner, self.seconds)
        return ReaderCursor(row["xact"], row["position"]) if row else None

    async def renew(self, cursor: ReaderCursor) -> None:
        """Write the cursor and stay the reader. Raises LeaseLost."""
        with translate_log_errors():
            renewed_position = await self.pool.fetchval(
                load_query("renew_lease"), self.group, self.topic, self.owner, self.seconds, cursor.xact, cursor.position
            )
        if renewed_position is None:
            raise LeaseLost(f"Another process took over reading {self.topic} for {self.group}.")

    async def release(self) -> None:
        with translate_log_errors():
            await self.pool.execute(load_query("release_lease"), self.group, self.topic, self.owner)
