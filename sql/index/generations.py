"""Read generations and their calibrations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from cachetools import TTLCache

from schemas.amendments import OrderKey
from schemas.errors import AnabranchError, InvalidRequest, NotFound, TransientError
from schemas.exams import Calibration
from schemas.generations import Generation
from schemas.topics import Position
from sql.database import PgStore, Pool, acquire, fetch_rows, try_lock, wait_for_lock
from sql.errors import translate_database_errors
from sql.index.derived_tables import PARTITIONED_TABLES

CALIBRATION_TTL_S = 1.0
"""A new calibration takes effect within this time."""


class PgGenerations(PgStore):
    """Generations over the table `generations`. Every method may raise DatabaseUnavailable."""

    async def fetch_live(self) -> Generation | None:
        return _parse_first(await self._fetch("live_generation"))

    async def fetch(self, name: str) -> Generation | None:
        return _parse_first(await self._fetch("generation", name))

    async def resolve(self, name: str | None) -> Generation:
        """Return the named generation, or the live one. Raises NotFound, also for a dropped one,
        and TransientError with code NO_GENERATION.
        """
        generation = await (self.fetch_live() if name is None else self.fetch(name))
        if generation is None or generation.state == "dropped":
            raise no_live_generation_error() if name is None else unknown_generation_error(name)
        return generation

    async def fetch_undropped(self) -> list[Generation]:
        return [
            Generation.model_validate(dict(row))
            for row in await self._fetch("undropped_generations")
        ]

    async def list_names(self) -> list[str]:
        """Return the names of all generations, including dropped ones."""
        return await self._fetch_column("generation_names")

    async def list_summaries(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Return generations that are not dropped, oldest first, with their documents, chunks and
        bytes.

        With a tenant, documents and chunks are the tenant's; bytes and build concern all tenants
        and are null.
        """
        return await self._fetch_summaries(None, tenant)

    async def get_summary(self, name: str, tenant: str | None = None) -> dict[str, Any] | None:
        """Return the summary of a generation, even if it is dropped."""
        return next(iter(await self._fetch_summaries(name, tenant)), None)

    async def fetch_bytes(self, name: str) -> int:
        summary = await self.get_summary(name)
        return int(summary["bytes"]) if summary else 0

    async def _fetch_summaries(self, name: str | None, tenant: str | None) -> list[dict[str, Any]]:
        return await self._fetch_bodies(
            "generation_summaries", name, list(PARTITIONED_TABLES), tenant
        )


def no_live_generation_error() -> TransientError:
    return TransientError(
        "No generation is live yet.",
        code="NO_GENERATION",
        remedy="Wait for the first worker to start, or run `anabranch worker`.",
    )


def unknown_generation_error(name: str) -> NotFound:
    return NotFound(
        f"Unknown generation {name!r}.",
        code="NO_SUCH_GENERATION",
        remedy="Run `anabranch generations list` to list them.",
    )


def generation_not_built_error(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"Generation {name!r} is still being built.",
        code="GENERATION_NOT_BUILT",
        remedy=f"Run `anabranch generations show {name}` to see its progress.",
    )


def _parse_first(rows: list[asyncpg.Record]) -> Generation | None:
    return Generation.model_validate(dict(rows[0])) if rows else None


@dataclass(frozen=True, slots=True)
class IndexSize:
    """The size of a generation.

    `passages` and `texts` count the distinct parents and chunks of each document. Bytes include
    indexes.
    """

    documents: int
    parts: int
    passages: int
    texts: int
    tokens: int
    other_bytes: int
    vector_bytes: int


async def measure_index(pool: Pool, generation: str) -> IndexSize:
    [row] = await fetch_rows(pool, "index_size", generation)
    return IndexSize(**dict(row))


async def fetch_visible_orders(pool: Pool, generation: str) -> dict[UUID, OrderKey]:
    rows = await fetch_rows(pool, "visible_orders_of_generation", generation)
    return {row["document_id"]: tuple(row["ord"]) for row in rows}


async def fetch_first_needed_positions(
    pool: Pool, generation: str, unread_by: str | None = None
) -> list[Position]:
    """Return, per partition, the first event that the generation's visible revisions were made
    from.

    With `unread_by`, only of revisions that this generation has not read.
    """
    rows = await fetch_rows(pool, "first_needed", generation, unread_by)
    return [Position(row["topic"], row["partition"], row["first"]) for row in rows]


# Store how generations are built: pace, phase, cost and failures.
#
# Operational state, not a projection. The progress of a build is its readers' cursors in the log.

BUILD_DECISION_LOCK = "a generation to build"
PACE_FIELDS = ("paused", "events_per_second")


@dataclass(frozen=True, slots=True)
class GenerationBuild:
    """The build of one generation.

    `phase` is loading, indexing, catching up, checking or built. `events` and `rows` are set once
    it is built.
    """

    generation: Generation
    base: str | None
    purpose: str
    phase: str
    paused: bool
    events_per_second: float | None
    keep_previous: bool
    error: Mapping[str, Any] | None
    started_at: datetime | None
    built_at: datetime | None
    events: int | None
    rows: int | None
    engine_calls: Mapping[str, int]


