"""What is told of documents while they are on their way, when they have arrived, and when they have not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.errors import InvalidRequest
from schemas.ids import content_id, derived_id, received_id
from sql.documents import PgDocuments
from sql.records import PgRecords
from tests.callers import LOCAL, caller
from tests.rows import EPOCH, Doc, accept, add, flip, index
from tests.searching import Stand, stand

DOC = Doc("a", ["one two", "three"], title="A", collection="law", tags=("red",))


def job_of(doc: Doc) -> UUID:
    return received_id(doc.tenant, "test", doc.event_id)


async def status(desk: Stand, doc: Doc) -> dict[str, Any]:
    found = await PgDocuments(desk.pool).status(LOCAL, job_id=job_of(doc))
    assert found is not None
    return found


def stages(body: dict[str, Any]) -> dict[str, str]:
    return {line["stage"]: line["state"] for line in body["stages"]}


async def open_job(desk: Stand, doc: Doc) -> None:
    await desk.connection.execute(
        "insert into jobs (id, tenant, document_id, event_id, source, external_id) values ($1, $2, $3, $4, 'test', $5)",
        *(job_of(doc), doc.tenant, doc.id, doc.event_id, doc.external_id),
    )


async def at_door(desk: Stand, event: UUID, offset: int, *, reacted: bool = True) -> None:
    await desk.connection.execute(
        """insert into handled (generation, stage, event_id, log_topic, log_partition, log_offset, claim, payload_sha256, reacted)
           values ('', 'receive', $1, 'raw', 0, $2, 'owed', 'hash', $3)""",
        *(event, offset, reacted),
    )


async def bury(desk: Stand, stage: str, *, topic: str, offset: int, document: UUID | None = None, event: UUID | None = None, **more: str) -> None:
    await desk.connection.execute(
        """insert into dead_letters (event_id, stage, generation, tenant, document_id, log_topic, log_partition, log_offset, code, detail, remedy, attempts,
             producer_event_id, producer_source, buried_at)
           values ($1, $2, $3, 'default', $4, $5, 0, $6, 'BROKEN', 'page 3 is torn', 'Scan it again.', 2, $7, $8, $9)""",
        *(event or uuid4(), stage, more.get("generation", "g1"), document, topic, offset, more.get("event_id"), more.get("source"), EPOCH),
    )


async def settle(desk: Stand, doc: Doc, kind: str, topic: str, parts: int = 1, have: int = 1) -> None:
    for part in range(1, have + 1):
        await desk.connection.execute(
            """insert into settled (generation, document_id, ord, kind, part, parts, tenant, fact_id, log_topic, log_partition, log_offset)
               values ('g1', $1, $2, $3, $4, $5, $6, $7, $8, 0, $9)""",
            *(doc.id, list(doc.order), kind, part, parts, doc.tenant, content_id("fact", kind, part), topic, 10 * doc.order[-1] + part),
        )


async def test_a_job_is_accepted_while_no_table_knows_its_document(database: str) -> None:
    async with stand(database) as desk:
        await open_job(desk, DOC)
        found = await status(desk, DOC)
        assert (found["state"], found["document_id"], found["external_id"]) == ("accepted", DOC.id, "a")
        assert found["stages"][0]["stage"] == "receive" and found["chunks_count"] == 0
        assert await PgDocuments(desk.pool).status(caller("other"), job_id=job_of(DOC)) is None
        told = await PgDocuments(desk.pool).get(LOCAL, DOC.id)
        assert told is not None and (told["state"], told["document_id"], told["revision"], told["blob"]) == ("accepted", DOC.id, 0, None)
        assert await PgDocuments(desk.pool).get(caller("other"), DOC.id) is None
        assert (await PgDocuments(desk.pool).find(LOCAL, **dict.fromkeys(("external_id", "collection", "tag", "state", "after")), limit=5))[0] == []


async def test_an_event_of_any_producer_is_found_by_its_own_name(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, DOC)
        found = await PgDocuments(desk.pool).status(LOCAL, event_id=DOC.event_id, source="test")
        assert found is not None and (found["state"], found["document_id"]) == ("searchable", DOC.id)
        assert await PgDocuments(desk.pool).status(LOCAL, event_id="unheard", source="test") is None


async def test_an_event_buried_at_the_door_has_failed_with_its_reason(database: str) -> None:
    async with stand(database) as desk:
        await bury(desk, "receive", topic="raw", offset=4, event=received_id("default", "crm", "e-1"), generation="")
        await bury(desk, "receive", topic="raw", offset=5, event_id="e-2", source="crm", generation="")
        for name in ("e-1", "e-2"):
            found = await PgDocuments(desk.pool).status(LOCAL, event_id=name, source="crm")
            assert found is not None and found["state"] == "failed" and found["document_id"] is None
            [line] = found["stages"]
            assert line["error"] == {"code": "BROKEN", "detail": "page 3 is torn", "remedy": "Scan it again."} and line["attempts"] == 2


async def test_it_runs_until_its_last_part_has_settled_and_is_searchable_then(database: str) -> None:
    async with stand(database) as desk:
        await accept(desk.connection, DOC)
        assert (await status(desk, DOC))["state"] == "running"
        assert stages(await status(desk, DOC)) == {
            "receive": "done",
            "transcribe": "running",
            "chunk": "waiting",
            "extract": "waiting",
            "embed": "waiting",
            "graph": "waiting",
            "index": "waiting",
        }
        await index(desk.connection, DOC)
        await settle(desk, DOC, "chunks", "chunked")
        await settle(desk, DOC, "vectors", "embedded", parts=2)
        half = stages(await status(desk, DOC))
        assert (half["chunk"], half["embed"], half["index"], half["graph"]) == ("done", "running", "running", "waiting")
        await flip(desk.connection, DOC)
        done = await status(desk, DOC)
        assert (done["state"], done["chunks_count"], done["tokens_estimate"]) == ("searchable", 2, 10)
        assert [warning["code"] for warning in done["warnings"]] == ["GRAPH_PENDING"]
        assert next(line for line in done["stages"] if line["stage"] == "index")["topic"] == "embedded"


async def test_a_buried_chunk_fails_the_revision_while_the_old_one_keeps_serving(database: str) -> None:
    new = Doc("a", ["changed"], order=(1, 2), revision=2)
    async with stand(database) as desk:
        await add(desk.connection, DOC)
        await accept(desk.connection, new)
        await index(desk.connection, new)
        await bury(desk, "chunk", topic="ocr_done", offset=2, document=DOC.id)
        failed = await status(desk, new)
        assert failed["state"] == "failed"
        assert next(line for line in failed["stages"] if line["stage"] == "chunk")["error"]["code"] == "BROKEN"
        assert (await status(desk, DOC))["state"] == "searchable"
        found = await PgDocuments(desk.pool).get(LOCAL, DOC.id)
        assert found is not None and (found["state"], found["visible_revision"], found["revision"]) == ("failed", 1, 2)


async def test_what_buried_a_revision_says_nothing_of_one_that_came_later(database: str) -> None:
    again = Doc("a", ["one two", "three"], order=(1, 2), revision=2)
    async with stand(database) as desk:
        await accept(desk.connection, DOC)
        await bury(desk, "embed", topic="chunked", offset=2, document=DOC.id)
        assert (await status(desk, DOC))["state"] == "failed"
        await accept(desk.connection, again)
        await desk.connection.execute("update document_revisions set received_at = $1 where ord = $2", EPOCH + timedelta(hours=1), list(again.order))
        assert (await status(desk, again))["state"] == "running"


async def test_a_buried_entity_part_costs_only_the_graph(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, DOC)
        await settle(desk, DOC, "entities", "entities")
        await bury(desk, "graph", topic="entities", offset=11, document=DOC.id)
        found = await status(desk, DOC)
        assert found["state"] == "searchable" and [warning["code"] for warning in found["warnings"]] == ["GRAPH_INCOMPLETE"]


async def test_an_older_revision_is_superseded_and_an_unchanged_one_is_answered_for(database: str) -> None:
    second, same = Doc("a", ["new"], order=(1, 2), revision=2), Doc("a", ["new"], order=(1, 3), revision=3)
    async with stand(database) as desk:
        await add(desk.connection, DOC)
        await add(desk.connection, second)
        await accept(desk.connection, same)
        assert [(await status(desk, doc))["state"] for doc in (DOC, second, same)] == ["superseded", "searchable", "searchable"]
        assert set(stages(await status(desk, same)).values()) == {"done"}
        listed, _ = await PgDocuments(desk.pool).revisions(LOCAL, DOC.id, after=None, limit=10)
        assert [(item["revision"], item["state"], item["visible"]) for item in listed] == [
            (3, "searchable", False),
            (2, "searchable", True),
            (1, "superseded", False),
        ]


async def test_an_event_that_came_too_late_is_superseded_though_no_revision_tells_of_it(database: str) -> None:
    late = Doc("a", ["late"], order=(1, 0), revision=9)
    async with stand(database) as desk:
        await add(desk.connection, DOC)
        await open_job(desk, late)
        assert (await status(desk, late))["state"] == "accepted"
        await at_door(desk, job_of(late), 1)
        assert (await status(desk, late))["state"] == "accepted"
        await at_door(desk, job_of(DOC), 2)
        assert (await status(desk, late))["state"] == "superseded"


async def test_an_event_that_transcribe_found_too_old_is_superseded(database: str) -> None:
    late = Doc("a", ["late"], order=(1, 0), revision=9)
    async with stand(database) as desk:
        await add(desk.connection, DOC)
        await open_job(desk, late)
        await at_door(desk, job_of(late), 7)
        await desk.connection.execute(
            """insert into handled (generation, stage, event_id, log_topic, log_partition, log_offset, claim, document_id)
               values ('g1', 'transcribe', $1, 'accepted', 0, 7, 'superseded', $2)""",
            *(derived_id("receive", "", job_of(late), 0), DOC.id),
        )
        assert (await status(desk, late))["state"] == "superseded"


async def test_a_withdrawn_document_is_withdrawn_for_its_jobs_and_gone_from_lists(database: str) -> None:
    removal = Doc("a", [], order=(1, 5), revision=5)
    async with stand(database) as desk:
        await add(desk.connection, DOC)
        await open_job(desk, removal)
        assert (await status(desk, removal))["state"] == "accepted"
        await desk.connection.execute(
            "update documents set latest = $2, withdrawn = $2, accepted_id = $3 where id = $1", DOC.id, list(removal.order), job_of(removal)
        )
        await desk.connection.execute("delete from visible")
        documents = PgDocuments(desk.pool)
        assert (await status(desk, removal))["state"] == (await status(desk, DOC))["state"] == "withdrawn"
        assert (await documents.find(LOCAL, **NO_FILTER, limit=10))[0] == []
        assert [item["document_id"] for item in (await documents.find(LOCAL, **NO_FILTER | {"state": "withdrawn"}, limit=10))[0]] == [DOC.id]
        found = await documents.get(LOCAL, DOC.id)
        assert found is not None and found["state"] == "withdrawn"
        assert await documents.text(LOCAL, DOC.id) is None
        assert await documents.counts("default") == {"withdrawn": 1}


async def test_workers_notes_give_attempts_times_and_errors(database: str) -> None:
    async with stand(database) as desk:
        await accept(desk.connection, DOC)
        for part, state, attempts in ((1, "done", 1), (2, "running", 3)):
            await desk.connection.execute(
                """insert into job_stages (generation, document_id, ord, stage, part, state, attempts, log_topic, log_partition, log_offset, started_at, duration_ms)
                   values ('g1', $1, '{1,1}', 'embed', $2::int, $3, $4, 'chunked', 0, $2::int, $5, 250)""",
                *(DOC.id, part, state, attempts, EPOCH),
            )
        line = next(line for line in (await status(desk, DOC))["stages"] if line["stage"] == "embed")
        assert (line["state"], line["attempts"], line["duration_ms"], line["offset"]) == ("running", 3, 250.0, 1)
        assert line["started_at"] == EPOCH.isoformat()


NO_FILTER: dict[str, Any] = {"external_id": None, "collection": None, "tag": None, "state": None, "after": None}


@pytest.mark.parametrize(
    ("given", "found"),
    [({"external_id": "b"}, ["b"]), ({"collection": "law"}, ["a"]), ({"tag": "red"}, ["a"]), ({"state": "running"}, ["c"]), ({"tag": "blue"}, [])],
)
async def test_lists_are_filtered(database: str, given: dict[str, str], found: list[str]) -> None:
    async with stand(database) as desk:
        await add(desk.connection, DOC, Doc("b", ["x"]), Doc("mine", ["x"], tenant="other"))
        await accept(desk.connection, Doc("c", ["x"]))
        items, following = await PgDocuments(desk.pool).find(LOCAL, **NO_FILTER | given, limit=10)
        assert [item["external_id"] for item in items] == found and following is None


async def test_lists_come_page_by_page_without_repeats(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, *(Doc(f"d{n}", ["x"]) for n in range(7)))
        documents, seen, after = PgDocuments(desk.pool), list[str](), None
        while True:
            items, after = await documents.find(LOCAL, **NO_FILTER | {"after": after}, limit=3)
            seen += [item["external_id"] for item in items]
            if after is None:
                break
        assert sorted(seen) == [f"d{n}" for n in range(7)]
        with pytest.raises(InvalidRequest):
            await documents.find(LOCAL, **NO_FILTER | {"after": "yesterday"}, limit=3)


async def test_a_document_comes_with_its_text_and_chunks(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, DOC)
        documents = PgDocuments(desk.pool)
        text = await documents.text(LOCAL, DOC.id)
        assert text is not None and text.markdown == "one two\n\nthree"
        first, after = await documents.chunks(LOCAL, DOC.id, after=-1, limit=1)
        second, end = await documents.chunks(LOCAL, DOC.id, after=after or 0, limit=1)
        assert [item["text"] for item in first + second] == ["one two", "three"] and end is None
        assert first[0]["section"] == "Part" and first[0]["pages"] == [1]
        found = await documents.get(LOCAL, DOC.id)
        assert found is not None
        assert (found["title"], found["collection"], found["tags"], found["chunks_count"], found["bytes"]) == ("A", "law", ["red"], 2, 1)
        assert len(found["stages"]) == 7 and await documents.get(caller("other"), DOC.id) is None


async def test_collections_tell_documents_chunks_and_languages(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, DOC, Doc("p", ["x"], "pt", collection="law"), Doc("none", ["x"], None))
        assert await PgRecords(desk.pool).collections(LOCAL) == [
            {"name": "law", "documents": 2, "chunks": 3, "languages": ["en", "pt"]},
            {"name": None, "documents": 1, "chunks": 1, "languages": []},
        ]


async def test_dead_letters_and_runs_come_latest_first_and_only_to_their_tenant(database: str) -> None:
    async with stand(database) as desk:
        for offset in range(3):
            await bury(desk, "chunk", topic="ocr_done", offset=offset)
        records = PgRecords(desk.pool)
        page, after = await records.dead_letters("default", stage="chunk", after=None, limit=2)
        rest, end = await records.dead_letters("default", stage="chunk", after=after, limit=2)
        assert sorted(letter["offset"] for letter in page + rest) == [0, 1, 2] and end is None
        assert (await records.dead_letters("other", stage=None, after=None, limit=5))[0] == []
        run = uuid4()
        await desk.connection.execute(
            "insert into runs (id, tenant, kind, request, received_at, response) values ($1, 'default', 'query', $2, $3, $4)",
            *(run, {"query": "why"}, EPOCH, {"answer": "because", "refused": False}),
        )
        [line], _ = await records.runs(LOCAL, after=None, limit=5)
        assert (line["run_id"], line["query"], line["answer"]) == (run, "why", "because")
        assert await records.run(caller("other"), run) is None and (await records.run(LOCAL, run) or {})["response"]["answer"] == "because"
