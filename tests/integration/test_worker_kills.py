"""Kill workers with SIGKILL while a generation is built, a redrive runs and a replay runs."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from uuid import UUID

from anabranch.config.loader import load_settings, override_settings
from schemas.replay_requests import RedriveRequest, ReplayRequest
from services.generations.reindex import start_rebuild
from sql.database import connect
from sql.operations.integrity import compute_checksum
from sql.operations.replays import PgReplays
from tests.support.eventually import eventually
from tests.support.log_backends import on_kafka
from tests.support.pipeline import run_pipeline
from tests.support.reindex_cases import OVERRIDES, SETTING_CHANGES, WORDS, make_overrides
from tests.support.worker_group import (
    WorkerGroup,
    kill_when_stalled,
    list_embedded_words,
    worker_group,
)

__all__ = ["worker_group"]

INITIAL_DOCUMENTS: dict[str, str | None] = {
    f"doc-{number}": f"{WORDS} {number}" for number in range(16)
}
TENANT = "default"
EMBEDDER_CHANGE = SETTING_CHANGES["embedder"][0]


@on_kafka
async def test_build_resumes_after_worker_kill_without_repeated_calls(
    worker_group: WorkerGroup, other_database: str, tmp_path: Path
) -> None:
    first = await worker_group.start_worker(of=24, texts=8)
    await worker_group.push_texts(INITIAL_DOCUMENTS)
    await worker_group.wait_until_idle()
    live = await compute_checksum(worker_group.pool)
    name, plan = await worker_group.reindex_service.start_reindex(EMBEDDER_CHANGE)
    before = await kill_when_stalled(first, lambda: count_memoized(worker_group, name))
    assert 0 < len(before) < len(INITIAL_DOCUMENTS) and await count_visible(
        worker_group, name
    ) < len(INITIAL_DOCUMENTS)
    second = await worker_group.start_worker()
    await worker_group.wait_for_state(name, "shadow")
    assert sorted([*before, *list_embedded_words(second)]) == sorted(
        text.split()[-1] for text in INITIAL_DOCUMENTS.values() if text
    )
    assert plan.to_dict()["engine_calls"] == {"embed": len(INITIAL_DOCUMENTS)}
    assert await compute_checksum(worker_group.pool) == live
    assert await worker_group.pool.fetchval("select count(*) from dead_letters") == 0
    assert await compute_checksum(
        worker_group.pool, generation=name
    ) == await compute_checksum_from_scratch(other_database, tmp_path)


async def count_memoized(worker_group: WorkerGroup, name: str) -> int:
    """Count the texts with a memoized result of this generation's embedder."""
    build = await worker_group.wait_for_state(name, "building")
    embedder = make_overrides(build.generation.config).embedder
    assert embedder is not None
    return int(
        await worker_group.pool.fetchval(
            "select count(*) from engine_results where engine = $1", embedder.fingerprint
        )
    )


async def count_visible(worker_group: WorkerGroup, generation: str) -> int:
    return int(
        await worker_group.pool.fetchval(
            "select count(*) from visible where generation = $1", generation
        )
    )


async def compute_checksum_from_scratch(dsn: str, folder: Path) -> dict[str, Any]:
    """Compute the checksum of an index built from scratch by one worker."""
    settings = override_settings(load_settings(data_dir=folder / "scratch"), EMBEDDER_CHANGE)
    async with run_pipeline(folder / "scratch", dsn, OVERRIDES, settings) as fresh:
        await fresh.push_and_wait(INITIAL_DOCUMENTS)
        return await compute_checksum(fresh.pool)


async def test_index_is_rebuilt_after_builder_is_killed(
    worker_group: WorkerGroup, database: str
) -> None:
    first = await worker_group.start_worker()
    await worker_group.push_texts(INITIAL_DOCUMENTS)
    await worker_group.wait_until_idle()
    before = await compute_checksum(worker_group.pool, include_history=True)
    reader = await connect(database, name="test")
    transaction = reader.transaction(isolation="repeatable_read")
    await transaction.start()
    await reader.fetch("select count(*) from child_chunks")
    name = await start_rebuild(worker_group.storage, worker_group.decisions, keep_previous=True)
    await eventually(lambda: count_index_builds(worker_group, name))
    first.stop(signal.SIGKILL)
    second = await worker_group.start_worker()
    await transaction.rollback()
    await reader.close()
    await worker_group.wait_for_state(name, "live")
    assert await compute_checksum(worker_group.pool, include_history=True) == before
    assert second.embedded_words == [], "a rebuild asks no engine"
    assert await fetch_index_definitions(worker_group, name) == await fetch_index_definitions(
        worker_group, "g1"
    )


