"""Redrives reach the clean result and never overwrite newer data."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from schemas.events import DeadLetterClosed, DocumentWithdrawn
from schemas.topics import Record
from services.replay.replay_worker import ReplayWorker
from streams.codec import Codec
from streams.publisher import build_raw_record
from tests.fakes.ocr import RejectingEmbedder
from tests.support.api_world import ApiWorld, run_system
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka, long_on_postgres, truncate_topic
from tests.support.replay_helpers import (
    compute_database_checksum,
    embedder,
    fetch_dead_letters,
    get,
    has_no_dead_letters,
    has_state,
    ingest_until_failed,
    is_idle,
    overrides,
    post,
    wait_for_replay,
)

__all__ = ["embedder", "overrides"]


@pytest.fixture
def clean_settings(settings: Settings) -> Settings:
    """Return settings of another system on the same broker, where there is one."""
    kafka = settings.kafka.model_copy(
        update={"topic_prefix": f"clean-{settings.kafka.topic_prefix}"}
    )
    return settings.model_copy(
        update={"data_dir": settings.data_dir.with_name("clean"), "kafka": kafka}
    )


@long_on_postgres
async def test_redrive_after_fix_equals_clean_run(
    settings: Settings,
    clean_settings: Settings,
    database: str,
    other_database: str,
    overrides: Overrides,
    embedder: RejectingEmbedder,
) -> None:
    async with run_system(settings, database, overrides) as world:
        await world.ingest_until_searchable("A note about otters.", external_id="otter")
        receipt = await ingest_until_failed(world, "A note about the heron.", "heron")
        causes = (await get(world, "/v1/dead-letters/causes"))["items"]
        assert [(cause["stage"], cause["code"], cause["events"]) for cause in causes] == [
            ("embed", "CHOOSY", 1)
        ]
        dry = await post(world, "/v1/dead-letters/redrive", {"code": "CHOOSY", "dry_run": True})
        assert dry == {"events": 1, "stages": {"embed": 1}, "skipped": 0, "replays": []}
        [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
        assert (await wait_for_replay(world, replay))["dead_lettered"] == 1, (
            "nothing has been mended yet"
        )
        # The replay ends before the worker has read the second dead letter from the log.
        await eventually(
            lambda: fetch_dead_letters(world),
            lambda letters: [letter["attempts"] for letter in letters] == [2],
            what="the attempt of the redrive",
        )
        embedder.rejected_words.clear()
        [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
        assert (await wait_for_replay(world, replay))["replayed"] == 1
        await eventually(lambda: has_state(world, receipt["document_id"], "searchable"))
        await eventually(lambda: has_no_dead_letters(world))
        assert len(await world.search("heron")) == 2
    async with run_system(clean_settings, other_database, overrides) as world:
        await world.ingest_until_searchable("A note about otters.", external_id="otter")
        await world.ingest_until_searchable("A note about the heron.", external_id="heron")
    assert await compute_database_checksum(database) == await compute_database_checksum(
        other_database
    )


@long_on_kafka
async def test_redrive_does_not_restore_old_revision(
    world: ApiWorld, embedder: RejectingEmbedder
) -> None:
    old = await ingest_until_failed(world, "The heron stands.", "bird")
    await world.ingest_until_searchable("The otter swims.", external_id="bird")
    embedder.rejected_words.clear()
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
    assert (await wait_for_replay(world, replay))["superseded"] == 1
    await eventually(lambda: has_no_dead_letters(world))
    [chunk] = (await get(world, f"/v1/documents/{old['document_id']}/chunks"))["items"]
    assert "otter" in chunk["text"]


@long_on_kafka
async def test_discarded_dead_letter_is_closed_with_reason(world: ApiWorld) -> None:
    receipt = await ingest_until_failed(world, "The heron stands.", "bird")
    [letter] = await fetch_dead_letters(world)
    assert (
        await post(
            world,
            "/v1/dead-letters/discard",
            {"event_ids": [letter["event_id"]], "reason": "not ours"},
            200,
        )
    )["events"] == 1
    await eventually(lambda: has_no_dead_letters(world))
    storage = world.worker.storage
    events = [
        fact.data
        async for stored in storage.log.read("dead_letters")
        if (fact := await storage.codec.decode(stored))
    ]
    assert [
        (data.event_id, data.resolution, data.reason)
        for data in events
        if isinstance(data, DeadLetterClosed)
    ] == [(UUID(letter["event_id"]), "discarded", "not ours")]
    assert await has_state(world, receipt["document_id"], "failed"), "and not on its way for ever"
    assert (
        await world.http.post("/v1/dead-letters/redrive", json={"event_ids": [letter["event_id"]]})
    ).status_code == 404


async def append_invalid_withdrawal(world: ApiWorld, event_id: str) -> None:
    record = await build_raw_record(
        DocumentWithdrawn(tenant="default", document_id="no uuid"),
        event_id,
        source="crm",
        time=Overrides().clock(),
        codec=Codec(),
    )
    await world.worker.storage.log.append([record])


@long_on_postgres
async def test_dead_letter_of_expired_raw_record_is_redriven(world: ApiWorld) -> None:
    """Without a fix it is dead-lettered again with the same id and reason."""
    await append_invalid_withdrawal(world, "e-1")

    async def is_dead_lettered() -> bool:
        return bool(await fetch_dead_letters(world))

    await eventually(is_dead_lettered)
    [letter] = await fetch_dead_letters(world)
    await truncate_topic(world.worker.storage, world.settings, "raw")
    assert [stored async for stored in world.worker.storage.log.read("raw")] == []
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
    assert (await wait_for_replay(world, replay))["dead_lettered"] == 1

    async def again() -> bool:
        return bool(
            (await fetch_dead_letters(world))[0]["dead_lettered_at"] > letter["dead_lettered_at"]
        )

    await eventually(again)
    [after] = await fetch_dead_letters(world)
    assert (after["event_id"], after["code"], after["producer_event_id"]) == (
        letter["event_id"],
        letter["code"],
        "e-1",
    )


async def test_concurrent_redrives_process_each_dead_letter_once(
    world: ApiWorld, database: str, embedder: RejectingEmbedder
) -> None:
    receipts = [
        await ingest_until_failed(world, f"The heron stands on {number} legs.", str(number))
        for number in range(5)
    ]
    embedder.rejected_words.clear()
    answers = await asyncio.gather(
        *(post(world, "/v1/dead-letters/redrive", {"all": True}) for _ in range(3))
    )
    states = [
        (await wait_for_replay(world, replay))["state"]
        for answer in answers
        for replay in answer["replays"]
    ]
    assert set(states) == {"done"}
    await eventually(lambda: has_no_dead_letters(world))
    for receipt in receipts:
        await eventually(
            lambda receipt=receipt: has_state(world, receipt["document_id"], "searchable")
        )  # type: ignore[misc]
    assert len(await world.search("heron", k=50)) == 5


async def test_redrive_of_duplicate_id_keeps_first_inbox_entry(world: ApiWorld) -> None:
    first = {"external_id": "a", "content": {"text": "The first."}}
    for payload in (first, {**first, "content": {"text": "The second."}}):
        headers = {
            "ce_specversion": b"1.0",
            "ce_id": b"same",
            "ce_source": b"crm",
            "ce_type": b"document.received.v1",
        }
        await world.worker.storage.log.append(
            [Record("raw", b"a", json.dumps(payload).encode(), headers)]
        )

    async def is_dead_lettered() -> bool:
        return [letter["code"] for letter in await fetch_dead_letters(world)] == ["DUPLICATE_ID"]

    await eventually(is_dead_lettered)
    await eventually(lambda: is_idle(world))
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
    assert (await wait_for_replay(world, replay))["dead_lettered"] == 1
    claims = await world.worker.storage.pool.fetch(
        "select is_reaction_done from inbox where generation = '' and stage = 'receive'"
    )
    assert [claim["is_reaction_done"] for claim in claims] == [True]


async def insert_dropped_generation_letter(world: ApiWorld, document: str) -> UUID:
    """Insert a dead letter of a dropped generation whose topic has no consumer."""
    pool = world.worker.storage.pool
    await pool.execute(
        "insert into generations (name, config, how, topics, state) "
        "values ('g0', '{}', '{}', '{\"chunked\": \"chunked.g0\"}', 'dropped')"
    )
    letter: UUID = await pool.fetchval(
        "insert into dead_letters (event_id, stage, generation, tenant, document_id, log_topic, "
        "log_partition, log_offset, code, detail, remedy, attempts, "
        "dead_lettered_at) values (gen_random_uuid(), 'embed', 'g0', 'default', $1, 'chunked.g0', "
        "0, 7, 'OLD', 'old', '', 1, clock_timestamp()) returning event_id",
        document,
    )
    return letter


async def test_redrive_by_document_selects_readable_dead_letters(
    world: ApiWorld, embedder: RejectingEmbedder
) -> None:
    bird, other = [
        await ingest_until_failed(world, f"The heron stands {where}.", where)
        for where in ("here", "there")
    ]
    old = await insert_dropped_generation_letter(world, bird["document_id"])
    embedder.rejected_words.clear()
    answer = await post(world, "/v1/dead-letters/redrive", {"document_id": bird["document_id"]})
    assert (answer["events"], answer["skipped"], len(answer["replays"])) == (1, 1, 1)
    assert (await wait_for_replay(world, answer["replays"][0]))["replayed"] == 1
    await eventually(lambda: has_state(world, bird["document_id"], "searchable"))
    assert await has_state(world, other["document_id"], "failed")
    refused = await post(world, "/v1/dead-letters/redrive", {"document_id": str(UUID(int=1))}, 404)
    assert (refused["code"], refused["detail"]) == (
        "NO_SUCH_DEAD_LETTER",
        f"No open dead letter of document {UUID(int=1)}.",
    )
    refused = await post(world, "/v1/dead-letters/redrive", {"event_ids": [str(old)]}, 422)
    assert refused["code"] == "GENERATION_GONE" and "chunked.g0" in refused["detail"]
    # Of all dead letters too, those of dropped generations are skipped.
    answer = await post(world, "/v1/dead-letters/redrive", {"all": True})
    assert (answer["events"], answer["skipped"], len(answer["replays"])) == (1, 1, 1)
    assert (await wait_for_replay(world, answer["replays"][0]))["replayed"] == 1
    await eventually(lambda: has_state(world, other["document_id"], "searchable"))


async def test_unrecoverable_dead_letter_does_not_block_others(
    world: ApiWorld, database: str
) -> None:
    """The unreadable letter stays unchanged, and the other is redriven."""
    for number in range(2):
        await append_invalid_withdrawal(world, f"e-{number}")

    async def is_dead_lettered() -> bool:
        return len(await fetch_dead_letters(world)) == 2

    await eventually(is_dead_lettered)
    before = {
        letter["event_id"]: letter["dead_lettered_at"] for letter in await fetch_dead_letters(world)
    }
    unreadable, readable = before
    await world.worker.storage.pool.execute("delete from events where topic = 'raw'")
    await world.worker.storage.blobs.delete(
        [f"_dead_letters/{unreadable}", f"_dead_letters/{unreadable}.headers"]
    )
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
    found = await wait_for_replay(world, replay)
    assert (found["state"], found["dead_lettered"]) == ("done", 2)

    async def again() -> bool:
        now = {
            letter["event_id"]: letter["dead_lettered_at"]
            for letter in await fetch_dead_letters(world)
        }
        return now[readable] > before[readable] and now[unreadable] == before[unreadable]

    await eventually(again)


async def test_bug_in_redrive_fails_redrive_not_worker(
    world: ApiWorld, embedder: RejectingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ingest_until_failed(world, "The heron stands.", "bird")
    embedder.rejected_words.clear()

    async def broken(*given: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(ReplayWorker, "_fetch_dead_letter_record", broken)
        [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
        found = await wait_for_replay(world, replay)
    assert (found["state"], found["error"]) == ("failed", "BUG: ZeroDivisionError: ")
    assert (await post(world, f"/v1/replays/{replay}/resume", {}, 200))["state"] == "running"
    assert (await wait_for_replay(world, replay))["replayed"] == 1
