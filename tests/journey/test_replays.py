"""Dead letters read once more after a fix, and stages that react again: to the clean result, and never over what is newer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from anabranch.background.lag import stage_lags
from anabranch.background.replaying import Replaying
from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from engines.embed.null import NullEmbedder
from schemas.errors import PermanentError
from schemas.events import DocumentWithdrawn
from schemas.ports.engines import Embedded
from schemas.records import Record
from sql.checksum import checksum
from sql.pool import close_pool, open_pool
from sql.replays import PgReplays
from streams.codec import Codec
from streams.submission import submission
from tests.both_logs import expire, on_both_logs, truncate
from tests.journey.conftest import PATIENCE_S, World, running


class Choosy(NullEmbedder):
    """Refuses texts that hold one of the words, until it is mended."""

    def __init__(self) -> None:
        super().__init__(64, 16)
        self.refused: set[str] = {"heron"}
        self.calls = 0

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        self.calls += 1
        if any(word in text for word in self.refused for text in texts):
            raise PermanentError("this text is not to its liking", code="CHOOSY")
        return await super().embed(texts)


@pytest.fixture
def embedder() -> Choosy:
    return Choosy()


@pytest.fixture
def overrides(embedder: Choosy) -> Overrides:
    return Overrides(embedder=embedder)


async def post(world: World, path: str, body: dict[str, Any], status: int = 202) -> dict[str, Any]:
    response = await world.http.post(path, json=body)
    assert response.status_code == status, response.text
    return dict(response.json())


async def get(world: World, path: str) -> dict[str, Any]:
    response = await world.http.get(path)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await true():
            await asyncio.sleep(0.05)


async def ended(world: World, replay: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_done() -> bool:
        found.update(await get(world, f"/v1/replays/{replay}"))
        return found["state"] in ("done", "failed", "cancelled")

    await until(is_done)
    return found


async def letters(world: World) -> list[dict[str, Any]]:
    return list((await get(world, "/v1/dead-letters"))["items"])


async def failed(world: World, text: str, name: str) -> dict[str, Any]:
    receipt = await world.ingest(text, external_id=name)
    assert (await world.ended(receipt))["state"] == "failed"

    async def listed() -> bool:
        return any(letter["document_id"] == receipt["document_id"] for letter in await letters(world))

    await until(listed)
    return receipt


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
        assert len(await letters(world)) == 1
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


async def is_state(world: World, document: str, state: str) -> bool:
    return bool((await get(world, f"/v1/documents/{document}"))["state"] == state)


async def none_left(world: World) -> bool:
    return not await letters(world)


async def summed(dsn: str) -> dict[str, Any]:
    pool = await open_pool(dsn, size=1, name="test")
    try:
        return await checksum(pool)
    finally:
        await close_pool(pool)


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
async def test_a_discarded_letter_is_closed_with_its_reason_and_its_document_stays_failed_no_more(world: World) -> None:
    await failed(world, "The heron stands.", "bird")
    [letter] = await letters(world)
    assert (await post(world, "/v1/dead-letters/discard", {"event_ids": [letter["event_id"]], "reason": "not ours"}, 200))["events"] == 1
    await until(lambda: none_left(world))
    assert (await world.http.post("/v1/dead-letters/redrive", json={"event_ids": [letter["event_id"]]})).status_code == 404


@on_both_logs
async def test_a_stage_that_reacts_again_changes_nothing_and_asks_no_engine(world: World, database: str, embedder: Choosy) -> None:
    for number in range(5):
        await world.searchable(f"Note {number} about otters.", external_id=str(number))
    before, calls = await summed(database), embedder.calls
    dry = await post(world, "/v1/replays", {"stage": "embed", "dry_run": True})
    assert dry["replay_id"] is None and dry["topic"] == "chunked"
    replay = (await post(world, "/v1/replays", {"stage": "embed"}))["replay_id"]
    found = await ended(world, replay)
    assert (found["state"], found["replayed"], found["buried"], found["left"]) == ("done", 5, 0, 0)
    assert embedder.calls == calls, "the memo answers"
    assert await summed(database) == before


async def test_a_replay_takes_only_what_is_chosen(world: World) -> None:
    receipts = [await world.searchable(f"Note {number}.", external_id=str(number), collection="odd" if number % 2 else "even") for number in range(4)]
    one = (await post(world, "/v1/replays", {"stage": "chunk", "document_ids": [receipts[2]["document_id"]]}))["replay_id"]
    assert (await ended(world, one))["replayed"] == 1
    odd = (await post(world, "/v1/replays", {"stage": "chunk", "collection": "odd"}))["replay_id"]
    assert (await ended(world, odd))["replayed"] == 2
    none = (await post(world, "/v1/replays", {"stage": "chunk", "until": "2001-01-01T00:00:00Z"}))["replay_id"]
    assert (await ended(world, none))["replayed"] == 0


@on_both_logs
async def test_a_replay_is_paused_goes_on_and_is_cancelled(world: World) -> None:
    for number in range(4):
        await world.searchable(f"Note {number}.", external_id=str(number))
    replay = (await post(world, "/v1/replays", {"stage": "chunk", "per_second": 1}))["replay_id"]
    assert (await post(world, f"/v1/replays/{replay}/pause", {}, 200))["state"] == "paused"
    assert (await post(world, f"/v1/replays/{replay}/pause", {}, 422))["code"] == "WRONG_STATE"
    assert (await post(world, f"/v1/replays/{replay}/resume", {}, 200))["state"] == "running"
    assert (await ended(world, replay))["state"] == "done"
    another = (await post(world, "/v1/replays", {"stage": "chunk", "per_second": 1}))["replay_id"]
    await post(world, f"/v1/replays/{another}/cancel", {}, 200)
    assert (await get(world, f"/v1/replays/{another}"))["state"] == "cancelled"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/replays", {"stage": "nothing"}, 422),
        ("/v1/replays", {"stage": "receive", "collection": "a"}, 422),
        ("/v1/replays", {"stage": "chunk", "offsets": [{"partition": 99}]}, 422),
        ("/v1/replays", {"stage": "chunk", "generation": "g77"}, 404),
        ("/v1/replays", {"stage": "chunk", "since": "yesterday"}, 422),
        ("/v1/dead-letters/redrive", {}, 422),
        ("/v1/dead-letters/redrive", {"all": True}, 404),
        ("/v1/dead-letters/discard", {"all": True}, 422),
    ],
)
async def test_what_cannot_be_replayed_is_refused_with_the_reason(world: World, path: str, body: dict[str, Any], status: int) -> None:
    response = await world.http.post(path, json=body)
    assert response.status_code == status, response.text
    assert response.json()["detail"]


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


async def replayed(world: World, **chosen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a dry run says, and what then happens."""
    dry = await post(world, "/v1/replays", {**chosen, "dry_run": True})
    return dry, await ended(world, (await post(world, "/v1/replays", chosen))["replay_id"])