async def count_index_builds(worker_group: WorkerGroup, name: str) -> int:
    """Count the generation's indexes under construction."""
    query = (
        "select count(*) from pg_stat_progress_create_index p join pg_class c on c.oid = p.relid "
        "where c.relname like '%\\_' || $1"
    )
    return int(await worker_group.pool.fetchval(query, name))


async def fetch_index_definitions(
    worker_group: WorkerGroup, generation: str
) -> list[tuple[str, bool]]:
    """Return definition and validity of each partition's index."""
    query = (
        "select pg_get_indexdef(i.indexrelid) as definition, i.indisvalid as valid "
        "from pg_index i join pg_class c on c.oid = i.indrelid "
        "where c.relname like '%\\_' || $1 and c.relkind = 'r'"
    )
    rows = await worker_group.pool.fetch(query, generation)
    return sorted((row["definition"].replace(f"_{generation}", ""), row["valid"]) for row in rows)


REFUSED, TOGETHER = "ibis", 8


@on_kafka
async def test_redrive_and_replay_survive_worker_kills(
    worker_group: WorkerGroup, other_database: str, tmp_path: Path
) -> None:
    """Kill the redrive's worker while an engine hangs, and the replay's at any point."""
    birds: dict[str, str | None] = {
        f"bird-{number}": f"The {REFUSED} wades {number}" for number in range(3 * TOGETHER)
    }
    mending = await worker_group.start_worker(refuse=REFUSED)
    await worker_group.push_texts({**INITIAL_DOCUMENTS, **birds})
    await worker_group.wait_until_idle()
    await eventually(lambda: has_dead_letters(worker_group, len(birds)))
    mending.stop()
    redrive, replay = await start_redrive_and_replay(worker_group)
    workers = [await worker_group.start_worker(of=8, texts=TOGETHER) for _ in range(2)]
    await eventually(lambda: is_replay_under_way(worker_group, redrive, TOGETHER))
    await eventually(lambda: is_replay_under_way(worker_group, replay, TOGETHER))
    for worker in workers:
        worker.stop(signal.SIGKILL)
    spent = [word for worker in workers for word in list_embedded_words(worker, 8)]
    assert len(spent) == TOGETHER
    final = await worker_group.start_worker()
    assert await wait_for_replay_end(
        worker_group, redrive, len(birds)
    ) and await wait_for_replay_end(worker_group, replay, len(INITIAL_DOCUMENTS) + len(birds))
    await eventually(lambda: has_dead_letters(worker_group, 0))
    await worker_group.wait_until_idle()
    assert sorted([*spent, *list_embedded_words(final, 8)]) == sorted(
        text.split()[-1] for text in birds.values() if text
    ), "each of them is embedded once, nothing else is"
    async with run_pipeline(tmp_path / "clean", other_database, OVERRIDES) as fresh:
        await fresh.push_and_wait({**INITIAL_DOCUMENTS, **birds})
        assert await compute_checksum(worker_group.pool) == await compute_checksum(fresh.pool)


async def start_redrive_and_replay(worker_group: WorkerGroup) -> tuple[UUID, UUID]:
    """Request a redrive and a replay that read TOGETHER events per second."""
    [redrive] = (
        await worker_group.replay_service.redrive(
            TENANT, RedriveRequest(code="REFUSED", per_second=TOGETHER)
        )
    )["replays"]
    replay = await worker_group.replay_service.start_replay(
        TENANT, ReplayRequest(stage="chunk", per_second=TOGETHER)
    )
    return redrive, replay["replay_id"]


async def is_replay_under_way(worker_group: WorkerGroup, replay: UUID, least: int) -> bool:
    found = await worker_group.replay_service.get_replay(TENANT, replay)
    assert found["state"] == "running" and found["remaining"] > 0, found
    return bool(found["read"] >= least)


async def has_dead_letters(worker_group: WorkerGroup, count: int) -> bool:
    return len(await PgReplays(worker_group.pool).list_open_dead_letters(TENANT, {})) == count


async def wait_for_replay_end(worker_group: WorkerGroup, replay: UUID, count: int) -> bool:
    async def over() -> dict[str, Any] | None:
        found = await worker_group.replay_service.get_replay(TENANT, replay)
        return found if found["state"] != "running" else None

    found = await eventually(over)
    return [
        found[name]
        for name in ("state", "read", "replayed", "superseded", "dead_lettered", "remaining")
    ] == ["done", count, count, 0, 0, 0]
