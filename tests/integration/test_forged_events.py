"""Events of a broker client without the master key are dead-lettered on all topics but `raw`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from anabranch.composition.storage import recover_database
from anabranch.composition.worker import prepare_worker
from anabranch.config.settings import Settings
from schemas.errors import PermanentError
from schemas.events import Content, DocumentReceived, GenerationPromoted, build_root_event
from schemas.ids import content_id
from schemas.topics import Position, Record, StoredRecord
from streams.cloudevents import SIGNATURE_HEADER, EventSigner
from streams.codec import Codec
from streams.publisher import build_raw_record
from tests.support.database_copies import copy_keys, copy_log
from tests.support.log_backends import long_on_kafka, on_both_logs
from tests.support.pipeline import EVENT_TIME, Pipeline, null_overrides, run_pipeline

ATTACK_EPOCH = 9_223_372_036_854_775_806


def make_forged_record(
    topic: str, event_type: str, data: Mapping[str, Any], **attributes: str
) -> Record:
    """Make a record as any Kafka client can write it."""
    ce_attributes = {
        "specversion": "1.0",
        "id": str(uuid4()),
        "source": "anabranch/receive",
        "type": event_type,
        **attributes,
    }
    headers = {f"ce_{name}": value.encode() for name, value in ce_attributes.items()} | {
        "content-type": b"application/json"
    }
    return Record(
        topic, attributes.get("document", "k").encode(), json.dumps(data).encode(), headers
    )


@pytest.fixture
async def at_work(settings: Settings, database: str, tmp_path: Path) -> AsyncIterator[Pipeline]:
    async with run_pipeline(tmp_path, database, settings=settings) as at_work:
        yield at_work


async def append_and_fetch_codes(at_work: Pipeline, *records: Record) -> list[str]:
    """Append records, wait until all is idle and return the codes of the dead letters."""
    await at_work.worker.storage.log.append(records)
    await at_work.wait_until_idle()
    return [
        row["code"]
        for row in await at_work.pool.fetch(
            "select code from dead_letters group by event_id, code order by code"
        )
    ]


async def fetch_document(at_work: Pipeline, name: str) -> Any:
    return await at_work.pool.fetchrow(
        "select id, blob, source, withdrawn, latest from documents where external_id = $1", name
    )


async def fetch_visible_ids(at_work: Pipeline) -> set[str]:
    rows = await at_work.pool.fetch(
        "select external_id from visible join documents on id = document_id"
    )
    return {row["external_id"] for row in rows}


def make_accepted_payload(
    document: Any, name: str, identity: UUID, tenant: str = "default"
) -> dict[str, Any]:
    origin = {"accepted_id": str(uuid4()), "event_id": "x", "source": "evil", "external_id": name}
    return {
        "tenant": tenant,
        "document_id": str(identity),
        "order": [1, 1],
        "origin": origin,
        "external_id": name,
        "blob": document["blob"],
        "media_type": "text/plain",
        "payload_sha256": "0",
        "received_at": "2026-01-01T00:00:00Z",
    }


@long_on_kafka
async def test_unsigned_acceptance_of_foreign_blob_is_rejected(at_work: Pipeline) -> None:
    await at_work.push_and_wait({"secret": "The password of the vault."})
    victim, identity = await fetch_document(at_work, "secret"), uuid4()
    record = make_forged_record(
        "accepted",
        "document.accepted.v1",
        make_accepted_payload(victim, "mine", identity),
        tenant="default",
        document=str(identity),
    )
    assert await append_and_fetch_codes(at_work, record) == ["UNSIGNED_EVENT"]
    assert await fetch_visible_ids(at_work) == {"secret"}


@on_both_logs
async def test_forged_key_destruction_is_ignored(
    at_work: Pipeline, settings: Settings, database: str
) -> None:
    """Ignore it when it arrives and when a starting process reads key destructions."""
    await at_work.push_and_wait({"a": "Herons wait."})
    [key] = await at_work.pool.fetch(
        "select id from keystore.keys where subject = (select id from documents "
        "where external_id = 'a')"
    )
    data = {"receipt_id": str(uuid4()), "tenant": "default", "keys": [str(key["id"])]}
    assert await append_and_fetch_codes(
        at_work, make_forged_record("control", "key.destroyed.v1", data)
    ) == ["UNSIGNED_EVENT"]
    async with prepare_worker(settings, database, overrides=null_overrides()):
        assert (
            await at_work.pool.fetchval("select count(*) from keystore.keys where wrapped is null")
            == 0
        )


@on_both_logs
async def test_forged_newer_version_does_not_pause_partition(at_work: Pipeline) -> None:
    records = [
        make_forged_record("accepted", "document.accepted.v99", {}, document=str(uuid4())),
        make_forged_record("control", "erasure.requested.v99", {}),
        make_forged_record("control", "generation.promoted.v1", {"generation": "g1"}),
        make_forged_record("outcomes", "document.indexed.v99", {}),
    ]
    assert await append_and_fetch_codes(at_work, *records) == ["UNSIGNED_EVENT"] * 3, (
        "no consumer reads outcomes here"
    )
    await at_work.push_and_wait({"a": "Herons wait."})
    assert await fetch_visible_ids(at_work) == {"a"}


@long_on_kafka
async def test_changes_of_another_source_are_rejected_at_any_epoch(at_work: Pipeline) -> None:
    await at_work.push_and_wait({"a": "Herons wait."})
    document = await fetch_document(at_work, "a")
    attributes = {"source": "evil", "sequence": "1", "sequenceepoch": str(ATTACK_EPOCH)}
    for named in ({"document_id": str(document["id"])}, {"external_id": "a"}):
        await append_and_fetch_codes(
            at_work, make_forged_record("raw", "document.withdrawn.v1", named, **attributes)
        )
    forged = {"external_id": "a", "content": {"text": "forged"}}
    named = {"document_id": str(document["id"])}
    codes = await append_and_fetch_codes(
        at_work,
        make_forged_record("raw", "document.received.v1", forged, **attributes),
        make_forged_record("raw", "document.received.v1", forged, source="evil"),
        make_forged_record("raw", "document.withdrawn.v1", named, source="evil", sequence="1"),
    )
    assert codes == [*["FORBIDDEN_SEQUENCE"] * 3, *["FOREIGN_DOCUMENT"] * 2]
    await at_work.push_and_wait({"a": "Herons go on waiting."})
    assert await fetch_visible_ids(at_work) == {"a"}
    document = await fetch_document(at_work, "a")
    assert document["source"] == "test" and document["latest"][0] < ATTACK_EPOCH


async def test_reserved_source_names_cannot_be_claimed(at_work: Pipeline) -> None:
    data = {"external_id": "a", "content": {"text": "forged"}}
    records = [
        make_forged_record("raw", "document.received.v1", data, source=source)
        for source in ("anabranch/api", "anabranch/source/crm")
    ]
    stolen = make_forged_record(
        "raw", "document.received.v1", data, source="anabranch/api", signature="Zm9yZ2Vk"
    )
    assert await append_and_fetch_codes(at_work, *records, stolen) == ["FORGED_SOURCE"] * 3


async def test_tampered_signed_event_is_rejected(at_work: Pipeline) -> None:
    """Change the payload, the topic, the type or the document of a signed event."""
    codec = at_work.worker.storage.codec
    fact = build_root_event(
        GenerationPromoted(generation="g1"), uuid4(), "anabranch/x", lambda: EVENT_TIME
    )
    record = await codec.encode(fact, "control", "g1")
    changed = [
        replace(record, value=b'{"generation": "g2"}'),
        replace(record, topic="queries"),
        replace(record, headers={**record.headers, "ce_type": b"generation.dropped.v1"}),
        replace(record, headers={**record.headers, "ce_document": b"generation.dropped.v1"}),
    ]
    assert await append_and_fetch_codes(at_work, *changed) == ["UNSIGNED_EVENT"] * 4


async def test_copied_decision_is_not_applied_again(at_work: Pipeline) -> None:
    """The copy's signature is valid; the first one's inbox row, which never expires, rejects it."""
    codec, storage = at_work.worker.storage.codec, at_work.worker.storage
    first = await codec.encode(
        build_root_event(
            GenerationPromoted(generation="g1"),
            content_id("promotion", 1),
            "anabranch/x",
            lambda: EVENT_TIME,
        ),
        "control",
        "g1",
    )
    await append_and_fetch_codes(at_work, first)
    decided = await at_work.pool.fetchval("select decided_at from live_generation")
    for _ in range(3):
        assert await append_and_fetch_codes(at_work, first) == []
        await storage.pool.execute("delete from inbox where stage = 'transcribe'")
    assert await at_work.pool.fetchval("select decided_at from live_generation") == decided


async def test_signed_blob_of_another_document_is_rejected(at_work: Pipeline) -> None:
    """A blob is bound to tenant and document even in an event with a valid signature."""
    await at_work.push_and_wait({"secret": "The password of the vault."})
    victim, identity, codec = (
        await fetch_document(at_work, "secret"),
        uuid4(),
        at_work.worker.storage.codec,
    )
    record = make_forged_record(
        "accepted",
        "document.accepted.v1",
        make_accepted_payload(victim, "mine", identity, "other"),
        tenant="other",
        document=str(identity),
    )
    assert codec.signer is not None
    signature = codec.signer.sign(record.topic, record.value or b"", record.headers)
    signed = replace(record, headers={**record.headers, SIGNATURE_HEADER: signature})
    assert await append_and_fetch_codes(at_work, signed) == ["FOREIGN_BLOB"]


async def test_rebuild_ignores_forged_decisions_and_keeps_owners(
    database: str, other_database: str, tmp_path: Path
) -> None:
    owned = "select external_id, o.source from document_owners o join documents on id = document_id"
    async with run_pipeline(tmp_path, database) as at_work:
        await at_work.push_and_wait({"a": "Herons wait.", "b": "Larks sing."})
        key = await at_work.pool.fetchval(
            "select id from keystore.keys where subject = (select id from documents "
            "where external_id = 'a')"
        )
        await append_and_fetch_codes(
            at_work,
            make_forged_record(
                "control",
                "key.destroyed.v1",
                {"receipt_id": str(uuid4()), "tenant": "default", "keys": [str(key)]},
            ),
            make_forged_record("control", "generation.created.v99", {}),
        )
    await copy_log(database, other_database)
    await copy_keys(database, other_database)
    assert await recover_database(Settings(data_dir=tmp_path), other_database) is not None
    async with run_pipeline(tmp_path, other_database) as at_work:
        await at_work.wait_until_idle()
        assert await fetch_visible_ids(at_work) == {"a", "b"}
        assert {tuple(row) for row in await at_work.pool.fetch(owned)} == {
            ("a", "test"),
            ("b", "test"),
        }
        assert "FOREIGN_DOCUMENT" in await append_and_fetch_codes(
            at_work,
            make_forged_record("raw", "document.withdrawn.v1", {"external_id": "a"}, source="evil"),
        )


async def test_log_from_version_without_signatures_continues(
    settings: Settings, database: str, tmp_path: Path
) -> None:
    """Accept the unsigned events of before the first start and no later ones."""
    async with run_pipeline(tmp_path, database, settings=settings) as at_work:
        await at_work.push_and_wait({"a": "Herons wait."})
        await at_work.pool.execute("update events set headers = headers - 'ce_signature'")
        await at_work.pool.execute("delete from keystore.unsigned_events")
    async with run_pipeline(tmp_path, database, settings=settings) as at_work:
        storage = at_work.worker.storage
        assert [
            fact.data.generation.name
            async for fact in _read_events(storage.codec, storage, "control")
        ] == ["g1"]
        assert await append_and_fetch_codes(
            at_work, make_forged_record("control", "generation.promoted.v1", {"generation": "g1"})
        ) == ["UNSIGNED_EVENT"]
        with pytest.raises(PermanentError, match="has no signature"):
            [fact async for fact in _read_events(storage.codec, storage, "control")]


async def _read_events(codec: Codec, storage: Any, topic: str) -> AsyncIterator[Any]:
    async for stored in storage.log.read(topic):
        yield await codec.decode(stored)


async def test_unsigned_event_boundary_cannot_be_moved(
    settings: Settings, database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, settings=settings) as at_work:
        await at_work.pool.execute(
            "update keystore.unsigned_events set below = $1", b'{"control":{"0":999}}'
        )
    with pytest.raises(Exception, match="unsigned_events does not match"):
        async with prepare_worker(settings, database, overrides=null_overrides()):
            pass


async def test_signature_of_another_master_key_is_invalid() -> None:
    ours, theirs = EventSigner([b"a" * 32]), EventSigner([b"b" * 32])
    data = DocumentReceived(external_id="a", content=Content(text="x"))
    record = await build_raw_record(data, "e", time=EVENT_TIME, codec=Codec(signer=theirs))
    stored = StoredRecord(record, Position("raw", 0, 0), EVENT_TIME)
    assert [one.verify(stored) for one in (ours, theirs, EventSigner([b"a" * 32, b"b" * 32]))] == [
        False,
        True,
        True,
    ]
    assert not (await Codec(signer=ours).decode(stored)).is_ours
