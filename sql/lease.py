"""Lease a topic to one reader per consumer group and store its cursor."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from schemas.errors import TransientError
from sql.errors import translate_log_errors
from sql.pool import Pool
from sql.query_loader import load_query


class LeaseLost(TransientError):
    """Another process holds the group's lease."""

    code = "LEASE_LOST"


@dataclass(frozen=True, slots=True, order=True)
class ReaderCursor:
    """The last finished record in reading order: transaction, then position."""

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
        """Try to acquire the lease; return the group's cursor, or None if another process has it."""
        with translate_log_errors():
            row = await self.pool.fetchrow(
                load_query("acquire_lease"), self.group, self.topic, self.owner, self.seconds
            )
        return ReaderCursor(row["xact"], row["position"]) if row else None

    async def renew(self, cursor: ReaderCursor) -> None:
        """Store the cursor and renew the lease. Raises LeaseLost."""
        with translate_log_errors():
            renewed_position = await self.pool.fetchval(
                load_query("renew_lease"),
                self.group,
                self.topic,
                self.owner,
                self.seconds,
                cursor.xact,
                cursor.position,
            )
        if renewed_position is None:
            raise LeaseLost(
                f"Another process has taken the lease of group {self.group} on topic {self.topic}."
            )

    async def release(self) -> None:
        with translate_log_errors():
            await self.pool.execute(load_query("release_lease"), self.group, self.topic, self.owner)
