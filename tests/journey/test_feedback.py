"""Feedback on answers, and facts that people state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sql.catalog.runs import PgFeedback
from sql.inbox.shared_rows import write_shared_rows
from streams.stage import project_itself
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka, long_on_postgres

HERON = "# Birds\n\nThe heron stands still in shallow water and waits for fish."
STORK = "# Storks\n\nThe stork builds a large nest of sticks on chimneys."


async def wait_for_judgements(world: ApiWorld, count: int) -> list[Any]:
    feedback = PgFeedback(world.worker.storage.pool)
    return await eventually(
        lambda: feedback.fetch_judgements("default", None, None),
        lambda judgements: len(judgements) >= count,
    )


@long_on_kafka
async def test_graded_chunk_is_stored_as_span_with_quote(world: ApiWorld) -> None:
    await world.ingest_until_searchable(HERON, external_id="heron")
    answer = await world.ask("Where does the heron stand?", channels=["lexical"])
    run, [context] = answer["run_id"], (await world.search("heron", channels=["lexical"]))
    response = await world.http.post(
        "/v1/feedback",
        json={"run_id": run, "useful": True, "grades": {context["chunk_id"]: 3}, "note": "right"},
    )
    assert response.status_code == 202 and response.json()["judgements"] == 1
    [(query, judgement)] = await wait_for_judgements(world, 1)
    text = (await world.http.get(f"/v1/documents/{context['document_id']}/markdown")).text
    assert query == "Where does the heron stand?"
    assert (judgement.external_id, judgement.revision, judgement.grade) == ("heron", 1, 3)
    assert (
        text[judgement.char_start : judgement.char_end] == judgement.quote
        and "heron stands still" in judgement.quote
    )


@long_on_postgres
async def test_feedback_without_run_can_be_revised(world: ApiWorld) -> None:
    await world.ingest_until_searchable(STORK, external_id="stork")
    [found] = await world.search("stork nest", channels=["lexical"])
    for useful, expected in ((True, 1), (False, 0)):
        feedback = {"query": "stork nest", "chunk_ids": [found["chunk_id"]], "useful": useful}
        assert (await world.http.post("/v1/feedback", json=feedback)).status_code == 202
        await eventually(
            lambda: wait_for_judgements(world, 1),
            lambda judgements, expected=expected: (
                [grade.grade for _, grade in judgements] == [expected]
            ),
        )


async def test_feedback_on_unknown_run_is_rejected(world: ApiWorld) -> None:
    unknown = str(uuid4())
    response = await world.http.post("/v1/feedback", json={"run_id": unknown, "useful": True})
    assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND")
    assert unknown in response.json()["detail"]
    assert [record async for record in world.worker.storage.log.read("feedback")] == []
    answer = await world.ask("Where does the heron stand?")
    assert (
        await world.http.post("/v1/feedback", json={"run_id": answer["run_id"], "useful": True})
    ).status_code == 202


async def test_unknown_chunk_and_empty_feedback_are_rejected(world: ApiWorld) -> None:
    unknown = await world.http.post(
        "/v1/feedback", json={"query": "q", "grades": {str(uuid4()): 1}}
    )
    assert unknown.status_code == 404 and unknown.json()["code"] == "NOT_FOUND"
    for nothing in (
        {"query": "q"},
        {"useful": True},
        {"query": "q", "grades": {str(UUID(int=1)): 4}},
    ):
        assert (await world.http.post("/v1/feedback", json=nothing)).status_code == 422


async def test_export_has_hard_negatives_and_difficult_questions(world: ApiWorld) -> None:
    await world.ingest_until_searchable(HERON, external_id="heron")
    await world.ingest_until_searchable(STORK, external_id="stork")
    question = "Where does the heron stand?"
    run = (await world.ask(question, channels=["lexical"]))["run_id"]
    chunks = {
        one["external_id"]: one["chunk_id"]
        for one in await world.search("heron stork nest water", channels=["lexical"])
    }
    grades = {chunks["heron"]: 3, chunks["stork"]: 0}
    feedback = {"run_id": run, "useful": False, "grades": grades, "corrected_answer": "In water."}
    assert (await world.http.post("/v1/feedback", json=feedback)).status_code == 202
    await wait_for_judgements(world, 2)
    export = await eventually(
        lambda: world.fetch_json("/v1/judgements"), lambda found: found["difficult"]
    )
    [difficult] = export["difficult"]
    assert (difficult["query"], difficult["useful"]) == (question, False)
    assert difficult["corrected_answer"] == "In water."
    [golden] = export["golden"]
    assert golden["query"] == question and len(golden["judgements"]) == 2
    [negatives] = export["hard_negatives"]
    assert "stork builds" in negatives["negatives"][0] and "heron" in negatives["positives"][0]
    # The exported questions are those that a comparison reads.
    report = await world.http.post(
        "/v1/generations/compare",
        json={"a": "g1", "b": "g1", "golden": export["golden"], "queries": 0},
    )
    assert report.status_code == 200 and report.json()["judged_queries"] == 1
    assert (await world.fetch_json("/v1/judgements", until="2020-01-01T00:00:00Z"))["golden"] == []


async def test_candidate_is_listed_until_accepted_or_rejected(world: ApiWorld) -> None:
    for name, text in (("heron", HERON), ("stork", STORK)):
        await world.ingest_until_searchable(text, external_id=name)
    where, what = "Where does the heron stand?", "What does the stork build?"
    answers = {question: await world.ask(question) for question in (where, what)}
    assert not any(answer["refused"] for answer in answers.values())
    # Asked twice: the latest run is the candidate.
    answers[where] = await world.ask(where)

    async def list_candidates() -> dict[str, Any]:
        page = await world.fetch_json("/v1/judgements/candidates")
        return {item["query"]: item for item in page["items"]}

    async def wait_for_candidates(*questions: str) -> dict[str, Any]:
        return await eventually(list_candidates, lambda found: set(found) == set(questions))

    async def give_feedback(question: str, **fields: Any) -> None:
        body = {"run_id": answers[question]["run_id"], **fields}
        response = await world.http.post("/v1/feedback", json=body)
        assert response.status_code == 202, response.text

    await wait_for_candidates(where, what)
    listed = await eventually(
        list_candidates, lambda found: found[where]["run_id"] == answers[where]["run_id"]
    )
    [passage] = listed[where]["passages"]
    assert passage["chunk_id"] == answers[where]["citations"][0]["chunk_id"]
    await give_feedback(what, useful=True)
    await eventually(list_candidates, lambda found: next(iter(found), None) == what)
    await give_feedback(where, useful=False)
    await wait_for_candidates(what)
    await give_feedback(where, useful=True)
    await wait_for_candidates(what, where)
    await give_feedback(where, candidate_rejected=True)
    await wait_for_candidates(what)
    await give_feedback(what, grades={answers[what]["citations"][0]["chunk_id"]: 3})
    await wait_for_candidates()
    # Only the accepted question is a judgement.
    [(query, judgement)] = await wait_for_judgements(world, 1)
    assert (query, judgement.external_id, judgement.grade) == (what, "stork", 3)


async def test_draft_becomes_judgement_of_its_passage(world: ApiWorld) -> None:
    text = "The tower of Arden was finished by masons of the northern guild on 12 March 1950."
    await world.ingest_until_searchable(text, external_id="tower")
    assert (await world.http.get("/v1/judgements/drafts?questions=0")).status_code == 422
    [draft] = (await world.fetch_json("/v1/judgements/drafts", questions=5))["items"]
    assert draft["document"] == "tower" and "tower of Arden" in draft["query"]
    assert text in draft["passage"] and "12 March" not in draft["query"]
    edited = {"query": "When was the tower finished?", "grades": draft["grades"]}
    assert (await world.http.post("/v1/feedback", json=edited)).status_code == 202
    [(query, judgement)] = await wait_for_judgements(world, 1)
    assert (query, judgement.external_id, judgement.grade) == (edited["query"], "tower", 3)


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
        "/v1/facts", json={"subject": "The contact for plant 3", "predicate": "is", "object": "Ana"}
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
