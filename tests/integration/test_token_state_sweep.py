"""The sweep deletes only the token states of a dropped generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest

from anabranch.composition.sources import build_reindex_service
from anabranch.composition.storage import prepare_storage
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from engines.blobs import ObstoreBlobStore
from schemas.errors import EngineUnavailable
from services.generations import service
from services.generations.service import sweep_token_states
from services.worker.maintenance import Maintenance
from sql.database import Pool
from sql.index.partitions import fetch_dropped_states
from sql.invalidation import IndexChangePruner
from sql.log.event_log import PgLog
from tests.fakes.null_embedder import NullEmbedder
from tests.support.pipeline import Pipeline, run_pipeline
from tests.support.reindex_cases import drop_and_publish, promote_generation
from tests.support.simulated_pipeline import LineParser

OVERRIDES = Overrides(parser=LineParser(), embedder=NullEmbedder(dimension=8, state_dimension=16))
LONG_TEXT = " ".join(
    f"Sentence {number} tells of herons and storks in the reeds of the river."
    for number in range(60)
)
TEXTS = {
    **{f"long-{number}": f"{LONG_TEXT} {number}." for number in range(4)},
    "short": "One heron.",
}
OTHER_CHUNKING = ["chunk.strategy=fixed_size", "chunk.child_tokens=32"]


async def fetch_referenced_blobs(at_work: Pipeline, generation: str) -> set[str]:
    rows = await at_work.pool.fetch(
        "select distinct blob_key from chunk_states where generation = $1", generation
    )
    return {row["blob_key"] for row in rows}


async def list_stored_blobs(at_work: Pipeline) -> set[str]:
    return set(await at_work.worker.storage.blobs.list_keys("default/"))


async def build_second_generation(at_work: Pipeline) -> str:
    """Build a live generation that shares one passage's token states with the first."""
    desk = build_reindex_service(
        at_work.worker.settings, at_work.worker.storage, at_work.worker.builder.decisions, OVERRIDES
    )
    name, _ = await desk.start_reindex(OTHER_CHUNKING)
    await at_work.wait_for_state(name, "shadow")
    await promote_generation(at_work, name)
    await at_work.wait_until_idle()
    return name


