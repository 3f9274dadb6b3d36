"""Bisection between runs and between positions of the log."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2

from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.limited_callers import open_limited_callers
from tests.support.log_backends import on_both_logs

QUESTION = "What does a van pay at the Merrin toll bridge?"


async def ask(world: ApiWorld) -> str:
    response = await world.http.post("/v1/query", json={"query": QUESTION})
    return str(response.json()["run_id"])


async def bisect(world: ApiWorld, run: str, **body: Any) -> httpx2.Response:
    return await world.http.post(f"/v1/runs/{run}/bisect", json=body)


async def fetch_positions(world: ApiWorld, document: str) -> list[str]:
    return list_positions(await world.http.get(f"/v1/documents/{document}/events"))


def list_positions(response: httpx2.Response) -> list[str]:
    return [
        "{topic}[{partition}]@{offset}".format_map(event)
        for event in response.json()["items"]
        if event["topic"] == "accepted"
    ]


@on_both_logs
async def test_positions_limit_the_search_to_what_the_log_received_between_them(
    world: ApiWorld,
) -> None:
    async def add(text: str, name: str) -> str:
        text = f"# {name.title()}\n\n{text} at the Merrin toll bridge."
        receipt = await world.ingest_until_searchable(text, f"{name}.md", external_id=name)
        return str(receipt["document_id"])

    async def delete(document: str) -> None:
        receipt = (await world.http.delete(f"/v1/documents/{document}")).json()
        await world.wait_until_final(receipt)

    tolls, inn = await add("A van pays 4.50 crowns", "tolls"), await add("A bed is free", "inn")
    first = await ask(world)
    (ferry,) = await fetch_positions(world, await add("The ferry leaves at noon", "ferry"))
    await add("A bed is free", "inn")  # Changes nothing.
    await add("A van pays 5.25 crowns", "tolls")
    _, revised = await fetch_positions(world, tolls)
    await delete(inn)
    second = await ask(world)
    history = (await world.http.get(f"/v1/documents/{tolls}/lineage")).json()
    received = re.findall(r"raw\[\d+\]@\d+", json.dumps(history))[0]
    bounds = ({"end": revised}, {"start": ferry}, {"start": ferry, "end": revised})
    for body in (*bounds, {"end": received}):
        found = (await bisect(world, first, other=second, **body)).json()
        assert found["document"]["revision_now"] == 2, found
        assert "4.50" in found["before"] and "5.25" in found["after"]

    await delete(tolls)
    third = await ask(world)
    gone = (await bisect(world, second, other=third)).json()["document"]
    withdrawal = f"{gone['topic']}[{gone['partition']}]@{gone['offset']}"
    assert gone["document_id"] == tolls and gone["topic"] == "raw"
    whole = await bisect(world, first, other=third, end=withdrawal)
    assert whole.json()["document"] == {**gone, "revision_then": 1}
    for earlier, later, body, code in (
        (first, second, {"end": ferry}, "SAME_ANSWER"),
        (first, second, {"start": revised, "end": ferry}, "INVALID_REQUEST"),
        (first, second, {"start": revised}, "SAME_ANSWER"),
        (second, third, {"start": withdrawal}, "SAME_ANSWER"),
        (second, third, {"start": revised}, "OUTSIDE_RUNS"),
        # The answer of revision 2 is in neither of these runs.
        (first, third, {"end": revised}, "OUTSIDE_RUNS"),
    ):
        assert (await bisect(world, earlier, other=later, **body)).json()["code"] == code


@on_both_logs
async def test_position_of_no_event_of_the_caller_is_not_found(world: ApiWorld) -> None:
    await world.ingest_until_searchable("# Tolls\n\nA van pays 4.50 crowns.", "tolls.md")
    run = await ask(world)
    for position in ("accepted[0]@999999", "accepted[7]@1", "nothing[0]@1", "control[0]@1"):
        response = await bisect(world, run, start=position)
        assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND"), position
    assert (await bisect(world, run, start="accepted")).status_code == 422


async def test_position_of_an_event_of_others_is_not_found(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    """When an event arrived tells nothing to a caller that may not read its document."""
    async with open_limited_callers(settings, database, overrides) as callers:
        positions = []
        for user, readers in (("foreign", None), ("admin", ["user:bob"]), ("admin", ["user:ana"])):
            fields = {"readers": readers} if readers else {}
            receipt = await callers.ingest(user, text=f"{readers} pays 4.50 crowns.", **fields)
            document = receipt.json()["document_id"]
            events = await eventually(
                lambda user=user, document=document: callers.fetch(user, document, "/events"),
                lambda response: "accepted" in response.text,
            )
            positions += list_positions(events)
        foreign, hidden, own = positions
        answers = {}
        for user in ("admin", "ana"):
            query = await callers.request(user, "POST", "/v1/query", query="Who pays 4.50 crowns?")
            path = f"/v1/runs/{query.json()['run_id']}"
            await eventually(
                lambda user=user, path=path: callers.request(user, "GET", path),
                lambda response: response.json().get("answered_at"),
            )
            for position in (foreign, hidden, own):
                answer = await callers.request(user, "POST", f"{path}/bisect", start=position)
                answers[user, position] = answer.json()["code"]
        assert answers == {
            ("admin", foreign): "NOT_FOUND",
            ("admin", hidden): "OUTSIDE_RUNS",
            ("admin", own): "OUTSIDE_RUNS",
            ("ana", foreign): "NOT_FOUND",
            ("ana", hidden): "NOT_FOUND",
            ("ana", own): "OUTSIDE_RUNS",
        }
