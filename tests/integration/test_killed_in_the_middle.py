"""`kill -9` of the only worker, or of all of them, while a generation is built, while buried events are read again, and while a stage reacts again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from uuid import UUID

from anabranch.desk.rebuilding import start_rebuild
from anabranch.settings_loading import amended, load_settings
from api.replays import RedriveRequest, ReplayRequest
from sql.checksum import checksum
from sql.pool import connect
from sql.replays import PgReplays
from tests.both_logs import on_kafka
from tests.integration.mortals import House, house, killed_when_silent, spoken, until
from tests.integration.test_reindex import CHANGES, OVERRIDES, WORDS, engines_of
from tests.pipeline import pipeline

__all__ = ["house"]

MANY: dict[str, str | None] = {f"doc-{number}": f"{WORDS} {number}" for number in range(40)}
TENANT = "default"
EMBEDDER = CHANGES["embedder"][0]


@on_kafka
async def test_a_build_whose_worker_is_killed_is_gone_on_with_where_it_was_and_asks_nothing_twice(house: House, other_database: str, tmp_path: Path) -> None:
    first = await house.start(of=24, texts=20)
    await house.push(MANY)
    await house.quiet()
    live = await checksum(house.pool)
    name, plan = await house.reindexing.start(EMBEDDER)
    before = await killed_when_silent(first, lambda: remembered(house, name))
    assert 0 < len(before) < len(MANY) and await visible(house, name) < len(MANY)
    second = await house.start()
    await house.reaches(name, "shadow")
    assert sorted([*before, *spoken(second)]) == sorted(text.split()[-1] for text in MANY.values() if text)
    assert plan.body()["engine_calls"] == {"embed": len(MANY)}
    assert await checksum(house.pool) == live
    assert await house.pool.fetchval("select count(*) from dead_letters") == 0
    assert await checksum(house.pool, generation=name) == await from_scratch(other_database, tmp_path)


async def remembered(house: House, name: str) -> int:
    """Texts that the embedder of this generation need not be asked again."""
    build = await house.reaches(name, "building")
    embedder = engines_of(build.generation.config).embedder
    assert embedder is not None
    return int(await house.pool.fetchval("select count(*) from memo where engine = $1", embedder.fingerprint))


async def visible(house: House, generation: str) -> int:
    return int(await house.pool.fetchval("select count(*) from visible where generation = $1", generation))


async def from_scratch(dsn: str, folder: Path) -> dict[str, Any]:
    """The tables of an index that was made so from the start, by a worker that nobody killed."""
    settings = amended(load_settings(data_dir=folder / "scratch"), EMBEDDER)
    async with pipeline(folder / "scratch", dsn, OVERRIDES, settings) as fresh:
        await fresh.fill(MANY)
        return await checksum(fresh.pool)


async def test_an_index_whose_builder_is_killed_half_way_is_built_again(house: House, database: str) -> None:
    first = await house.start()
    await house.push(MANY)
    await house.quiet()
    before = await checksum(house.pool, everything=True)
    reader = await connect(database, name="test")
    transaction = reader.transaction(isolation="repeatable_read")
    await transaction.start()
    await reader.fetch("select count(*) from child_chunks")
    name = await start_rebuild(house.storage, house.decisions, keep=True)
    await until(lambda: indexing(house, name))
    first.end(signal.SIGKILL)
    second = await house.start()
    await transaction.rollback()
    await reader.close()
    await house.reaches(name, "live")
    assert await checksum(house.pool, everything=True) == before
    assert second.embedded == [], "a rebuild asks no engine"
    assert await indexes(house, name) == await indexes(house, "g1")


async def indexing(house: House, name: str) -> int:
    """How many of its indexes are on their way, and wait."""
    query = "select count(*) from pg_stat_progress_create_index p join pg_class c on c.oid = p.relid where c.relname like '%\\_' || $1"
    return int(await house.pool.fetchval(query, name))


async def indexes(house: House, generation: str) -> list[tuple[str, bool]]:
    """Of its partitions: what each is, and whether it is complete."""
    query = (
        "select pg_get_indexdef(i.indexrelid) as definition, i.indisvalid as valid from pg_index i join pg_class c on c.oid = i.indrelid "
        "where c.relname like '%\\_' || $1 and c.relkind = 'r'"
    )
    rows = await house.pool.fetch(query, generation)
    return sorted((row["definition"].replace(f"_{generation}", ""), row["valid"]) for row in rows)


REFUSED, TOGETHER = "ibis", 8


@on_kafka
async def test_a_redrive_and_a_replay_whose_workers_are_killed_end_as_if_nobody_had_been(house: House, other_database: str, tmp_path: Path) -> None:
    """The redrive's worker is killed while an engine does not answer, the replay's wherever it is."""
    birds: dict[str, str | None] = {f"bird-{number}": f"The {REFUSED} wades {number}" for number in range(3 * TOGETHER)}
    mending = await house.start(refuse=REFUSED)
    await house.push({**MANY, **birds})
    await house.quiet()
    await until(lambda: buried(house, len(birds)))
    mending.end()
    redrive, replay = await begun(house)
    workers = [await house.start(of=8, texts=TOGETHER) for _ in range(2)]
    await until(lambda: in_the_middle(house, redrive, TOGETHER))
    await until(lambda: in_the_middle(house, replay, TOGETHER))
    for worker in workers:
        worker.end(signal.SIGKILL)
    spent = [word for worker in workers for word in spoken(worker, 8)]
    assert len(spent) == TOGETHER
    final = await house.start()
    assert await ended(house, redrive, len(birds)) and await ended(house, replay, len(MANY) + len(birds))
    await until(lambda: buried(house, 0))
    await house.quiet()
    assert sorted([*spent, *spoken(final, 8)]) == sorted(text.split()[-1] for text in birds.values() if text), "each of them is embedded once, nothing else is"
    async with pipeline(tmp_path / "clean", other_database, OVERRIDES) as fresh:
        await fresh.fill({**MANY, **birds})
        assert await checksum(house.pool) == await checksum(fresh.pool)


async def begun(house: House) -> tuple[UUID, UUID]:
    """In batches of TOGETHER, before any worker is there to take them up."""
    [redrive] = (await house.desk.redrive(TENANT, RedriveRequest(code="REFUSED", per_second=TOGETHER)))["replays"]
    replay = await house.desk.replay(TENANT, ReplayRequest(stage="chunk", per_second=TOGETHER))
    return redrive, replay["replay_id"]


async def in_the_middle(house: House, replay: UUID, least: int) -> bool:
    found = await house.desk.one(TENANT, replay)
    assert found["state"] == "running" and found["left"] > 0, found
    return bool(found["read"] >= least)


async def buried(house: House, count: int) -> bool:
    return len(await PgReplays(house.pool).letters(TENANT, {})) == count


async def ended(house: House, replay: UUID, count: int) -> bool:
    async def over() -> dict[str, Any] | None:
        found = await house.desk.one(TENANT, replay)
        return found if found["state"] != "running" else None

    found = await until(over)
    return [found[name] for name in ("state", "read", "replayed", "superseded", "buried", "left")] == ["done", count, count, 0, 0, 0]