@on_both_logs
async def test_a_dry_run_counts_what_then_happens_by_every_selector(world: World) -> None:
    receipts = [await world.searchable(f"Note {number}.", external_id=str(number), collection="odd" if number % 2 else "even") for number in range(6)]
    places = sorted([item async for item in world.worker.storage.log.read("ocr_done")], key=lambda item: item.appended_at)
    some = {place.record.headers["ce_document"].decode() for place in places[2:4]}
    middle = {"since": places[2].appended_at.isoformat(), "until": places[4].appended_at.isoformat()}
    partition, start = places[1].position.partition, places[1].position.offset
    behind = [number for number, place in enumerate(places) if place.position.partition == partition and place.position.offset >= start][:2]
    offsets = [{"partition": partition, "start": start, "end": places[behind[-1]].position.offset + 1}]
    choices: list[tuple[dict[str, Any], int]] = [
        ({}, 6),
        (middle, 2),
        ({"offsets": offsets}, len(behind)),
        ({"document_ids": [receipts[2]["document_id"], receipts[5]["document_id"]]}, 2),
        ({"collection": "odd"}, 3),
        ({"collection": "odd", "document_ids": sorted(some)}, 1),
        ({"collection": "even", "offsets": offsets, **middle}, len({2} & {*behind})),
        ({"collection": "nowhere"}, 0),
    ]
    for chosen, count in choices:
        dry, done = await replayed(world, stage="chunk", **chosen)
        assert (dry["events_chosen"], done["replayed"]) == (count, count), chosen
        assert (dry["events_read"], 0) == (done["read"], done["left"]) and done["state"] == "done", chosen


