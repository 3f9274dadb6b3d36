"""The profiles of the last reload, and experiments that compare profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from cachetools import TTLCache

from schemas.events import ExperimentConfigured
from schemas.experiments import Experiment
from sql.database import Connection, PgStore, Pool, load_query

RUNNING_TTL_S, MAX_TENANTS = 1.0, 10_000


class PgReloadedProfiles(PgStore):
    """Files of the last reload, from which API processes learn of it.

    Every method may raise DatabaseUnavailable.
    """

    async def fetch_number(self) -> int:
        return await self._fetch_value("last_profile_reload") or 0

    async def fetch_newer(self, number: int) -> tuple[int, dict[str, Any]] | None:
        """Return number and files of the last reload, if it came after reload `number`."""
        row = await self._fetch_row("newer_profiles", number)
        return (row["number"], row["files"]) if row else None

    async def store(self, sha256: str, files: Mapping[Any, Any]) -> int:
        """Store the files of a reload, and return its number."""
        return int(await self._fetch_value("store_profiles", sha256, dict(files)))


async def write_experiment(connection: Connection, data: ExperimentConfigured) -> None:
    experiment = data.experiment
    await connection.execute(
        load_query("upsert_experiment"),
        experiment.experiment_id,
        data.tenant,
        experiment.started_at,
        experiment.stopped_at,
        experiment.model_dump(mode="json"),
    )


class PgExperiments(PgStore):
    """Experiments over Postgres. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._running: TTLCache[str, list[Experiment]] = TTLCache(MAX_TENANTS, RUNNING_TTL_S)

    async def list_experiments(self, tenant: str) -> list[Experiment]:
        """Return the experiments of the tenant, the latest first."""
        rows = await self._fetch_column("experiments", tenant)
        return [Experiment.model_validate(row) for row in rows]

    async def fetch_running(self, tenant: str) -> list[Experiment]:
        """Return those that run. A change by another process is seen after RUNNING_TTL_S."""
        if (running := self._running.get(tenant)) is None:
            found = await self.list_experiments(tenant)
            running = [experiment for experiment in found if experiment.stopped_at is None]
            self._running[tenant] = running
        return running

    async def count_outcomes(self, tenant: str, experiment_id: UUID) -> dict[str, dict[str, Any]]:
        """Return `runs`, `refused`, `judged` and `useful` by arm."""
        rows = await self._fetch_bodies("experiment_outcomes", tenant, str(experiment_id))
        return {row.pop("arm"): row for row in rows}

    async def write(self, data: ExperimentConfigured) -> None:
        """Write the row that stage `control` will write when it consumes the event."""
        async with self._transaction() as connection:
            await write_experiment(connection, data)
        self._running.pop(data.tenant, None)