class PgGenerationBuilds(PgStore):
    async def get(self, name: str) -> GenerationBuild | None:
        return next(iter(await self._fetch_builds(name)), None)

    async def list_by_name(self) -> dict[str, GenerationBuild]:
        """Return generation → build, for generations that are not dropped."""
        return {build.generation.name: build for build in await self._fetch_builds(None)}

    @asynccontextmanager
    async def lock_decision(self) -> AsyncIterator[None]:
        """Serialize decisions to build a generation while the context is open."""
        async with (
            acquire(self._pool, timeout_s=60) as connection,
            wait_for_lock(connection, BUILD_DECISION_LOCK),
        ):
            yield

    async def allocate_name(
        self, *, keep_previous: bool = False, events_per_second: float | None = None
    ) -> str:
        """Return the next of g1, g2, …, which is never reused, even if the build fails.

        With `keep_previous` a rebuild keeps the previous generation on standby.
        """
        return str(
            await self._fetch_value("allocate_generation_name", keep_previous, events_per_second)
        )

    async def set_pace(self, generation: str, pace: Mapping[str, Any]) -> None:
        """Set `paused` and `events_per_second`; a missing key leaves its value.

        Resuming clears the error that stopped the build.
        """
        if pace:
            changes = {name: pace[name] for name in PACE_FIELDS if name in pace}
            await self._upsert(
                generation, **changes, **({"error": None} if changes.get("paused") is False else {})
            )

    async def set_phase(self, generation: str, phase: str) -> None:
        await self._upsert(generation, phase=phase, error=None)

    async def mark_built(self, generation: str, *, events: int, rows: int) -> None:
        await self._execute("mark_build_done", generation, events, rows)

    async def record_failure(self, generation: str, error: Exception) -> None:
        reason = (
            error if isinstance(error, AnabranchError) else AnabranchError(repr(error), code="BUG")
        )
        await self._upsert(generation, error=reason.to_dict())

    async def add_engine_calls(self, generation: str, calls: Mapping[str, int]) -> None:
        """Add to the counts of inputs that engines processed for the build."""
        if not calls:
            return
        await self._execute_many(
            "add_engine_calls", [(generation, engine, inputs) for engine, inputs in calls.items()]
        )

    async def count_rows(self, generation: str) -> int:
        """Count the rows in all partitions of a generation, except lexical statistics."""
        count_expression = " + ".join(
            f"(select count(*) from {table}_{generation})"
            for table in PARTITIONED_TABLES
            # Deltas are compacted in the background, so their number says nothing.
            if not table.endswith("_deltas")
        )
        with translate_database_errors():
            return int(await self._pool.fetchval(f"select {count_expression}"))

    @asynccontextmanager
    async def try_lock(self, generation: str) -> AsyncIterator[bool]:
        """Try to lock the build while the context is open; yield whether this caller has it."""
        async with (
            acquire(self._pool, timeout_s=60) as connection,
            try_lock(connection, f"build {generation}") as acquired,
        ):
            yield acquired

    async def _fetch_builds(self, name: str | None) -> list[GenerationBuild]:
        rows = await self._fetch("builds", name)
        return [_parse_build(dict(row)) for row in rows]

    async def _upsert(self, generation: str, **values: Any) -> None:
        names = ", ".join(values)
        placeholders = ", ".join(f"${number}" for number, _ in enumerate(values, 2))
        assignments = ", ".join(f"{name} = excluded.{name}" for name in values)
        with translate_database_errors():
            await self._pool.execute(
                f"insert into generation_builds (generation, {names}) values ($1, {placeholders}) "
                f"on conflict (generation) do update set {assignments}",
                generation,
                *values.values(),
            )


def _parse_build(row: dict[str, Any]) -> GenerationBuild:
    generation_fields = {
        name: row.pop(name) for name in ("name", "config", "how", "topics", "state")
    }
    return GenerationBuild(Generation.model_validate(generation_fields), **row)


class PgCalibrations(PgStore):
    """Calibrations over Postgres, read at most once a second for each key."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._cached: TTLCache[tuple[str, str, str | None], Calibration | None] = TTLCache(
            1024, CALIBRATION_TTL_S
        )

    async def fetch(
        self, tenant: str, generation: str, scores: str | None = None
    ) -> Calibration | None:
        """Return the latest calibration of the generation for these scores, or for any. A rebuild
        has that of the generation it was rebuilt from.
        """
        key = (tenant, generation, scores)
        try:
            return self._cached[key]
        except KeyError:  # a membership test could see an entry expire
            rows = await self._fetch("calibrations", tenant, generation, scores)
        calibration = Calibration.model_validate(rows[0]["calibration"]) if rows else None
        self._cached[key] = calibration
        return calibration
