"""Replays of stages change nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sql.operations.replays import PgReplays
from tests.fakes.ocr import RejectingEmbedder
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.log_backends import expire_topic, long_on_kafka, long_on_postgres
from tests.support.replay_helpers import (
    compute_database_checksum,
    dry_run_and_replay,
    embedder,
    get,
    is_idle,
    overrides,
    post,
    read_outcomes,
    wait_for_replay,
)

__all__ = ["embedder", "overrides"]


@long_on_kafka
async def test_replay_is_idempotent_and_calls_no_engine(
    world: ApiWorld, database: str, embedder: RejectingEmbedder
) -> None:
    for number in range(5):
        await world.ingest_until_searchable(f"Note {number} about otters.", external_id=str(number))
    before, calls = await compute_database_checksum(database), embedder.n_calls
    dry = await post(world, "/v1/replays", {"stage": "embed", "dry_run": True})
    assert dry["replay_id"] is None and dry["topic"] == "chunked"
    replay = (await post(world, "/v1/replays", {"stage": "embed"}))["replay_id"]
    found = await wait_for_replay(world, replay)
    assert (found["state"], found["replayed"], found["dead_lettered"], found["remaining"]) == (
        "done",
        5,
        0,
        0,
    )
    assert embedder.n_calls == calls, "the memo answers"
    assert await compute_database_checksum(database) == before


@long_on_kafka
async def test_replay_can_be_paused_resumed_and_cancelled(world: ApiWorld) -> None:
    for number in range(4):
        await world.ingest_until_searchable(f"Note {number}.", external_id=str(number))
    replay = (await post(world, "/v1/replays", {"stage": "chunk", "per_second": 1}))["replay_id"]
    assert (await post(world, f"/v1/replays/{replay}/pause", {}, 200))["state"] == "paused"
    assert (await post(world, f"/v1/replays/{replay}/pause", {}, 422))["code"] == "WRONG_STATE"
    assert (await post(world, f"/v1/replays/{replay}/resume", {}, 200))["state"] == "running"
    assert (await wait_for_replay(world, replay))["state"] == "done"
    another = (await post(world, "/v1/replays", {"stage": "chunk", "per_second": 1}))["replay_id"]
    await post(world, f"/v1/replays/{another}/cancel", {}, 200)
    assert (await get(world, f"/v1/replays/{another}"))["state"] == "cancelled"


async def test_invalid_replay_request_is_rejected_with_reason(world: ApiWorld) -> None:
    for path, body, status in (
        ("/v1/replays", {"stage": "nothing"}, 422),
        ("/v1/replays", {"stage": "receive", "collection": "a"}, 422),
        ("/v1/replays", {"stage": "chunk", "offsets": [{"partition": 99}]}, 422),
        ("/v1/replays", {"stage": "chunk", "generation": "g77"}, 404),
        ("/v1/replays", {"stage": "chunk", "since": "yesterday"}, 422),
        ("/v1/dead-letters/redrive", {}, 422),
        ("/v1/dead-letters/redrive", {"all": True}, 404),
        ("/v1/dead-letters/discard", {"all": True}, 422),
    ):
        response = await world.http.post(path, json=body)
        assert response.status_code == status, (body, response.text)
        assert response.json()["detail"]


@long_on_kafka
async def test_dry_run_counts_match_replay_for_every_selector(world: ApiWorld) -> None:
    receipts = [
        await world.ingest_until_searchable(
            f"Note {number}.", external_id=str(number), collection="odd" if number % 2 else "even"
        )
        for number in range(6)
    ]
    places = sorted(
        [item async for item in world.worker.storage.log.read("ocr_done")],
        key=lambda item: item.appended_at,
    )
    some = {place.record.headers["ce_document"].decode() for place in places[2:4]}
    middle = {
        "since": places[2].appended_at.isoformat(),
        "until": places[4].appended_at.isoformat(),
    }
    partition, start = places[1].position.partition, places[1].position.offset
    behind = [
        number
        for number, place in enumerate(places)
        if place.position.partition == partition and place.position.offset >= start
    ][:2]
    offsets = [
        {"partition": partition, "start": start, "end": places[behind[-1]].position.offset + 1}
    ]
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
        dry, done = await dry_run_and_replay(world, stage="chunk", **chosen)
        assert (dry["events_chosen"], done["replayed"]) == (count, count), chosen
        assert (dry["events_read"], 0) == (done["read"], done["remaining"]) and done[
            "state"
        ] == "done", chosen


@long_on_postgres
async def test_replay_rejects_range_with_expired_records(world: ApiWorld) -> None:
    storage = world.worker.storage
    for number in range(3):
        await world.ingest_until_searchable(f"Note {number}.", external_id=str(number))
    before = {item.position: item.appended_at async for item in storage.log.read("raw")}
    await expire_topic(storage, world.settings, "raw")
    await world.ingest_until_searchable("Note 3.", external_id="3")
    [left] = [item async for item in storage.log.read("raw")]
    dry = await post(world, "/v1/replays", {"stage": "receive", "dry_run": True})
    missing_ranges = {
        place["partition"]: (place["start"], place["end"]) for place in dry["missing"]
    }
    assert dry["events_chosen"] == 1
    assert missing_ranges and all(
        missing_ranges[place.partition][0] <= place.offset < missing_ranges[place.partition][1]
        for place in before
    )
    refused = await post(world, "/v1/replays", {"stage": "receive"}, status=409)
    assert refused["code"] == "NOT_RETAINED" and all(
        f"partition {number}: offsets" in refused["detail"] for number in missing_ranges
    )
    part, start = left.position.partition, left.position.offset
    assert f"(--offsets {part}:{start}-{start + 1})" in refused["remedy"], (
        "and no partition of which nothing is left"
    )
    assert (await get(world, "/v1/replays"))["items"] == [], "nothing was begun"
    place = {"partition": part, "start": start}
    since, quiet = (
        {"since": moment.isoformat()}
        for moment in (left.appended_at, max(before.values()) + timedelta(microseconds=1))
    )
    for chosen in ({"offsets": [place]}, {"offsets": [place], **since}, since, quiet):
        dry, done = await dry_run_and_replay(world, stage="receive", **chosen)
        assert (dry["missing"], dry["events_chosen"], done["replayed"], done["state"]) == (
            [],
            1,
            1,
            "done",
        )


@long_on_kafka
async def test_pending_replay_fails_when_its_range_expires(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: Any) -> None:
        return None

    for number in range(3):
        await world.ingest_until_searchable(f"Note {number}.", external_id=str(number))
    with monkeypatch.context() as nobody_is_there:
        nobody_is_there.setattr(PgReplays, "acquire", none)
        begun = await post(world, "/v1/replays", {"stage": "receive"})
        await expire_topic(world.worker.storage, world.settings, "raw")
    done = await wait_for_replay(world, begun["replay_id"])
    assert done["state"] == "failed" and "NOT_RETAINED" in done["error"]


@long_on_postgres
async def test_replay_of_every_stage_changes_nothing(world: ApiWorld, database: str) -> None:
    """The history has unchanged revisions, an amendment, a withdrawal and a resubmission."""
    await world.ingest_until_searchable("A note about otters.", external_id="same")
    await world.ingest_until_searchable("A note about otters.", external_id="same")
    changed = await world.ingest_until_searchable(
        "The stork has gone.", external_id="changed", title="Old"
    )
    await world.ingest_until_searchable("The otter has come.", external_id="changed", title="Old")
    assert (
        await world.http.patch(
            f"/v1/documents/{changed['document_id']}", json={"title": "New", "tags": ["x"]}
        )
    ).status_code == 202
    withdrawn = await world.ingest_until_searchable("The pike waits.", external_id="gone")
    assert (
        await world.wait_until_final(
            (await world.http.delete(f"/v1/documents/{withdrawn['document_id']}")).json()
        )
    )["state"] == "withdrawn"

    async def amended() -> bool:
        return bool((await get(world, f"/v1/documents/{changed['document_id']}"))["title"] == "New")

    await eventually(amended)
    await eventually(lambda: is_idle(world))
    before, outcomes = await compute_database_checksum(database), await read_outcomes(world)
    for stage in ("receive", "transcribe", "chunk", "embed", "extract", "index"):
        done = await wait_for_replay(
            world, (await post(world, "/v1/replays", {"stage": stage}))["replay_id"]
        )
        assert (done["state"], done["dead_lettered"]) == ("done", 0), done
        await eventually(lambda: is_idle(world))
        assert await compute_database_checksum(database) == before, stage
        assert await read_outcomes(world) == outcomes, (
            f"{stage} tells of what came since as if it had come first"
        )
