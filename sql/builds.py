"""How generations are being built: pace, phase, cost, and what stopped them. Operational; where a build has come to are its readers' places in the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas.errors import AnabranchError
from schemas.generations import Generation
from sql.derived_tables import PARTITIONED
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement

DECIDING = "a generation to build"
PACE = ("paused", "events_per_second")


@dataclass(frozen=True, slots=True)
class Build:
    """`phase` is loading, indexing, catching up, checking or built. `events` and `rows` are known when it is built."""

    generation: Generation
    base: str | None
    purpose: str
    phase: str
    paused: bool
    events_per_second: float | None
    keep: bool
    error: Mapping[str, Any] | None
    started_at: datetime | None
    built_at: datetime | None
    events: int | None
    rows: int | None
    engine_calls: Mapping[str, int]


class PgBuilds:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get(self, name: str) -> Build | None:
        return next(iter(await self._builds(name)), None)

    async def all(self) -> dict[str, Build]:
        """Of all generations that are not dropped."""
        return {build.generation.name: build for build in await self._builds(None)}

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator[None]:
        """One decision to build a generation after the other, for as long as the context is open."""
        with database_errors():
            async with self._pool.acquire(timeout=60) as connection:
                # However long the others take: that is no table that somebody forgot to unlock.
                await connection.execute("select set_config('lock_timeout', '0', true), pg_advisory_lock(hashtext($1))", DECIDING)
                try:
                    yield
                finally:
                    await connection.execute("select pg_advisory_unlock(hashtext($1))", DECIDING)

    async def named(self, *, keep: bool = False, events_per_second: float | None = None) -> str:
        """The next of g1, g2, …: given to nobody else any more, also when nothing comes of it. With `keep` what a rebuild replaces shall stand by."""
        with database_errors():
            return str(await self._pool.fetchval(statement("name_generation"), keep, events_per_second))

    async def set_pace(self, generation: str, pace: Mapping[str, Any]) -> None:
        """`paused` and `events_per_second`; what is left out stays as it is. One that is told to go on does so after what stopped it, too."""
        if pace:
            given = {name: pace[name] for name in PACE if name in pace}
            await self._set(generation, **given, **({"error": None} if given.get("paused") is False else {}))

    async def reached(self, generation: str, phase: str) -> None:
        await self._set(generation, phase=phase, error=None)

    async def done(self, generation: str, *, events: int, rows: int) -> None:
        with database_errors():
            await self._pool.execute(
                "update generation_builds set phase = 'built', events = $2, rows = $3, built_at = coalesce(built_at, clock_timestamp()) where generation = $1",
                generation,
                events,
                rows,
            )

    async def failed(self, generation: str, error: Exception) -> None:
        ours = error if isinstance(error, AnabranchError) else None
        told = {"code": ours.code, "detail": ours.detail, "remedy": ours.remedy} if ours else {"code": "BUG", "detail": repr(error), "remedy": ""}
        await self._set(generation, error=told)

    async def asked(self, generation: str, calls: Mapping[str, int]) -> None:
        """Add to what engines were asked for it."""
        if not calls:
            return
        with database_errors():
            await self._pool.executemany(
                "insert into generation_engine_calls as c (generation, engine, inputs) values ($1, $2, $3) "
                "on conflict (generation, engine) do update set inputs = c.inputs + excluded.inputs",
                [(generation, engine, inputs) for engine, inputs in calls.items()],
            )

    async def rows(self, generation: str) -> int:
        """In all of its partitions, lexical statistics aside."""
        counted = " + ".join(f"(select count(*) from {table}_{generation})" for table in PARTITIONED if not table.endswith("_deltas"))
        with database_errors():
            return int(await self._pool.fetchval(f"select {counted}"))

    @asynccontextmanager
    async def alone(self, generation: str) -> AsyncIterator[bool]:
        """Whether nobody else works on this build now; for as long as the context is open, nobody else does."""
        key = f"build {generation}"
        with database_errors():
            async with self._pool.acquire(timeout=60) as connection:
                mine = await connection.fetchval("select pg_try_advisory_lock(hashtext($1))", key)
                try:
                    yield bool(mine)
                finally:
                    if mine:
                        await connection.execute("select pg_advisory_unlock(hashtext($1))", key)

    async def _builds(self, name: str | None) -> list[Build]:
        with database_errors():
            rows = await self._pool.fetch(statement("builds"), name)
        return [_build(dict(row)) for row in rows]

    async def _set(self, generation: str, **values: Any) -> None:
        names = ", ".join(values)
        places = ", ".join(f"${number}" for number, _ in enumerate(values, 2))
        changed = ", ".join(f"{name} = excluded.{name}" for name in values)
        with database_errors():
            await self._pool.execute(
                f"insert into generation_builds (generation, {names}) values ($1, {places}) on conflict (generation) do update set {changed}",
                generation,
                *values.values(),
            )


def _build(row: dict[str, Any]) -> Build:
    own = {name: row.pop(name) for name in ("name", "config", "how", "topics", "state")}
    return Build(Generation.model_validate(own), **row)
