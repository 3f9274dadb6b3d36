"""A fact is stated, approved, cited, replaced and erased."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sql.inbox.shared_rows import write_shared_rows
from streams.stage import project_itself
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka

QUESTION = "Who is the contact for plant 3?"


async def propose(world: ApiWorld, object_: str, **fields: Any) -> str:
    body = {"subject": "The contact for plant 3", "predicate": "is", "object": object_, **fields}
    response = await world.http.post("/v1/facts", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["fact_id"])


async def decide(world: ApiWorld, fact_id: str, verb: str, status: str) -> None:
    response = await world.http.post(f"/v1/facts/{fact_id}/{verb}")
    assert response.status_code == 202, response.text
    await eventually(
        lambda: world.fetch_json(f"/v1/facts/{fact_id}"), lambda fact: fact["status"] == status
    )


@long_on_kafka
async def test_fact_is_used_from_approval_until_rejection(world: ApiWorld) -> None:
    fact_id = await propose(world, "Ana", source="phone call", certainty=0.9)
    fact = await eventually(lambda: world.fetch_json(f"/v1/facts/{fact_id}"))
    assert (fact["status"], fact["stated_by"], fact["source"]) == (
        "proposed",
        "local",
        "phone call",
    )
    assert (await world.ask(QUESTION))["refused"]
    await decide(world, fact_id, "approve", "approved")
    answer = await world.ask(QUESTION)
    assert answer["answer"] == "The contact for plant 3 is Ana [F1]"
    [cited] = answer["facts"]
    assert (cited["fact_id"], cited["stated_by"]) == (fact_id, "local")
    assert 0.89 < cited["certainty"] <= 0.9 and answer["citations"] == []
    await decide(world, fact_id, "reject", "rejected")
    assert (await world.ask(QUESTION))["refused"]


async def test_approved_replacement_takes_the_place_of_a_fact(world: ApiWorld) -> None:
    first = await propose(world, "Ana")
    await decide(world, first, "approve", "approved")
    same = await world.http.post(
        "/v1/facts",
        json={"subject": "The contact for plant 3", "predicate": "is", "object": "Ana"},
    )
    assert same.json() == {"status": "accepted", "fact_id": first, "duplicate": True}
    second = await propose(world, "Bruno", replaces=first)
    # Until its approval, the earlier one holds.
    assert (await world.ask(QUESTION))["facts"][0]["fact_id"] == first
    await decide(world, second, "approve", "approved")
    answer = await world.ask(QUESTION)
    assert answer["answer"] == "The contact for plant 3 is Bruno [F1]"
    [old] = (await world.fetch_json("/v1/facts", status="replaced"))["items"]
    assert old["fact_id"] == first
    refused = await world.http.post(f"/v1/facts/{first}/approve")
    assert (refused.status_code, refused.json()["code"]) == (422, "FACT_REPLACED")


async def test_invalid_facts_are_refused(world: ApiWorld) -> None:
    body = {"subject": "The contact", "predicate": "is", "object": "Ana"}
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    for wrong, status, code in (
        ({"certainty": 0}, 422, "INVALID_REQUEST"),
        ({"certainty": 1.5}, 422, "INVALID_REQUEST"),
        ({"half_life_days": 0.5}, 422, "INVALID_REQUEST"),
        ({"subject": "  "}, 422, "INVALID_REQUEST"),
        ({"tenant": "acme"}, 422, "INVALID_REQUEST"),
        ({"expires_at": yesterday}, 422, "FACT_EXPIRED"),
        ({"replaces": str(uuid4())}, 404, "NOT_FOUND"),
    ):
        response = await world.http.post("/v1/facts", json={**body, **wrong})
        assert (response.status_code, response.json()["code"]) == (status, code), wrong
    unknown = await world.http.delete(f"/v1/facts/{uuid4()}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "NOT_FOUND")


async def test_table_of_facts_is_rebuilt_from_the_log(world: ApiWorld) -> None:
    first = await propose(world, "Ana", certainty=0.8, half_life_days=30)
    await decide(world, first, "approve", "approved")
    second = await propose(world, "Bruno", replaces=first, readers=["user:ana"])
    await decide(world, second, "approve", "approved")
    third = await propose(world, "Carla")
    await decide(world, third, "reject", "rejected")
    storage = world.worker.storage

    async def read_table() -> list[Any]:
        return list(await storage.pool.fetch("select * from facts order by id"))

    before = await read_table()
    assert len(before) == 3
    events = [await storage.codec.decode(record) async for record in storage.log.read("feedback")]
    await storage.pool.execute("truncate facts")
    async with storage.pool.acquire() as connection, connection.transaction():
        # Each event twice: delivery is at least once.
        for event in (event for event in events for _ in range(2)):
            await write_shared_rows(connection, project_itself(event))
    assert await read_table() == before