@on_both_logs
async def test_what_retention_has_dropped_of_a_range_is_said_and_not_passed_over_in_silence(world: World) -> None:
    storage = world.worker.storage
    for number in range(3):
        await world.searchable(f"Note {number}.", external_id=str(number))
    before = {item.position: item async for item in storage.log.read("raw")}
    await expire(storage, world.settings, "raw")
    await world.searchable("Note 3.", external_id="3")
    [left] = [item async for item in storage.log.read("raw")]
    dry = await post(world, "/v1/replays", {"stage": "receive", "dry_run": True})
    gone = {place["partition"]: (place["start"], place["end"]) for place in dry["missing"]}
    assert dry["events_chosen"] == 1
    assert gone and all(gone[place.partition][0] <= place.offset < gone[place.partition][1] for place in before)
    refused = await post(world, "/v1/replays", {"stage": "receive"}, status=409)
    assert refused["code"] == "NOT_RETAINED" and all(f"partition {number}: offsets" in refused["detail"] for number in gone)
    assert (await get(world, "/v1/replays"))["items"] == [], "nothing was begun"
    place = {"partition": left.position.partition, "start": left.position.offset}
    for chosen in ({"offsets": [place]}, {"offsets": [place], "since": left.appended_at.isoformat()}):
        dry, done = await replayed(world, stage="receive", **chosen)
        assert (dry["missing"], dry["events_chosen"], done["replayed"], done["state"]) == ([], 1, 1, "done")


@on_both_logs
async def test_a_replay_that_waited_does_not_go_on_over_what_retention_dropped_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: Any) -> None:
        return None

    for number in range(3):
        await world.searchable(f"Note {number}.", external_id=str(number))
    with monkeypatch.context() as nobody_is_there:
        nobody_is_there.setattr(PgReplays, "lease", none)
        begun = await post(world, "/v1/replays", {"stage": "receive"})
        await expire(world.worker.storage, world.settings, "raw")
    done = await ended(world, begun["replay_id"])
    assert done["state"] == "failed" and "NOT_RETAINED" in done["error"]


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


@on_both_logs
async def test_every_stage_may_react_again_to_all_that_a_document_has_been_through(world: World, database: str) -> None:
    """Revisions that changed nothing, an amendment, a withdrawal and what came back after one."""
    await world.searchable("A note about otters.", external_id="same")
    await world.searchable("A note about otters.", external_id="same")
    changed = await world.searchable("The stork has gone.", external_id="changed", title="Old")
    await world.searchable("The otter has come.", external_id="changed", title="Old")
    assert (await world.http.patch(f"/v1/documents/{changed['document_id']}", json={"title": "New", "tags": ["x"]})).status_code == 202
    gone = await world.searchable("The pike waits.", external_id="gone")
    assert (await world.ended((await world.http.delete(f"/v1/documents/{gone['document_id']}")).json()))["state"] == "withdrawn"

    async def amended() -> bool:
        return bool((await get(world, f"/v1/documents/{changed['document_id']}"))["title"] == "New")

    await until(amended)
    await until(lambda: idle(world))
    before, told = await summed(database), await producers_told(world)
    for stage in ("receive", "transcribe", "chunk", "embed", "extract", "index"):
        done = await ended(world, (await post(world, "/v1/replays", {"stage": stage}))["replay_id"])
        assert (done["state"], done["buried"]) == ("done", 0), done
        await until(lambda: idle(world))
        assert await summed(database) == before, stage
        assert await producers_told(world) == told, f"{stage} tells of what came since as if it had come first"


async def producers_told(world: World) -> set[tuple[str, str]]:
    """Event and outcome."""
    said = [stored.record async for stored in world.worker.storage.log.read("outcomes")]
    return {(json.loads(record.value or b"")["event_id"], record.headers["ce_type"].decode()) for record in said}


async def idle(world: World) -> bool:
    """Nobody has anything to read."""
    return not any(line["lag"] for line in await stage_lags(world.worker.storage))


async def test_letters_that_no_generation_reads_any_more_are_left_out_unless_they_are_asked_for(world: World, embedder: Choosy) -> None:
    receipt = await failed(world, "The heron stands.", "bird")
    pool = world.worker.storage.pool
    await pool.execute("insert into generations (name, config, how, topics, state) values ('g0', '{}', '{}', '{\"chunked\": \"chunked.g0\"}', 'dropped')")
    old = await pool.fetchval(
        "insert into dead_letters (event_id, stage, generation, tenant, log_topic, log_partition, log_offset, code, detail, remedy, attempts, buried_at) "
        "values (gen_random_uuid(), 'embed', 'g0', 'default', 'chunked.g0', 0, 7, 'OLD', 'old', '', 1, clock_timestamp()) returning event_id"
    )
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
