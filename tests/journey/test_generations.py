"""Query two generations by name over HTTP, switch between them under load, and roll back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from schemas.errors import PermanentError
from services.generations.decisions import GenerationDecisions
from sql.index.generation_switch import hold_visibility_lock, roll_back, switch_generation
from streams.stage_consumer import format_group_name
from tests.support.api_world import TIMEOUT_S, ApiWorld
from tests.support.eventually import eventually
from tests.support.generation_copies import copy_generation
from tests.support.log_backends import long_on_kafka, long_on_postgres

TEXTS = {
    "heron": "# Herons\n\nThe heron stands still in shallow water and waits for fish.",
    "stork": "# Storks\n\nThe stork builds a large nest of sticks on chimneys.",
    "crane": "# Cranes\n\nThe crane dances in spring and flies south in autumn.",
}
QUERIES_PER_SECOND, MAX_IN_FLIGHT = 50, 16


async def ingest_texts(world: ApiWorld) -> None:
    for name, text in TEXTS.items():
        await world.ingest_until_searchable(text, external_id=name)


async def copy_to_shadow(world: ApiWorld, name: str = "g2") -> None:
    """Copy g1 to a shadow and wait until the worker has read the log to its end for it.

    Rows that a test then deletes from the shadow stay deleted.
    """
    storage = world.worker.storage
    await copy_generation(storage.pool, "g1", name)
    for stage, topic in (
        ("chunk", "ocr_done"),
        ("embed", "chunked"),
        ("index", "embedded"),
        ("graph", "entities"),
    ):
        await eventually(
            partial(storage.log.count_pending, format_group_name(stage, name), topic),
            lambda pending: pending == 0,
            what=f"the end of {topic} in {name}",
        )


async def calibrate(world: ApiWorld, name: str) -> None:
    response = await world.http.post("/v1/calibrations", json={"generation": name, "questions": 2})
    assert response.status_code == 200, response.text


async def hide_in_shadow(world: ApiWorld, document: str) -> None:
    await world.worker.storage.pool.execute(
        "delete from visible where generation = 'g2' and document_id in (select id from documents "
        "where external_id = $1)",
        document,
    )


def make_decisions(world: ApiWorld) -> GenerationDecisions:
    return GenerationDecisions(world.worker.storage.log, world.worker.storage.codec)


async def test_query_uses_and_names_requested_generation(world: ApiWorld) -> None:
    await ingest_texts(world)
    await copy_to_shadow(world)
    await hide_in_shadow(world, "heron")
    for named, expected, found in (
        (None, "g1", ["heron"]),
        ("g1", "g1", ["heron"]),
        ("g2", "g2", []),
    ):
        response = (
            await world.http.post(
                "/v1/search", json={"query": "heron", "generation": named, "channels": ["lexical"]}
            )
        ).json()
        assert (response["generation"], response["trace"]["generation"]) == (expected, expected)
        assert [result["external_id"] for result in response["results"]] == found
    assert (await world.ask("heron?", generation="g2"))["generation"] == "g2"
    unknown = await world.http.post("/v1/query", json={"query": "heron", "generation": "g9"})
    assert unknown.status_code == 404 and unknown.json()["code"] == "NO_SUCH_GENERATION"


@long_on_postgres
async def test_generation_switch_under_load_fails_no_query(world: ApiWorld) -> None:
    await ingest_texts(world)
    pool = world.worker.storage.pool
    await copy_to_shadow(world)
    asker = QueryLoad(world)
    asking = asyncio.create_task(asker.run())
    order = []
    for turn in range(6):
        await asker.wait_for_answers(10 * (turn + 1))
        moved = await (
            switch_generation(pool, "g2", make_decisions(world).publish_promoted)
            if turn % 2 == 0
            else roll_back(pool, make_decisions(world).publish_promoted)
        )
        order.append(moved.generation)
    await asker.wait_for_answers(80)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert order == ["g2", "g1"] * 3
    answers = await asyncio.gather(*asker.in_flight, *asker.finished_tasks)
    assert {status for status, _ in answers} == {200}
    assert {body["generation"] for _, body in answers} == {"g1", "g2"}
    assert all(
        body["trace"]["generation"] == body["generation"] and body["results"] for _, body in answers
    )


@long_on_kafka
async def test_searchable_documents_are_found_during_generation_switches(world: ApiWorld) -> None:
    await ingest_texts(world)
    await copy_to_shadow(world)
    moved: list[str] = []
    # The API refuses questions beyond its limit, which a slow machine would reach.
    turns = asyncio.Semaphore(4)

    async def change() -> None:
        while True:
            with suppress(PermanentError):
                moved.append(
                    (
                        await switch_generation(
                            world.worker.storage.pool,
                            "g1" if moved[-1:] == ["g2"] else "g2",
                            make_decisions(world).publish_promoted,
                        )
                    ).generation
                )
            await asyncio.sleep(0.05)

    async def arrive(number: int) -> None:
        await asyncio.sleep(number * 0.1)
        await world.ingest_until_searchable(
            f"# Note {number}\n\nThe word of this note is zq{number}x.",
            f"{number}.md",
            external_id=f"n{number}",
        )
        async with turns:
            found = await world.search(f"zq{number}x", channels=["lexical"])
        assert [result["external_id"] for result in found] == [f"n{number}"], (number, moved)

    async def lag(name: str) -> None:
        """Delay this generation's activations again and again."""
        while True:
            async with (
                world.worker.storage.pool.acquire() as connection,
                hold_visibility_lock(connection, name, wait_s=TIMEOUT_S),
            ):
                await asyncio.sleep(0.3)
            await asyncio.sleep(0.1)

    restless = [asyncio.create_task(work) for work in (change(), lag("g1"), lag("g2"))]
    try:
        await asyncio.gather(*(arrive(number) for number in range(15)))
    finally:
        for task in restless:
            task.cancel()
        ended = await asyncio.gather(*restless, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended) and len(moved) >= 2


