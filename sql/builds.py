"""How generations are being built: pace, phase, and what stopped them. Operational; where a build has come to are its readers' places in the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import AnabranchError
from sql.errors import database_errors
from sql.pool import Pool

PHASES = ("loading", "indexing", "catching up", "built")


@dataclass(frozen=True, slots=True)
class Build:
    paused: bool
    events_per_second: float | None
    phase: str
    error: Mapping[str, Any] | None


class PgBuilds:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def all(self) -> dict[str, Build]:
        with database_errors():
            rows = await self._pool.fetch("select generation, paused, events_per_second, phase, error from generation_builds")
        return {row["generation"]: Build(row["paused"], row["events_per_second"], row["phase"], row["error"]) for row in rows}

    async def set_pace(self, generation: str, *, paused: bool, events_per_second: float | None) -> None:
        await self._set(generation, paused=paused, events_per_second=events_per_second)

    async def reached(self, generation: str, phase: str) -> None:
        await self._set(generation, phase=phase)

    async def failed(self, generation: str, error: Exception) -> None:
        ours = error if isinstance(error, AnabranchError) else None
        told = {"code": ours.code, "detail": ours.detail, "remedy": ours.remedy} if ours else {"code": "BUG", "detail": repr(error), "remedy": ""}
        await self._set(generation, error=told)

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