async def test_sweep_deletes_only_blobs_of_dropped_generation(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        name = await build_second_generation(at_work)
        old, new, before = (
            await fetch_referenced_blobs(at_work, "g1"),
            await fetch_referenced_blobs(at_work, name),
            await list_stored_blobs(at_work),
        )
        assert old - new and new - old and old & new and before >= old | new
        await drop_and_publish(at_work, "g1")
        assert await list_stored_blobs(at_work) == before, "a drop does not wait for it"
        await at_work.wait_until_idle()
        assert await sweep_token_states(at_work.worker.storage) == len(old - new)
        assert await list_stored_blobs(at_work) == before - (old - new)
        assert await sweep_token_states(at_work.worker.storage) == 0


async def test_interrupted_sweep_resumes(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = ObstoreBlobStore.delete

    async def break_down(blobs: ObstoreBlobStore, keys: Sequence[str]) -> None:
        await delete(blobs, keys[: len(keys) // 2])
        raise EngineUnavailable("the store is away")

    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        name = await build_second_generation(at_work)
        old, new, before = (
            await fetch_referenced_blobs(at_work, "g1"),
            await fetch_referenced_blobs(at_work, name),
            await list_stored_blobs(at_work),
        )
        await drop_and_publish(at_work, "g1")
        await at_work.wait_until_idle()
        with monkeypatch.context() as away:
            away.setattr(ObstoreBlobStore, "delete", break_down)
            with pytest.raises(EngineUnavailable):
                await sweep_token_states(at_work.worker.storage)
        await sweep_token_states(at_work.worker.storage)
        assert await at_work.pool.fetchval("select count(*) from dropped_states") == 0
        assert await list_stored_blobs(at_work) == before - (old - new)


async def test_states_shared_with_another_generation_are_kept(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        desk = build_reindex_service(
            at_work.worker.settings,
            at_work.worker.storage,
            at_work.worker.builder.decisions,
            OVERRIDES,
        )
        name = await desk.start_rebuild(keep_previous=True)
        await at_work.wait_for_state(name, "live")
        before = await list_stored_blobs(at_work)
        await drop_and_publish(at_work, "g1")
        await at_work.wait_until_idle()
        assert (
            await sweep_token_states(at_work.worker.storage) == 0
            and await list_stored_blobs(at_work) == before
        )


async def test_states_of_events_in_flight_are_kept(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        name = await build_second_generation(at_work)
        only_old = await fetch_referenced_blobs(at_work, "g1") - await fetch_referenced_blobs(
            at_work, name
        )
        await drop_and_publish(at_work, "g1")
        await at_work.wait_until_idle()

        async def arrives(
            log: PgLog, group: str, topic: str, below: Mapping[int, int] | None = None
        ) -> int:
            query = (
                "update chunk_states s set blob_key = d.blob_key from dropped_states d "
                "where s.generation = $1 and s.document_id = d.document_id "
                "and d.blob_key = any($2)"
            )
            await at_work.pool.execute(query, name, list(only_old))
            return 0

        monkeypatch.setattr(PgLog, "count_pending", arrives)
        assert await sweep_token_states(at_work.worker.storage) == 0
        assert await list_stored_blobs(at_work) >= only_old


async def test_sweep_waits_for_running_replay(database: str, tmp_path: Path) -> None:
    """A replay may publish a new reference to a blob."""
    async with prepare_storage(
        Settings(data_dir=tmp_path), database, pool_size=3, name="test"
    ) as storage:
        await storage.pool.execute(
            "insert into dropped_states values ('default/a/b', gen_random_uuid())"
        )
        await storage.pool.execute(
            "insert into replays (id, tenant, kind, stage, selection, start_offsets, end_offsets, "
            "total, lease_owner, lease_until) "
            "values (gen_random_uuid(), 'default', 'replay', 'embed', '{}', '{}', '{}', 1, "
            "gen_random_uuid(), clock_timestamp() + interval '1 day')"
        )
        assert await sweep_token_states(storage) == 0
        await storage.pool.execute(
            "update replays set lease_until = clock_timestamp() - interval '1 day'"
        )
        assert await sweep_token_states(storage) == 1


async def test_states_referenced_during_sweep_are_kept(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with prepare_storage(
        Settings(data_dir=tmp_path), database, pool_size=3, name="test"
    ) as storage:
        await storage.pool.execute(
            "insert into dropped_states select 'default/a/' || n, gen_random_uuid() "
            "from generate_series(1, 100) n"
        )
        gone: list[str] = []

        async def deleted(blobs: ObstoreBlobStore, some: Sequence[str]) -> None:
            """And of all that are left, each is used from here on."""
            gone.extend(some)

            async def used(pool: Pool, limit: int) -> dict[str, bool]:
                return dict.fromkeys(await fetch_dropped_states(pool, limit), True)

            monkeypatch.setattr(service, "fetch_dropped_states", used)

        monkeypatch.setattr(ObstoreBlobStore, "delete", deleted)
        await sweep_token_states(storage)
        assert 0 < len(gone) <= 20
        assert await storage.pool.fetchval("select count(*) from dropped_states") == 0


async def test_unavailable_blob_store_does_not_block_other_maintenance(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(blobs: ObstoreBlobStore, keys: Sequence[str]) -> None:
        raise EngineUnavailable("the store is away")

    monkeypatch.setattr(ObstoreBlobStore, "delete", away)
    ticks = count()
    async with prepare_storage(
        Settings(data_dir=tmp_path), database, pool_size=3, name="test"
    ) as storage:
        await storage.pool.execute(
            "insert into dropped_states values ('default/a/b', gen_random_uuid())"
        )
        upkeep = Maintenance(
            storage, storage.pool, IndexChangePruner(storage.pool, lambda: float(next(ticks)))
        )
        with pytest.raises(EngineUnavailable):
            await upkeep.run_once(expire=False)
    assert next(ticks) > 0, "old changes of indexes were looked for"