@dataclass
class QueryLoad:
    """Send 50 queries a second without waiting for answers, with at most `MAX_IN_FLIGHT` pending.

    A slow machine sends fewer.
    """

    world: ApiWorld
    in_flight: set[asyncio.Task[tuple[int, dict[str, Any]]]] = field(default_factory=set)
    finished_tasks: list[asyncio.Task[tuple[int, dict[str, Any]]]] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            if len(self.in_flight) < MAX_IN_FLIGHT:
                task = asyncio.create_task(
                    self._search(len(self.finished_tasks) + len(self.in_flight))
                )
                self.in_flight.add(task)
                task.add_done_callback(self._on_done)
            await asyncio.sleep(1 / QUERIES_PER_SECOND)

    async def wait_for_answers(self, count: int) -> None:
        await eventually(lambda: len(self.finished_tasks), lambda finished: finished >= count)

    def _on_done(self, task: asyncio.Task[tuple[int, dict[str, Any]]]) -> None:
        self.in_flight.discard(task)
        self.finished_tasks.append(task)

    async def _search(self, number: int) -> tuple[int, dict[str, Any]]:
        response = await self.world.http.post(
            "/v1/search", json={"query": list(TEXTS)[number % len(TEXTS)], "channels": ["lexical"]}
        )
        return response.status_code, response.json()


def make_golden_query(query: str, document: str, quote: str) -> dict[str, Any]:
    return {
        "query": query,
        "channels": ["lexical"],
        "judgements": [{"external_id": document, "quote": quote, "grade": 3}],
    }


GOLDEN_QUERIES = [
    make_golden_query("Where does the heron stand?", "heron", "stands still in shallow water"),
    make_golden_query("What does the stork build?", "stork", "a large nest of sticks"),
]
LENIENT_GATE = {"gain": None, "min_queries": 2, "min_judged_queries": 2, "max_latency_ratio": 1000}


