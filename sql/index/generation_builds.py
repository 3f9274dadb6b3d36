"""Store how generations are built: pace, phase, cost and failures.

Operational state, not a projection. The progress of a build is its readers' cursors in the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas.errors import AnabranchError
from schemas.generations import Generation
from sql.advisory_locks import try_lock, wait_for_lock
from sql.errors import translate_database_errors
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.pool import Pool, execute, execute_many, fetch_rows, fetch_value

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


class PgGenerationBuilds:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get(self, name: str) -> GenerationBuild | None:
        return next(iter(await self._fetch_builds(name)), None)

    async def list_by_name(self) -> dict[str, GenerationBuild]:
        """Return generation → build, for generations that are not dropped."""
        return {build.generation.name: build for build in await self._fetch_builds(None)}

    @asynccontextmanager
    async def lock_decision(self) -> AsyncIterator[None]:
        """Serialize decisions to build a generation while the context is open."""
        with translate_database_errors():
            async with (
                self._pool.acquire(timeout=60) as connection,
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
            await fetch_value(
                self._pool, "allocate_generation_name", keep_previous, events_per_second
            )
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
        await execute(self._pool, "mark_build_done", generation, events, rows)

    async def record_failure(self, generation: str, error: Exception) -> None:
        anabranch_error = error if isinstance(error, AnabranchError) else None
        problem = (
            {
                "code": anabranch_error.code,
                "detail": anabranch_error.detail,
                "remedy": anabranch_error.remedy,
            }
            if anabranch_error
            else {"code": "BUG", "detail": repr(error), "remedy": ""}
        )
        await self._upsert(generation, error=problem)

    async def add_engine_calls(self, generation: str, calls: Mapping[str, int]) -> None:
        """Add to the counts of inputs that engines processed for the build."""
        if not calls:
            return
        await execute_many(
            self._pool,
            "add_engine_calls",
            [(generation, engine, inputs) for engine, inputs in calls.items()],
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
        with translate_database_errors():
            async with (
                self._pool.acquire(timeout=60) as connection,
                try_lock(connection, f"build {generation}") as acquired,
            ):
                yield acquired

    async def _fetch_builds(self, name: str | None) -> list[GenerationBuild]:
        rows = await fetch_rows(self._pool, "builds", name)
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
