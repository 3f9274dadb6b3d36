"""Document status while stages run, after success and after failure."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.errors import InvalidRequest
from schemas.events import CollectionConfigured, CollectionDeleted, CollectionDeletionRequested
from schemas.ids import content_id, make_derived_id, make_received_id, sha256_hex
from schemas.ingest import IngestionJob
from sql.catalog.collections import PgCollections
from sql.catalog.document_status import BLOCKING_STAGES, PART_KINDS
from sql.catalog.documents import PgDocuments
from sql.catalog.listings import PgListings
from sql.catalog.revisions import PgJobs
from sql.operations.monitoring import PgProgress
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.document_rows import (
    EPOCH,
    SampleDocument,
    activate_revision,
    insert_accepted,
    insert_documents,
    insert_index_rows,
    insert_mention,
)
from tests.support.search_stack import SearchStack, open_search_stack

DOCUMENT = SampleDocument("a", ["one two", "three"], title="A", collection="law", tags=("red",))


def make_job_id(doc: SampleDocument) -> UUID:
    return make_received_id(doc.tenant, "test", doc.event_id)


async def fetch_job_status(stack: SearchStack, doc: SampleDocument) -> dict[str, Any]:
    found = await PgDocuments(stack.pool).fetch_status(LOCAL_CALLER, job_id=make_job_id(doc))
    assert found is not None
    return found


def get_stage_states(body: dict[str, Any]) -> dict[str, str]:
    return {line["stage"]: line["state"] for line in body["stages"]}


async def insert_job(stack: SearchStack, doc: SampleDocument) -> None:
    await stack.connection.execute(
        "insert into jobs (id, tenant, document_id, event_id, source, external_id) "
        "values ($1, $2, $3, $4, 'test', $5)",
        *(make_job_id(doc), doc.tenant, doc.id, doc.event_id, doc.external_id),
    )


async def insert_receive_claim(
    stack: SearchStack, event: UUID, offset: int, *, is_reaction_done: bool = True
) -> None:
    await stack.connection.execute(
        """insert into inbox (generation, stage, event_id, log_topic, log_partition, log_offset,
             claim, payload_sha256, is_reaction_done)
           values ('', 'receive', $1, 'raw', 0, $2, 'pending', 'hash', $3)""",
        *(event, offset, is_reaction_done),
    )


async def insert_dead_letter(
    stack: SearchStack,
    stage: str,
    *,
    topic: str,
    offset: int,
    document: UUID | None = None,
    event: UUID | None = None,
    **more: str,
) -> None:
    await stack.connection.execute(
        """insert into dead_letters (event_id, stage, generation, tenant, document_id, log_topic,
             log_partition, log_offset, code, detail, remedy, attempts,
             producer_event_id, producer_source, dead_lettered_at)
           values ($1, $2, $3, 'default', $4, $5, 0, $6, 'BROKEN', 'page 3 is torn',
             'Scan it again.', 2, $7, $8, $9)""",
        *(
            event or uuid4(),
            stage,
            more.get("generation", "g1"),
            document,
            topic,
            offset,
            more.get("event_id"),
            more.get("source"),
            EPOCH,
        ),
    )


async def insert_settled_parts(
    stack: SearchStack, doc: SampleDocument, kind: str, topic: str, parts: int = 1, have: int = 1
) -> None:
    for part in range(1, have + 1):
        await stack.connection.execute(
            """insert into revision_parts (generation, document_id, ord, kind, part, parts, tenant,
                 event_id, log_topic, log_partition, log_offset)
               values ('g1', $1, $2, $3, $4, $5, $6, $7, $8, 0, $9)""",
            *(
                doc.id,
                list(doc.order),
                kind,
                part,
                parts,
                doc.tenant,
                content_id("fact", kind, part),
                topic,
                10 * doc.order[-1] + part,
            ),
        )


async def test_job_is_accepted_before_its_document_is_projected(stack: SearchStack) -> None:
    await insert_job(stack, DOCUMENT)
    found = await fetch_job_status(stack, DOCUMENT)
    assert (found["state"], found["document_id"], found["external_id"]) == (
        "accepted",
        DOCUMENT.id,
        "a",
    )
    assert found["stages"][0]["stage"] == "receive" and found["chunks_count"] == 0
    assert (
        await PgDocuments(stack.pool).fetch_status(
            make_caller("other"), job_id=make_job_id(DOCUMENT)
        )
        is None
    )
    document = await PgDocuments(stack.pool).fetch_document(LOCAL_CALLER, DOCUMENT.id)
    assert document is not None and (
        document["state"],
        document["document_id"],
        document["revision"],
        document["blob"],
    ) == ("accepted", DOCUMENT.id, 0, None)
    assert await PgDocuments(stack.pool).fetch_document(make_caller("other"), DOCUMENT.id) is None
    assert (
        await PgDocuments(stack.pool).find_documents(
            LOCAL_CALLER,
            **dict.fromkeys(("external_id", "collection", "tag", "state", "after")),
            limit=5,
        )
    )[0] == []


async def test_job_is_found_by_producer_event_id(stack: SearchStack) -> None:
    await insert_documents(stack.connection, DOCUMENT)
    found = await PgDocuments(stack.pool).fetch_status(
        LOCAL_CALLER, event_id=DOCUMENT.event_id, source="test"
    )
    assert found is not None and (found["state"], found["document_id"]) == (
        "searchable",
        DOCUMENT.id,
    )
    assert (
        await PgDocuments(stack.pool).fetch_status(LOCAL_CALLER, event_id="unheard", source="test")
        is None
    )


async def test_event_dead_lettered_at_ingress_fails_its_job(stack: SearchStack) -> None:
    await insert_dead_letter(
        stack,
        "receive",
        topic="raw",
        offset=4,
        event=make_received_id("default", "crm", "e-1"),
        generation="",
    )
    await insert_dead_letter(
        stack, "receive", topic="raw", offset=5, event_id="e-2", source="crm", generation=""
    )
    for name in ("e-1", "e-2"):
        found = await PgDocuments(stack.pool).fetch_status(
            LOCAL_CALLER, event_id=name, source="crm"
        )
        assert found is not None and found["state"] == "failed" and found["document_id"] is None
        [line] = found["stages"]
        assert (
            line["error"]
            == {"code": "BROKEN", "detail": "page 3 is torn", "remedy": "Scan it again."}
            and line["attempts"] == 2
        )


async def test_job_runs_until_last_part_settles(stack: SearchStack) -> None:
    await insert_accepted(stack.connection, DOCUMENT)
    assert (await fetch_job_status(stack, DOCUMENT))["state"] == "running"
    waiting = get_stage_states(await fetch_job_status(stack, DOCUMENT))
    assert (waiting.pop("receive"), waiting.pop("transcribe")) == ("done", "running")
    assert waiting.keys() >= {"chunk", "extract", "embed", "graph", "index"}
    assert set(waiting.values()) == {"waiting"}
    await insert_index_rows(stack.connection, DOCUMENT)
    await insert_settled_parts(stack, DOCUMENT, "chunks", "chunked")
    await insert_settled_parts(stack, DOCUMENT, "vectors", "embedded", parts=2)
    half = get_stage_states(await fetch_job_status(stack, DOCUMENT))
    assert (half["chunk"], half["embed"], half["index"], half["graph"]) == (
        "done",
        "running",
        "running",
        "waiting",
    )
    await activate_revision(stack.connection, DOCUMENT)
    done = await fetch_job_status(stack, DOCUMENT)
    assert (done["state"], done["chunks_count"], done["tokens_estimate"]) == ("searchable", 2, 10)
    assert [warning["code"] for warning in done["warnings"]] == ["GRAPH_PENDING"]
    assert next(line for line in done["stages"] if line["stage"] == "index")["topic"] == "embedded"


async def test_dead_lettered_chunk_fails_revision_and_old_one_stays(stack: SearchStack) -> None:
    new = SampleDocument("a", ["changed"], order=(1, 2), revision=2)
    await insert_documents(stack.connection, DOCUMENT)
    await insert_accepted(stack.connection, new)
    await insert_index_rows(stack.connection, new)
    await insert_dead_letter(stack, "chunk", topic="ocr_done", offset=2, document=DOCUMENT.id)
    failed = await fetch_job_status(stack, new)
    assert failed["state"] == "failed"
    assert (
        next(line for line in failed["stages"] if line["stage"] == "chunk")["error"]["code"]
        == "BROKEN"
    )
    assert (await fetch_job_status(stack, DOCUMENT))["state"] == "searchable"
    found = await PgDocuments(stack.pool).fetch_document(LOCAL_CALLER, DOCUMENT.id)
    assert found is not None and (found["state"], found["visible_revision"], found["revision"]) == (
        "failed",
        1,
        2,
    )


async def test_dead_letter_does_not_affect_later_revision(stack: SearchStack) -> None:
    again = SampleDocument("a", ["one two", "three"], order=(1, 2), revision=2)
    await insert_accepted(stack.connection, DOCUMENT)
    await insert_dead_letter(stack, "embed", topic="chunked", offset=2, document=DOCUMENT.id)
    assert (await fetch_job_status(stack, DOCUMENT))["state"] == "failed"
    await insert_accepted(stack.connection, again)
    await stack.connection.execute(
        "update document_revisions set received_at = $1 where ord = $2",
        EPOCH + timedelta(hours=1),
        list(again.order),
    )
    assert (await fetch_job_status(stack, again))["state"] == "running"


async def test_dead_lettered_entity_part_affects_only_the_graph(stack: SearchStack) -> None:
    await insert_documents(stack.connection, DOCUMENT)
    await insert_settled_parts(stack, DOCUMENT, "entities", "entities")
    await insert_dead_letter(stack, "graph", topic="entities", offset=11, document=DOCUMENT.id)
    found = await fetch_job_status(stack, DOCUMENT)
    assert found["state"] == "searchable" and [
        warning["code"] for warning in found["warnings"]
    ] == ["GRAPH_INCOMPLETE"]


async def test_older_revision_is_superseded_and_unchanged_one_is_reported(
    stack: SearchStack,
) -> None:
    second, same = (
        SampleDocument("a", ["new"], order=(1, 2), revision=2),
        SampleDocument("a", ["new"], order=(1, 3), revision=3),
    )
    await insert_documents(stack.connection, DOCUMENT)
    await insert_documents(stack.connection, second)
    await insert_accepted(stack.connection, same)
    assert [(await fetch_job_status(stack, doc))["state"] for doc in (DOCUMENT, second, same)] == [
        "superseded",
        "searchable",
        "searchable",
    ]
    assert set(get_stage_states(await fetch_job_status(stack, same)).values()) == {"done"}
    listed, _ = await PgDocuments(stack.pool).fetch_revisions(
        LOCAL_CALLER, DOCUMENT.id, after=None, limit=10
    )
    assert [(item["revision"], item["state"], item["visible"]) for item in listed] == [
        (3, "searchable", False),
        (2, "searchable", True),
        (1, "superseded", False),
    ]


async def test_late_event_without_revision_is_superseded(stack: SearchStack) -> None:
    late = SampleDocument("a", ["late"], order=(1, 0), revision=9)
    await insert_documents(stack.connection, DOCUMENT)
    await insert_job(stack, late)
    assert (await fetch_job_status(stack, late))["state"] == "accepted"
    await insert_receive_claim(stack, make_job_id(late), 1)
    assert (await fetch_job_status(stack, late))["state"] == "accepted"
    await insert_receive_claim(stack, make_job_id(DOCUMENT), 2)
    assert (await fetch_job_status(stack, late))["state"] == "superseded"


async def test_event_skipped_by_transcribe_is_superseded(database: str) -> None:
    late = SampleDocument("a", ["late"], order=(1, 0), revision=9)
    async with open_search_stack(database) as desk:
        await insert_documents(desk.connection, DOCUMENT)
        await insert_job(desk, late)
        await insert_receive_claim(desk, make_job_id(late), 7)
        await desk.connection.execute(
            """insert into inbox (generation, stage, event_id, log_topic, log_partition,
                 log_offset, claim, document_id)
               values ('g1', 'transcribe', $1, 'accepted', 0, 7, 'superseded', $2)""",
            *(make_derived_id("receive", "", make_job_id(late), 0), DOCUMENT.id),
        )
        assert (await fetch_job_status(desk, late))["state"] == "superseded"


async def test_withdrawn_document_marks_jobs_and_leaves_lists(stack: SearchStack) -> None:
    removal = SampleDocument("a", [], order=(1, 5), revision=5)
    await insert_documents(stack.connection, DOCUMENT)
    await insert_job(stack, removal)
    assert (await fetch_job_status(stack, removal))["state"] == "accepted"
    await stack.connection.execute(
        "update documents set latest = $2, withdrawn = $2, accepted_id = $3 where id = $1",
        DOCUMENT.id,
        list(removal.order),
        make_job_id(removal),
    )
    await stack.connection.execute("delete from visible")
    documents = PgDocuments(stack.pool)
    assert (
        (await fetch_job_status(stack, removal))["state"]
        == (await fetch_job_status(stack, DOCUMENT))["state"]
        == "withdrawn"
    )
    assert (await documents.find_documents(LOCAL_CALLER, **NO_FILTERS, limit=10))[0] == []
    assert [
        item["document_id"]
        for item in (
            await documents.find_documents(
                LOCAL_CALLER, **NO_FILTERS | {"state": "withdrawn"}, limit=10
            )
        )[0]
    ] == [DOCUMENT.id]
    found = await documents.fetch_document(LOCAL_CALLER, DOCUMENT.id)
    assert found is not None and found["state"] == "withdrawn"
    assert await documents.fetch_text(LOCAL_CALLER, DOCUMENT.id) is None
    assert await documents.fetch_counts("default") == {"withdrawn": 1}


async def test_stage_records_give_attempts_times_and_errors(database: str) -> None:
    async with open_search_stack(database) as desk:
        await insert_accepted(desk.connection, DOCUMENT)
        for part, state, attempts in ((1, "done", 1), (2, "running", 3)):
            await desk.connection.execute(
                """insert into job_stages (generation, document_id, ord, stage, part, state,
                     attempts, log_topic, log_partition, log_offset, started_at, duration_ms)
                   values ('g1', $1, '{1,1}', 'embed', $2::int, $3, $4, 'chunked', 0, $2::int, $5,
                     250)""",
                *(DOCUMENT.id, part, state, attempts, EPOCH),
            )
        line = next(
            line
            for line in (await fetch_job_status(desk, DOCUMENT))["stages"]
            if line["stage"] == "embed"
        )
        assert (line["state"], line["attempts"], line["duration_ms"], line["offset"]) == (
            "running",
            3,
            250.0,
            1,
        )
        assert line["started_at"] == EPOCH.isoformat()


NO_FILTERS: dict[str, Any] = {
    "external_id": None,
    "collection": None,
    "tag": None,
    "state": None,
    "after": None,
}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"external_id": "b"}, ["b"]),
        ({"collection": "law"}, ["a"]),
        ({"tag": "red"}, ["a"]),
        ({"state": "running"}, ["c"]),
        ({"tag": "blue"}, []),
        ({"text": "HIRD"}, ["d"]),
        ({"text": "%"}, []),
        ({"date_to": date(2020, 1, 31)}, ["d"]),
        ({"date_from": date(2020, 2, 1)}, ["a", "b", "c"]),
    ],
)
async def test_lists_are_filtered(
    stack: SearchStack, given: dict[str, str], found: list[str]
) -> None:
    await insert_documents(
        stack.connection,
        DOCUMENT,
        SampleDocument("b", ["x"]),
        SampleDocument("mine", ["x"], tenant="other"),
    )
    await insert_accepted(stack.connection, SampleDocument("c", ["x"]))
    third = SampleDocument("d", ["x"], title="Third", document_date=date(2020, 1, 31))
    await insert_documents(stack.connection, third)
    items, following = await PgDocuments(stack.pool).find_documents(
        LOCAL_CALLER, **NO_FILTERS | given, limit=10
    )
    assert [item["external_id"] for item in items] == found and following is None


async def test_pages_do_not_repeat_documents(stack: SearchStack) -> None:
    await insert_documents(stack.connection, *(SampleDocument(f"d{n}", ["x"]) for n in range(7)))
    documents, seen, after = PgDocuments(stack.pool), list[str](), None
    while True:
        items, after = await documents.find_documents(
            LOCAL_CALLER, **NO_FILTERS | {"after": after}, limit=3
        )
        seen += [item["external_id"] for item in items]
        if after is None:
            break
    assert sorted(seen) == [f"d{n}" for n in range(7)]
    with pytest.raises(InvalidRequest):
        await documents.find_documents(LOCAL_CALLER, **NO_FILTERS | {"after": "yesterday"}, limit=3)


async def test_document_includes_text_and_chunks(stack: SearchStack) -> None:
    await insert_documents(stack.connection, DOCUMENT)
    documents = PgDocuments(stack.pool)
    text = await documents.fetch_text(LOCAL_CALLER, DOCUMENT.id)
    assert text is not None and text.markdown == "one two\n\nthree"
    first, after = await documents.fetch_chunks(LOCAL_CALLER, DOCUMENT.id, after=-1, limit=1)
    second, end = await documents.fetch_chunks(LOCAL_CALLER, DOCUMENT.id, after=after or 0, limit=1)
    assert [item["text"] for item in first + second] == ["one two", "three"] and end is None
    assert first[0]["section"] == "Part" and first[0]["pages"] == [1]
    found = await documents.fetch_document(LOCAL_CALLER, DOCUMENT.id)
    assert found is not None
    assert (
        found["title"],
        found["collection"],
        found["tags"],
        found["chunks_count"],
        found["bytes"],
    ) == ("A", "law", ["red"], 2, 1)
    assert {line["stage"] for line in found["stages"]} >= {*BLOCKING_STAGES, *PART_KINDS}
    assert await documents.fetch_document(make_caller("other"), DOCUMENT.id) is None


async def test_entities_of_a_document_count_its_own_mentions(stack: SearchStack) -> None:
    other = SampleDocument("b", ["heron"])
    await insert_documents(stack.connection, DOCUMENT, other)
    heron = await insert_mention(stack.connection, DOCUMENT, 0, "bird", "heron", "Heron")
    await insert_mention(stack.connection, DOCUMENT, 1, "bird", "heron", "heron")
    weir = await insert_mention(stack.connection, DOCUMENT, 1, "place", "weir", "Weir")
    await insert_mention(stack.connection, other, 0, "bird", "heron", "Heron")
    documents = PgDocuments(stack.pool)
    first, after = await documents.fetch_entities(LOCAL_CALLER, DOCUMENT.id, after=None, limit=1)
    second, end = await documents.fetch_entities(LOCAL_CALLER, DOCUMENT.id, after=after, limit=1)
    assert [(row["id"], row["mentions"]) for row in first + second] == [(heron, 2), (weir, 1)]
    assert [mention["name"] for mention in first[0]["occurrences"]] == ["Heron", "heron"]
    assert end is None
    assert await documents.fetch_entities(
        make_caller(tenant="other"), DOCUMENT.id, after=None, limit=9
    ) == ([], None)


async def test_dead_letters_and_runs_are_tenant_scoped_latest_first(stack: SearchStack) -> None:
    for offset in range(3):
        await insert_dead_letter(stack, "chunk", topic="ocr_done", offset=offset)
    records = PgListings(stack.pool)
    page, after = await records.list_dead_letters("default", stage="chunk", after=None, limit=2)
    rest, end = await records.list_dead_letters("default", stage="chunk", after=after, limit=2)
    assert sorted(letter["offset"] for letter in page + rest) == [0, 1, 2] and end is None
    assert (await records.list_dead_letters("other", stage=None, after=None, limit=5))[0] == []
    run = uuid4()
    await stack.connection.execute(
        "insert into runs (id, tenant, kind, request, received_at, response) "
        "values ($1, 'default', 'query', $2, $3, $4)",
        *(run, {"query": "why"}, EPOCH, {"answer": "because", "refused": False}),
    )
    [line], _ = await records.list_runs(LOCAL_CALLER, after=None, limit=5)
    assert (line["run_id"], line["query"], line["answer"]) == (run, "why", "because")
    assert (
        await records.get_run(make_caller("other"), run) is None
        and (await records.get_run(LOCAL_CALLER, run) or {})["response"]["answer"] == "because"
    )


async def test_collections_report_documents_default_profile_and_deletion(
    stack: SearchStack,
) -> None:
    await insert_documents(
        stack.connection,
        DOCUMENT,
        SampleDocument("p", ["x"], "pt", collection="law"),
        SampleDocument("none", ["x"], None),
    )
    collections, deletion_id = PgCollections(stack.pool), uuid4()
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    for tenant, name, profile, offset in (
        ("default", "law", "rrf", 7),
        # An earlier decision that arrives again.
        ("default", "law", "strict", 6),
        ("default", "later", "strict", 8),
        ("default", "unset", None, 9),
        ("other", "foreign", "strict", 10),
    ):
        decision = CollectionConfigured(tenant=tenant, collection=name, default_profile=profile)
        await collections.write(decision, offset)
    request = CollectionDeletionRequested(
        deletion_id=deletion_id, tenant="default", collection="law", requested_at=moment
    )
    # Earlier than the profile, which stays.
    await collections.write(request, 5)
    counts = [
        ("later", 0, 0, [], "strict", None),
        ("law", 2, 3, ["en", "pt"], "rrf", deletion_id),
        (None, 1, 1, [], None, None),
    ]
    fields = ("name", "documents", "chunks", "languages", "default_profile", "deletion_id")
    listed = await collections.list_collections(LOCAL_CALLER)
    assert [tuple(row[field] for field in fields) for row in listed] == counts
    # A completed deletion is shown of a single collection only.
    completed = CollectionDeleted(
        deletion_id=deletion_id, tenant="default", collection="law", completed_at=moment
    )
    await collections.write(completed, 11)
    assert all(
        row["deletion_id"] is None for row in await collections.list_collections(LOCAL_CALLER)
    )
    [row] = await collections.list_collections(LOCAL_CALLER, "law")
    assert (row["deletion_id"], row["completed_at"], row["documents"]) == (deletion_id, moment, 2)


async def test_concurrent_content_checks_answer_each_caller(stack: SearchStack) -> None:
    other = SampleDocument("b", ["four"])
    for document in (DOCUMENT, other):
        await insert_accepted(stack.connection, document)
    present, foreign = (sha256_hex("".join(doc.texts).encode()) for doc in (DOCUMENT, other))
    documents = PgDocuments(stack.pool)
    checks = [
        ("default", DOCUMENT.id, foreign),
        ("default", DOCUMENT.id, present),
        ("other", DOCUMENT.id, present),
        ("default", other.id, foreign),
        ("default", uuid4(), present),
        ("default", DOCUMENT.id, present),
    ]
    found = await asyncio.gather(*(documents.has_content(*check) for check in checks))
    assert found == [False, True, False, True, False, True]


async def test_concurrent_jobs_are_opened_once_each(stack: SearchStack) -> None:
    first, second = (
        IngestionJob(uuid4(), "default", uuid4(), f"event-{n}", "test", name, None)
        for n, name in enumerate(("a", None))
    )
    jobs = PgJobs(stack.pool)
    await asyncio.gather(*(jobs.open(job) for job in (first, second, first)))
    await jobs.open(second)
    rows = await stack.pool.fetch("select id, external_id from jobs order by event_id")
    assert [tuple(row) for row in rows] == [(first.job_id, "a"), (second.job_id, None)]


async def test_progress_of_long_reaction_is_stored_once_per_second(database: str) -> None:
    async with open_search_stack(database) as stack:
        await insert_accepted(stack.connection, DOCUMENT)
        start_job = """insert into job_stages (generation, document_id, ord, stage, part, state,
             attempts, log_topic, log_partition, log_offset, started_at)
           values ('g1', $1, $2, $3, $4, $5, 1, 't', 0, 0, now())"""
        key = (DOCUMENT.id, list(DOCUMENT.order))
        await stack.connection.execute(start_job, *key, "transcribe", 1, "running")
        now = 100.0
        progress = PgProgress(stack.pool, "g1", lambda: now)
        report = progress.begin("transcribe", DOCUMENT.id, DOCUMENT.order)

        async def fetch_progress(stage: str) -> tuple[Any, Any]:
            found = await PgDocuments(stack.pool).fetch_document(LOCAL_CALLER, DOCUMENT.id)
            assert found is not None
            [line] = [line for line in found["stages"] if line["stage"] == stage]
            assert found["waiting"]["stage"] == stage
            return line.get("progress"), found["waiting"]["progress"]

        for passed, pages, expected in (
            (0.9, 8, None),
            (0.2, 16, 16),
            (0.5, 24, 16),
            (0.6, 32, 32),
        ):
            now += passed
            await report(pages, 400)
            shown = expected and {"done": expected, "total": 400, "unit": "pages"}
            assert await fetch_progress("transcribe") == (shown, shown)
        await insert_index_rows(stack.connection, DOCUMENT)
        await insert_settled_parts(stack, DOCUMENT, "chunks", "chunked", parts=3, have=3)
        for part, state in ((1, "done"), (2, "done"), (3, "running")):
            await stack.connection.execute(start_job, *key, "embed", part, state)
        parts = {"done": 2, "total": 3, "unit": "parts"}
        assert await fetch_progress("embed") == (parts, parts)
