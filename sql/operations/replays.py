"""Store replays: their selection, lease and progress. Operational state, not a projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from schemas.topics import Position
from sql.database import PgStore, read_values

# A replay whose process was killed continues elsewhere after this time.
LEASE_S = 15
REPLAY_FIELDS = ("id", "tenant", "kind", "stage", "generation", "selection", "per_second")


@dataclass(slots=True)
class ReplayCounts:
    """Records that were read, and the outcomes of the selected ones."""

    read: int = 0
    replayed: int = 0
    superseded: int = 0
    dead_lettered: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay of a range, or a redrive of dead letters (`dead_letter_ids`).

    A range has a topic and, per partition, start, end and current position.
    """

    id: UUID
    tenant: str
    kind: str
    stage: str
    generation: str | None
    selection: Mapping[str, Any]
    per_second: float | None
    dead_letter_ids: tuple[UUID, ...] | None = None
    topic: str | None = None
    starts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    counts: ReplayCounts = field(default_factory=ReplayCounts)


@dataclass(frozen=True, slots=True)
class OpenDeadLetter:
    """A dead letter that is not closed."""

    event_id: UUID
    stage: str
    generation: str | None
    tenant: str | None
    position: Position
    record_key: str | None
    headers_key: str | None
    appended_at: Any


class PgReplays(PgStore):
    async def insert(self, replay: Replay, total: int) -> None:
        await self._execute(
            "insert_replay",
            *read_values(replay, *REPLAY_FIELDS, "dead_letter_ids", "topic", "starts", "ends"),
            total,
        )

    async def list_replays(
        self, tenant: str, replay: UUID | None, limit: int
    ) -> list[dict[str, Any]]:
        """Return one replay, or the newest ones."""
        return await self._fetch_bodies("list_replays", tenant, replay, limit)

    async def set_state(
        self, tenant: str, replay: UUID, from_states: Sequence[str], to_state: str
    ) -> bool:
        """Change the state; return whether the replay was in one of `from_states`."""
        return (
            await self._fetch_value("set_replay_state", tenant, replay, list(from_states), to_state)
            is not None
        )

    async def acquire(self, owner: UUID, stages: Sequence[tuple[str, str | None]]) -> Replay | None:
        """Lease the oldest unleased replay of a stage that this process hosts."""
        row = await self._fetch_row(
            "lease_replay",
            owner,
            [f"{stage}/{generation or ''}" for stage, generation in stages],
            float(LEASE_S),
        )
        return _parse_replay(row) if row else None

    async def record_progress(
        self, owner: UUID, replay: UUID, positions: Mapping[int, int], counts: ReplayCounts
    ) -> bool:
        """Store progress and renew the lease; False if paused, cancelled or leased by another
        process.
        """
        return (
            await self._fetch_value(
                "record_replay_progress",
                replay,
                owner,
                dict(positions),
                counts.read,
                counts.replayed,
                counts.superseded,
                counts.dead_lettered,
                float(LEASE_S),
            )
            is not None
        )

    async def renew_lease(self, owner: UUID, replay: UUID) -> None:
        await self._execute("renew_replay_lease", replay, owner, float(LEASE_S))

    async def finish(self, owner: UUID, replay: UUID, error: str | None) -> None:
        await self._execute("finish_replay", replay, owner, error)

    async def delete_claims(self, generation: str, stage: str, events: Sequence[UUID]) -> None:
        """Delete claims, so that the events are processed as if they were new."""
        await self._execute("delete_claims", generation, stage, list(events))

    async def reopen_ingress_events(self, events: Mapping[UUID, str]) -> None:
        """Reopen ingress events (id → payload hash), so that ingress reacts to them again.

        An event with another payload under the same id stays closed.
        """
        await self._execute("reopen_ingress_events", list(events), list(events.values()))

    async def list_open_dead_letters(
        self, tenant: str, selection: Mapping[str, Any]
    ) -> list[OpenDeadLetter]:
        """Return open dead letters by `event_ids`, `stage`, `code`, `document_id`, oldest first."""
        rows = await self._fetch(
            "open_dead_letters",
            tenant,
            *map(selection.get, ("event_ids", "stage", "code", "document_id")),
        )
        names = ("event_id", "stage", "generation", "tenant", "record_key", "headers_key")
        return [
            OpenDeadLetter(
                **{name: row[name] for name in names},
                position=Position(row["log_topic"], row["log_partition"], row["log_offset"]),
                appended_at=row["appended_at"],
            )
            for row in rows
        ]

    async def list_collection_documents(self, tenant: str, collection: str) -> frozenset[UUID]:
        rows = await self._fetch("collection_documents", tenant, collection)
        return frozenset(row["id"] for row in rows)

    async def list_dead_letter_causes(self, tenant: str) -> list[dict[str, Any]]:
        """Return open dead letters by stage and code, most frequent first."""
        return await self._fetch_bodies("dead_letter_causes", tenant)


def _parse_replay(row: Any) -> Replay:
    dead_letter_ids = row["dead_letter_ids"]
    return Replay(
        **{name: row[name] for name in (*REPLAY_FIELDS, "topic")},
        dead_letter_ids=None if dead_letter_ids is None else tuple(dead_letter_ids),
        starts=_parse_offsets(row["start_offsets"]),
        ends=_parse_offsets(row["end_offsets"]),
        positions=_parse_offsets(row["positions"]),
        counts=ReplayCounts(row["read"], row["replayed"], row["superseded"], row["dead_lettered"]),
    )


def _parse_offsets(value: Mapping[str, int] | None) -> dict[int, int]:
    # JSON has text keys only.
    return {int(partition): offset for partition, offset in (value or {}).items()}
