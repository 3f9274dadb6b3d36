"""Dead letters read once more after a fix: to the clean result, and never over what is newer."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from anabranch.background.replaying import Replaying
from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from schemas.events import BurialClosed, DocumentWithdrawn
from schemas.records import Record
from streams.codec import Codec
from streams.submission import submission
from tests.both_logs import on_both_logs, truncate
from tests.fakes.choosy import Choosy
from tests.journey.conftest import World, running
from tests.journey.replaying import embedder, ended, failed, get, idle, is_state, letters, none_left, overrides, post, summed, until

__all__ = ["embedder", "overrides"]


@pytest.fixture
def clean_settings(settings: Settings) -> Settings:
    """Of another system, on the same broker where there is one."""
    kafka = settings.kafka.model_copy(update={"topic_prefix": f"clean-{settings.kafka.topic_prefix}"})
    return settings.model_copy(update={"data_dir": settings.data_dir.with_name("clean"), "kafka": kafka})


@on_both_logs
async def test_after_a_mend_a_redrive_ends_in_the_tables_of_a_clean_run(
    settings: Settings, clean_settings: Settings, database: str, other_database: str, overrides: Overrides, embedder: Choosy
) -> None:
    async with running(settings, database, overrides) as world:
        await world.searchable("A note about otters.", external_id="otter")
        receipt = await failed(world, "A note about the heron.", "heron")
        causes = (await get(world, "/v1/dead-letters/causes"))["items"]
        assert [(cause["stage"], cause["code"], cause["events"]) for cause in causes] == [("embed", "CHOOSY", 1)]
        dry = await post(world, "/v1/dead-letters/redrive", {"code": "CHOOSY", "dry_run": True})
        assert dry == {"events": 1, "stages": {"embed": 1}, "left_out": 0, "replays": []}
        [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
        assert (await ended(world, replay))["buried"] == 1, "nothing has been mended yet"
        [letter] = await letters(world)
        assert letter["attempts"] == 2, "its redrive counts"
        embedder.refused.clear()
        [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
        assert (await ended(world, replay))["replayed"] == 1
        await until(lambda: is_state(world, receipt["document_id"], "searchable"))
        await until(lambda: none_left(world))
        assert len(await world.search("heron")) == 2
    async with running(clean_settings, other_database, overrides) as world:
        await world.searchable("A note about otters.", external_id="otter")
        await world.searchable("A note about the heron.", external_id="heron")
    assert await summed(database) == await summed(other_database)


@on_both_logs
async def test_a_redrive_does_not_bring_an_old_revision_back(world: World, embedder: Choosy) -> None:
    old = await failed(world, "The heron stands.", "bird")
    await world.searchable("The otter swims.", external_id="bird")
    embedder.refused.clear()
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
    assert (await ended(world, replay))["superseded"] == 1
    await until(lambda: none_left(world))
    [chunk] = (await get(world, f"/v1/documents/{old['document_id']}/chunks"))["items"]
    assert "otter" in chunk["text"]


@on_both_logs
async def test_a_discarded_letter_is_closed_with_its_reason_and_its_document_stays_failed(world: World) -> None:
    receipt = await failed(world, "The heron stands.", "bird")
    [letter] = await letters(world)
    assert (await post(world, "/v1/dead-letters/discard", {"event_ids": [letter["event_id"]], "reason": "not ours"}, 200))["events"] == 1
    await until(lambda: none_left(world))
    storage = world.worker.storage
    said = [fact.data async for stored in storage.log.read("dead_letters") if (fact := await storage.codec.decode(stored))]
    assert [(data.event_id, data.how, data.reason) for data in said if isinstance(data, BurialClosed)] == [(UUID(letter["event_id"]), "discarded", "not ours")]
    assert await is_state(world, receipt["document_id"], "failed"), "and not on its way for ever"
    assert (await world.http.post("/v1/dead-letters/redrive", json={"event_ids": [letter["event_id"]]})).status_code == 404


@on_both_logs
async def test_an_event_that_topic_raw_has_forgotten_is_redriven_from_what_was_kept_of_it(world: World) -> None:
    """Nobody has mended it: it is buried again, under the same id, with the same reason."""
    record = await submission(DocumentWithdrawn(tenant="default", document_id="no uuid"), "e-1", source="crm", time=Overrides().clock(), codec=Codec())
    await world.worker.storage.log.append([record])

    async def buried() -> bool:
        return bool(await letters(world))

    await until(buried)
    [letter] = await letters(world)
    await truncate(world.worker.storage, world.settings, "raw")
    assert [stored async for stored in world.worker.storage.log.read("raw")] == []
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
    assert (await ended(world, replay))["buried"] == 1

    async def again() -> bool:
        return bool((await letters(world))[0]["buried_at"] > letter["buried_at"])

    await until(again)
    [after] = await letters(world)
    assert (after["event_id"], after["code"], after["producer_event_id"]) == (letter["event_id"], letter["code"], "e-1")


async def test_two_redrives_of_the_same_letters_at_once_end_as_one(world: World, database: str, embedder: Choosy) -> None:
    receipts = [await failed(world, f"The heron stands on {number} legs.", str(number)) for number in range(5)]
    embedder.refused.clear()
    answers = await asyncio.gather(*(post(world, "/v1/dead-letters/redrive", {"all": True}) for _ in range(3)))
    states = [(await ended(world, replay))["state"] for answer in answers for replay in answer["replays"]]
    assert set(states) == {"done"}
    await until(lambda: none_left(world))
    for receipt in receipts:
        await until(lambda receipt=receipt: is_state(world, receipt["document_id"], "searchable"))  # type: ignore[misc]
    assert len(await world.search("heron", k=50)) == 5


async def test_an_id_that_was_used_twice_is_redriven_without_touching_what_the_first_one_did(world: World) -> None:
    first = {"external_id": "a", "content": {"text": "The first."}}
    for payload in (first, {**first, "content": {"text": "The second."}}):
        headers = {"ce_specversion": b"1.0", "ce_id": b"same", "ce_source": b"crm", "ce_type": b"document.received.v1"}
        await world.worker.storage.log.append([Record("raw", b"a", json.dumps(payload).encode(), headers)])

    async def buried() -> bool:
        return [letter["code"] for letter in await letters(world)] == ["DUPLICATE_ID"]

    await until(buried)
    await until(lambda: idle(world))
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
    assert (await ended(world, replay))["buried"] == 1
    claims = await world.worker.storage.pool.fetch("select reacted from handled where generation = '' and stage = 'receive'")
    assert [claim["reacted"] for claim in claims] == [True]


async def left_behind(world: World, document: str) -> UUID:
    """The letter of a generation that was dropped, and whose topic no other reads."""
    pool = world.worker.storage.pool
    await pool.execute("insert into generations (name, config, how, topics, state) values ('g0', '{}', '{}', '{\"chunked\": \"chunked.g0\"}', 'dropped')")
    letter: UUID = await pool.fetchval(
        "insert into dead_letters (event_id, stage, generation, tenant, document_id, log_topic, log_partition, log_offset, code, detail, remedy, attempts, "
        "buried_at) values (gen_random_uuid(), 'embed', 'g0', 'default', $1, 'chunked.g0', 0, 7, 'OLD', 'old', '', 1, clock_timestamp()) returning event_id",
        document,
    )
    return letter


async def test_of_a_document_all_is_redriven_that_some_generation_reads_and_nothing_of_another(world: World, embedder: Choosy) -> None:
    bird, other = [await failed(world, f"The heron stands {where}.", where) for where in ("here", "there")]
    await left_behind(world, bird["document_id"])
    embedder.refused.clear()
    answer = await post(world, "/v1/dead-letters/redrive", {"document_id": bird["document_id"]})
    assert (answer["events"], answer["left_out"], len(answer["replays"])) == (1, 1, 1)
    assert (await ended(world, answer["replays"][0]))["replayed"] == 1
    await until(lambda: is_state(world, bird["document_id"], "searchable"))
    assert await is_state(world, other["document_id"], "failed")
    refused = await post(world, "/v1/dead-letters/redrive", {"document_id": str(UUID(int=1))}, 404)
    assert (refused["code"], refused["detail"]) == ("NO_SUCH_DEAD_LETTER", f"no open dead letter of document {UUID(int=1)}")


async def test_letters_that_no_generation_reads_any_more_are_left_out_unless_they_are_asked_for(world: World, embedder: Choosy) -> None:
    receipt = await failed(world, "The heron stands.", "bird")
    old = await left_behind(world, receipt["document_id"])
    embedder.refused.clear()
    answer = await post(world, "/v1/dead-letters/redrive", {"all": True})
    assert (answer["events"], answer["left_out"], len(answer["replays"])) == (1, 1, 1)
    assert (await ended(world, answer["replays"][0]))["replayed"] == 1
    await until(lambda: is_state(world, receipt["document_id"], "searchable"))
    refused = await post(world, "/v1/dead-letters/redrive", {"event_ids": [str(old)]}, 422)
    assert refused["code"] == "GENERATION_GONE" and "chunked.g0" in refused["detail"]


async def test_a_letter_of_which_nothing_is_kept_holds_up_no_other(world: World, database: str) -> None:
    """It stays as it is; its neighbour is read again."""
    for number in range(2):
        record = await submission(
            DocumentWithdrawn(tenant="default", document_id="no uuid"), f"e-{number}", source="crm", time=Overrides().clock(), codec=Codec()
        )
        await world.worker.storage.log.append([record])

    async def buried() -> bool:
        return len(await letters(world)) == 2

    await until(buried)
    before = {letter["event_id"]: letter["buried_at"] for letter in await letters(world)}
    lost, kept = before
    await world.worker.storage.pool.execute("delete from events where topic = 'raw'")
    await world.worker.storage.blobs.delete([f"_buried/{lost}", f"_buried/{lost}.headers"])
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
    found = await ended(world, replay)
    assert (found["state"], found["buried"]) == ("done", 2)

    async def again() -> bool:
        now = {letter["event_id"]: letter["buried_at"] for letter in await letters(world)}
        return now[kept] > before[kept] and now[lost] == before[lost]

    await until(again)


async def test_a_bug_in_a_redrive_ends_the_redrive_and_not_the_worker(world: World, embedder: Choosy, monkeypatch: pytest.MonkeyPatch) -> None:
    await failed(world, "The heron stands.", "bird")
    embedder.refused.clear()

    async def broken(*given: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Replaying, "_read_again", broken)
        [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True}))["replays"]
        found = await ended(world, replay)
    assert (found["state"], found["error"]) == ("failed", "BUG: ZeroDivisionError: ")
    assert (await post(world, f"/v1/replays/{replay}/resume", {}, 200))["state"] == "running"
    assert (await ended(world, replay))["replayed"] == 1
