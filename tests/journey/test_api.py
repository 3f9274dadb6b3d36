from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx2

from tests.journey.conftest import World

HANDBOOK = """# Travel handbook

## Trains

Every train journey over two hours is booked in first class. The travel office books it within three working days.

## Daily allowance

The daily allowance in Lisbon is 74 euros. In Porto the daily allowance is 61 euros.
"""


async def test_a_document_goes_in_by_http_and_comes_back_as_a_cited_answer(world: World) -> None:
    receipt = await world.searchable(HANDBOOK, "handbook.md", external_id="handbook", collection="rules", title="Travel handbook")
    answer = await world.ask("What is the daily allowance in Lisbon?")
    assert not answer["refused"], answer
    assert "74 euros" in answer["answer"]
    markdown = (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text
    for citation in answer["citations"]:
        assert citation["external_id"] == "handbook"
        span = citation["spans"][0]
        assert citation["quote"] in markdown[span["char_start"] :]
    assert answer["trace"]["generation"] == "g1"


async def test_a_question_that_nothing_answers_is_refused_in_its_own_language(world: World) -> None:
    await world.searchable(HANDBOOK)
    answer = await world.ask("Qual é a receita de bacalhau com natas da avó Joaquina?")
    assert (answer["refused"], answer["answer"], answer["code"]) == (True, None, "NO_SUITABLE_CONTEXT")
    assert answer["language"] == "pt"
    assert answer["message"]


async def test_a_question_of_a_collection_that_is_not_there_says_so(world: World) -> None:
    await world.searchable("The gate code is 1111 for the north gate.", collection="gates")
    question = "What is the gate code of the north gate?"
    answer = await world.ask(question, filters={"collections": ["typo"]})
    assert (answer["refused"], answer["code"], answer["message"]) == (True, "NO_SUCH_COLLECTION", "There is no collection 'typo'.")
    assert not any("no collection" in line for line in (await world.ask(question, filters={"collections": ["gates"]}))["limitations"])


async def test_a_new_revision_replaces_the_old_one_and_stays_listed(world: World) -> None:
    first = await world.searchable("The gate code is 1111 for the north gate.", external_id="gate")
    second = await world.searchable("The gate code is 2222 for the north gate.", external_id="gate")
    assert first["document_id"] == second["document_id"]
    found = await world.search("gate code of the north gate")
    assert ["2222" in result["snippet"] for result in found] == [True]
    revisions = (await world.http.get(f"/v1/documents/{first['document_id']}/revisions")).json()["items"]
    assert len(revisions) == 2


async def test_equal_bytes_are_a_duplicate_and_under_another_id_a_second_document(world: World) -> None:
    first = await world.searchable("The same words in every copy of this note.")
    again = await world.ingest("The same words in every copy of this note.")
    other = await world.ingest("The same words in every copy of this note.", external_id="copy")
    assert (first["duplicate"], again["duplicate"], other["duplicate"]) == (False, True, False)
    assert first["document_id"] == again["document_id"] != other["document_id"]
    assert (await world.ended(again))["state"] == "searchable"
    moved = await world.ingest("The same words in every copy of this note.", collection="elsewhere")
    assert (moved["duplicate"], moved["document_id"]) == (False, first["document_id"]), "its collection changes"
    await world.ended(moved)
    assert (await world.ingest("The same words in every copy of this note.", collection="elsewhere"))["duplicate"]


async def test_bytes_sent_again_with_other_readers_are_no_duplicate(world: World) -> None:
    async def send(**fields: object) -> dict[str, Any]:
        response = await world.http.post("/v1/ingest", json={"text": "The lease of the boathouse ends in March."} | fields)
        assert response.status_code == 202, response.text
        return dict(response.json())

    first = await send()
    await world.ended(first)
    shown = f"/v1/documents/{first['document_id']}"
    assert (await world.http.get(shown)).json()["readers"] is None
    for readers in (["user:ana", "group:finance"], [], None):
        fields: dict[str, object] = {} if readers is None else {"readers": readers}
        limited = await send(**fields)
        assert (limited["document_id"], limited["duplicate"], limited["warnings"]) == (first["document_id"], False, []), readers
        await world.ended(limited)
        found = (await world.http.get(shown)).json()["readers"]
        assert found == (sorted(readers) if readers is not None else None)
        assert (await send(**fields))["duplicate"], readers


async def test_reader_without_prefix_is_refused_in_words(world: World) -> None:
    response = await world.http.post("/v1/ingest", json={"text": "A text.", "readers": ["ana"]})
    assert (response.status_code, response.json()["remedy"]) == (422, "readers: give user:NAME, group:NAME or everyone, without spaces.")


async def test_the_same_idempotency_key_is_one_event_and_another_document_under_it_is_refused(world: World) -> None:
    async def send(text: str) -> httpx2.Response:
        return await world.http.post("/v1/ingest", json={"text": text, "external_id": text}, headers={"Idempotency-Key": "once"})

    first, second = await send("alpha"), await send("alpha")
    assert first.json()["ingestion_job_id"] == second.json()["ingestion_job_id"]
    await world.ended(first.json())
    other = await send("beta")
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_a_deleted_document_answers_nothing_more(world: World) -> None:
    receipt = await world.searchable("Otters sleep holding hands so that they do not drift apart.")
    assert await world.search("otters holding hands")
    deleted = await world.http.delete(f"/v1/documents/{receipt['document_id']}")
    assert deleted.status_code == 202
    assert (await world.ended(deleted.json()))["state"] == "withdrawn"
    assert await world.search("otters holding hands") == []
    assert (await world.http.delete(f"/v1/documents/{uuid4()}")).status_code == 404


async def test_filters_narrow_what_is_found(world: World) -> None:
    await world.searchable("Copper melts at 1085 degrees.", "a.md", collection="metals", tags="red", external_id="cu")
    await world.searchable("Copper coins melt slowly in history books.", "b.md", collection="history", external_id="coins")
    found = await world.search("copper melts", filters={"collections": ["metals"]})
    assert [result["external_id"] for result in found] == ["cu"]
    assert await world.search("copper melts", filters={"tags": ["blue"]}) == []


async def test_every_stage_of_a_document_is_told_with_its_place_in_the_log(world: World) -> None:
    receipt = await world.searchable(HANDBOOK)
    status = await world.through(receipt)
    lines = {line["stage"]: line for line in status["stages"]}
    assert lines.keys() == {"receive", "transcribe", "chunk", "extract", "embed", "graph", "index"}
    assert all(None not in (lines[stage]["topic"], lines[stage]["partition"], lines[stage]["offset"], lines[stage]["started_at"]) for stage in lines), lines
    assert lines["receive"]["topic"] == "raw"
    assert status["chunks_count"] > 0


async def test_the_bytes_come_back_as_they_went_in(world: World) -> None:
    receipt = await world.searchable(HANDBOOK, "handbook.md")
    whole = await world.http.get(f"/v1/documents/{receipt['document_id']}/file")
    assert whole.content == HANDBOOK.encode()
    part = await world.http.get(f"/v1/documents/{receipt['document_id']}/file", headers={"Range": "bytes=2-8"})
    assert (part.status_code, part.content) == (206, HANDBOOK.encode()[2:9])


async def test_chunks_are_slices_of_the_markdown(world: World) -> None:
    receipt = await world.searchable(HANDBOOK)
    markdown = (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text
    chunks = (await world.http.get(f"/v1/documents/{receipt['document_id']}/chunks")).json()["items"]
    assert chunks
    assert all(markdown[chunk["char_start"] : chunk["char_end"]] == chunk["text"] for chunk in chunks)


async def test_lists_are_paged_to_the_end(world: World) -> None:
    await asyncio.gather(*(world.searchable(f"Note number {number} about beavers.", external_id=f"n{number}") for number in range(5)))
    seen: list[str] = []
    after = None
    while True:
        page = (await world.http.get("/v1/documents", params={"limit": 2, **({"after": after} if after else {})})).json()
        seen += [item["external_id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(seen) == [f"n{number}" for number in range(5)]


async def test_a_question_is_kept_as_a_run(world: World) -> None:
    await world.searchable(HANDBOOK)
    answer = await world.ask("What is the daily allowance in Porto?")
    async with asyncio.timeout(30):
        while (response := await world.http.get(f"/v1/runs/{answer['run_id']}")).status_code == 404 or response.json()["answered_at"] is None:
            await asyncio.sleep(0.02)
    assert response.json()["response"]["answer"] == answer["answer"]
    assert [run["run_id"] for run in (await world.http.get("/v1/runs")).json()["items"]] == [answer["run_id"]]


async def test_entities_and_what_connects_them_can_be_looked_up(world: World) -> None:
    await world.searchable("Maria Silva works for Norte Energia S.A. in Lisbon. Norte Energia S.A. paid 5,000 euros on 3 May 2024.")
    async with asyncio.timeout(30):
        while not (entities := (await world.http.get("/v1/entities")).json()["items"]):
            await asyncio.sleep(0.05)
    entity = (await world.http.get(f"/v1/entities/{UUID(entities[0]['id'])}")).json()
    assert entity["mentions"]
    graph = (await world.http.get("/v1/graph/subgraph", params={"seed": entities[0]["id"]})).json()
    assert graph["nodes"]


async def test_it_is_ready_and_tells_of_itself(world: World) -> None:
    ready = (await world.http.get("/readyz")).json()
    assert ready["status"] == "ok"
    assert {"database", "log", "blobs", "generation"} <= ready["dependencies"].keys()
    await world.ask("anything at all")
    assert "anabranch_query_duration_seconds_count" in (await world.http.get("/metrics")).text
    assert [item["name"] for item in (await world.http.get("/v1/generations")).json()["items"]] == ["g1"]
    assert "default" in [item["name"] for item in (await world.http.get("/v1/profiles")).json()["items"]]


async def test_an_unknown_profile_or_generation_is_a_mistake_of_the_client(world: World) -> None:
    profile = await world.http.post("/v1/search", json={"query": "x", "profile": "nope"})
    generation = await world.http.post("/v1/search", json={"query": "x", "generation": "g99"})
    assert (profile.status_code, generation.status_code) == (422, 404)
    assert profile.json()["remedy"]