async def post_generations(world: ApiWorld, path: str, **body: Any) -> dict[str, Any]:
    response = await world.http.post(f"/v1/generations/{path}", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


@long_on_kafka
async def test_comparison_maps_judgements_and_reruns_queries(world: ApiWorld) -> None:
    await ingest_texts(world)
    pool = world.worker.storage.pool
    await copy_to_shadow(world)
    run = (await world.ask("When does the crane dance?", channels=["lexical"]))["run_id"]
    [crane] = await world.search("crane dances", channels=["lexical"])
    assert (
        await world.http.post(
            "/v1/feedback", json={"run_id": run, "grades": {crane["chunk_id"]: 3}}
        )
    ).status_code == 202
    await wait_for_rows(world, "runs", 2)
    await wait_for_rows(world, "judgements", 1)
    await hide_in_shadow(world, "stork")
    report = await post_generations(world, "compare", a="g1", b="g2", golden=GOLDEN_QUERIES)
    assert report["generations"] == {"A": "g1", "B": "g2"} and report["failed"] == {}
    assert report["sources"] == {"golden": 2, "real": 2, "feedback": 0} and report["queries"] == 4
    assert report["judgements"] == 3 and report["mapped_share"] == {"A": 1.0, "B": 0.6667}
    assert (
        report["judged_queries"] == 2
        and report["metrics"]["A"]["ndcg@10"] == report["metrics"]["B"]["ndcg@10"] == 1.0
    )
    assert report["worst"][0]["query"] == "What does the stork build?" and report["overlap@10"] < 1
    assert report["latency_ms"]["A"]["p50"] > 0 and report["cost"]["A"]["index_bytes"] > 0
    runs = await pool.fetchval("select count(*) from runs")
    assert runs == 2, "a comparison leaves no trace among the questions"


async def test_two_profiles_of_one_generation_are_compared(world: ApiWorld) -> None:
    await ingest_texts(world)
    await world.ingest_until_searchable("# Owls\n\nThe owl hunts at night.", "owls.md")
    by_filename = make_golden_query("When does the owl hunt?", "owls.md", "hunts at night")
    golden = [*GOLDEN_QUERIES, by_filename]
    report = await post_generations(
        world, "compare", a="g1", b="g1", profile_b="strict", golden=golden, queries=0, answers=True
    )
    assert report["profiles"] == {"A": None, "B": "strict"} and report["queries"] == 3
    assert report["mapped_share"] == {"A": 1.0, "B": 1.0}
    assert report["generations"] == {"A": "g1", "B": "g1"} and "ndcg@10" in report["intervals"]
    unknown = await world.http.post(
        "/v1/generations/compare",
        json={"a": "g1", "b": "g1", "profile_b": "fast", "golden": GOLDEN_QUERIES, "queries": 0},
    )
    assert (unknown.status_code, unknown.json()["code"]) == (422, "UNKNOWN_PROFILE")


def list_failed_queries(report: dict[str, Any]) -> list[str]:
    assert all(
        one["code"] == "UNKNOWN_PROFILE" and one["detail"] for one in report["failed"].values()
    )
    return [one["query"] for one in report["failed"].values()]


async def test_comparison_reports_failed_queries_and_runs_the_rest(world: ApiWorld) -> None:
    """Such as those of a profile that is no more."""
    await ingest_texts(world)
    await world.ask("Where does the heron stand?")
    await world.ask("What does the stork build?")
    await world.ask("What does the stork build?", channels=["lexical"])
    await wait_for_rows(world, "runs", 3)
    bound_to = (
        "update runs set request = jsonb_set(request, '{profile}', '\"gone\"') "
        "where request ->> 'query' like $1"
    )
    await world.worker.storage.pool.execute(bound_to, "%stork%")
    report = await post_generations(
        world,
        "compare",
        a="g1",
        b="g1",
        golden=[make_golden_query("When does the crane dance?", "crane", "dances in spring")],
    )
    assert (
        report["queries"] == 2 and list_failed_queries(report) == ["What does the stork build?"] * 2
    )
    report = await post_generations(world, "compare", a="g1", b="g1")
    assert (
        report["queries"] == 1 and list_failed_queries(report) == ["What does the stork build?"] * 2
    ), "it is the latest, and is asked first"
    await world.worker.storage.pool.execute(bound_to, "%heron%")
    refused = await world.http.post("/v1/generations/compare", json={"a": "g1", "b": "g1"})
    assert (refused.status_code, refused.json()["code"]) == (422, "UNKNOWN_PROFILE")


async def test_gate_rejects_identical_generation_with_reason(world: ApiWorld) -> None:
    await ingest_texts(world)
    await copy_to_shadow(world)
    await calibrate(world, "g2")
    unknown = {"query": "Which emperor conquered Gaul?", "judgements": []}
    comparison = {"golden": [*GOLDEN_QUERIES, unknown], "answers": True}
    report = await post_generations(world, "g2/promote", gate={}, comparison=comparison)
    refusals = report["comparison"]["refusals"]
    assert report["comparison"]["queries"] == 3 and refusals["A"] == refusals["B"] > 0
    assert not report["promoted"] and any(
        reason.startswith("no gain in ndcg@10") for reason in report["reasons"]
    )
    assert report["comparison"]["overlap@10"] == 1.0
    itself = await post_generations(
        world, "g1/promote", gate=LENIENT_GATE, comparison={"golden": GOLDEN_QUERIES}
    )
    assert itself["promoted"] is False and itself["reasons"] == ["g1 is already live"]
    assert (await world.ask("heron?"))["generation"] == "g1"


@long_on_kafka
async def test_generation_is_promoted_rolled_back_and_dropped(world: ApiWorld) -> None:
    await ingest_texts(world)
    await copy_to_shadow(world)
    refused = await world.http.delete("/v1/generations/g1")
    assert refused.status_code == 409 and refused.json()["code"] == "GENERATION_IS_LIVE"
    await calibrate(world, "g2")
    report = await post_generations(
        world, "g2/promote", gate=LENIENT_GATE, comparison={"golden": GOLDEN_QUERIES}
    )
    assert report["promoted"] and report["previous"] == "g1" and report["reasons"] == []
    assert (await world.ask("heron?"))["generation"] == "g2"
    wrong = await world.http.post("/v1/generations/g1/rollback", json={})
    assert wrong.status_code == 409 and wrong.json()["code"] == "GENERATION_NOT_LIVE"
    assert (await post_generations(world, "rollback"))["generation"] == "g1"
    listed = {one["name"]: one for one in (await world.http.get("/v1/generations")).json()["items"]}
    assert {
        name: (one["state"], one["documents"], one["previous"]) for name, one in listed.items()
    } == {"g1": ("live", 3, False), "g2": ("standby", 3, True)}
    assert listed["g2"]["chunks"] == 3 and listed["g2"]["bytes"] > 0
    dropped = (await world.http.delete("/v1/generations/g2")).json()
    assert dropped == {"generation": "g2", "removed": True, "blocked_by": None, "topics": []}
    assert (await world.http.get("/v1/generations/g2")).json()["state"] == "dropped"
    assert (
        await world.http.post("/v1/query", json={"query": "heron?", "generation": "g2"})
    ).status_code == 404
    assert (await world.http.post("/v1/generations/rollback", json={})).json()[
        "code"
    ] == "NO_PREVIOUS_GENERATION"
    assert (await world.ask("heron?"))["generation"] == "g1"
    await world.ingest_until_searchable("# Owls\n\nThe owl hunts at night.", external_id="owl")


async def wait_for_rows(world: ApiWorld, table: str, count: int) -> None:
    pool = world.worker.storage.pool
    await eventually(
        lambda: pool.fetchval(f"select count(*) from {table}"), lambda rows: rows >= count
    )
    if table == "runs":
        await eventually(
            lambda: pool.fetchval(
                "select count(*) from runs where response is null or request is null"
            ),
            lambda incomplete: incomplete == 0,
        )
