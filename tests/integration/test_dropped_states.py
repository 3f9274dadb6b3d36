"""Token states of a generation that is dropped leave the blob store, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest

from anabranch.background import state_sweeping
from anabranch.background.maintenance import Maintenance
from anabranch.background.state_sweeping import sweep_states
from anabranch.composition.overrides import Overrides
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.desk.rebuilding import Reindexing
from anabranch.settings import Settings
from engines.blobs import Blobs
from engines.embed.null import NullEmbedder
from schemas.errors import EngineUnavailable
from sql.dropped_states import dropped_states
from sql.index_changes import PrunedChanges
from sql.pool import Pool
from tests.integration.test_generations_in_turn import drop, promote
from tests.pipeline import Pipeline, pipeline
from tests.property.world import LineParser

OVERRIDES = Overrides(parser=LineParser(), embedder=NullEmbedder(dimension=8, state_dimension=16))
LONG = " ".join(f"Sentence {number} tells of herons and storks in the reeds of the river." for number in range(60))
TEXTS = {**{f"long-{number}": f"{LONG} {number}." for number in range(4)}, "short": "One heron."}
CUT_OTHERWISE = ["chunk.strategy=fixed_size", "chunk.child_tokens=32"]


async def referred(at_work: Pipeline, generation: str) -> set[str]:
    rows = await at_work.pool.fetch("select distinct blob_key from chunk_states where generation = $1", generation)
    return {row["blob_key"] for row in rows}


async def stored(at_work: Pipeline) -> set[str]:
    return set(await at_work.worker.storage.blobs.listed("default/"))


async def second(at_work: Pipeline) -> str:
    """Another generation that answers: the document of one passage has the same states in both."""
    desk = Reindexing(at_work.worker.hosting.settings, at_work.worker.storage, at_work.worker.builder.decisions, OVERRIDES)
    name, _ = await desk.start(CUT_OTHERWISE)
    await at_work.reaches(name, "shadow")
    await promote(at_work, name)
    await at_work.quiet()
    return name


async def test_what_only_the_dropped_generation_referred_to_goes_and_everything_else_stays(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        name = await second(at_work)
        old, new, before = await referred(at_work, "g1"), await referred(at_work, name), await stored(at_work)
        assert old - new and new - old and old & new and before >= old | new
        await drop(at_work, "g1")
        assert await stored(at_work) == before, "a drop does not wait for it"
        await at_work.quiet()
        assert await sweep_states(at_work.worker.storage) == len(old - new)
        assert await stored(at_work) == before - (old - new)
        assert await sweep_states(at_work.worker.storage) == 0


async def test_a_sweep_that_was_cut_off_goes_on(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = Blobs.delete

    async def break_down(blobs: Blobs, keys: Sequence[str]) -> None:
        await delete(blobs, keys[: len(keys) // 2])
        raise EngineUnavailable("the store is away")

    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        name = await second(at_work)
        old, new, before = await referred(at_work, "g1"), await referred(at_work, name), await stored(at_work)
        await drop(at_work, "g1")
        await at_work.quiet()
        with monkeypatch.context() as away:
            away.setattr(Blobs, "delete", break_down)
            with pytest.raises(EngineUnavailable):
                await sweep_states(at_work.worker.storage)
        await sweep_states(at_work.worker.storage)
        assert await at_work.pool.fetchval("select count(*) from dropped_states") == 0
        assert await stored(at_work) == before - (old - new)


async def test_states_of_facts_that_another_generation_shares_stay(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        desk = Reindexing(at_work.worker.hosting.settings, at_work.worker.storage, at_work.worker.builder.decisions, OVERRIDES)
        name = await desk.rebuild(keep=True)
        await at_work.reaches(name, "live")
        before = await stored(at_work)
        await drop(at_work, "g1")
        await at_work.quiet()
        assert await sweep_states(at_work.worker.storage) == 0 and await stored(at_work) == before


async def test_what_was_still_on_its_way_when_the_sweep_began_keeps_its_states(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        name = await second(at_work)
        only_old = await referred(at_work, "g1") - await referred(at_work, name)
        await drop(at_work, "g1")
        await at_work.quiet()

        async def arrives(storage: Storage, group: str, topic: str, below: Mapping[int, int] | None = None) -> int:
            query = "update chunk_states s set blob_key = d.blob_key from dropped_states d where s.generation = $1 and s.document_id = d.document_id and d.blob_key = any($2)"
            await at_work.pool.execute(query, name, list(only_old))
            return 0

        monkeypatch.setattr(Storage, "waiting", arrives)
        assert await sweep_states(at_work.worker.storage) == 0
        assert await stored(at_work) >= only_old


async def test_nothing_goes_while_somebody_is_at_a_replay(database: str, tmp_path: Path) -> None:
    """It may state again what refers to one."""
    async with prepare_storage(Settings(data_dir=tmp_path), database, pool_size=3, name="test") as storage:
        await storage.pool.execute("insert into dropped_states values ('default/a/b', gen_random_uuid())")
        await storage.pool.execute(
            "insert into replays (id, tenant, kind, stage, chosen, starts, ends, total, lease_owner, lease_until) "
            "values (gen_random_uuid(), 'default', 'replay', 'embed', '{}', '{}', '{}', 1, gen_random_uuid(), clock_timestamp() + interval '1 day')"
        )
        assert await sweep_states(storage) == 0
        await storage.pool.execute("update replays set lease_until = clock_timestamp() - interval '1 day'")
        assert await sweep_states(storage) == 1


async def test_what_comes_to_be_referred_to_while_others_go_stays(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with prepare_storage(Settings(data_dir=tmp_path), database, pool_size=3, name="test") as storage:
        await storage.pool.execute("insert into dropped_states select 'default/a/' || n, gen_random_uuid() from generate_series(1, 100) n")
        gone: list[str] = []

        async def deleted(blobs: Blobs, some: Sequence[str]) -> None:
            """And of all that are left, each is used from here on."""
            gone.extend(some)

            async def used(pool: Pool, limit: int) -> dict[str, bool]:
                return dict.fromkeys(await dropped_states(pool, limit), True)

            monkeypatch.setattr(state_sweeping, "dropped_states", used)

        monkeypatch.setattr(Blobs, "delete", deleted)
        await sweep_states(storage)
        assert 0 < len(gone) <= 20
        assert await storage.pool.fetchval("select count(*) from dropped_states") == 0


async def test_a_blob_store_that_is_away_keeps_no_other_upkeep_waiting(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(blobs: Blobs, keys: Sequence[str]) -> None:
        raise EngineUnavailable("the store is away")

    monkeypatch.setattr(Blobs, "delete", away)
    ticks = count()
    async with prepare_storage(Settings(data_dir=tmp_path), database, pool_size=3, name="test") as storage:
        await storage.pool.execute("insert into dropped_states values ('default/a/b', gen_random_uuid())")
        upkeep = Maintenance(storage, storage.pool, PrunedChanges(storage.pool, lambda: float(next(ticks))))
        with pytest.raises(EngineUnavailable):
            await upkeep.once(expire=False)
    assert next(ticks) > 0, "old changes of indexes were looked for"
