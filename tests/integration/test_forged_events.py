"""Attacks by somebody who may write on the broker and has no master key: on every topic but `raw` it is dead-lettered, and nothing follows from it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from anabranch.background.recovery import recover
from anabranch.composition.worker import prepare_worker
from anabranch.settings import Settings
from schemas.errors import PermanentError
from schemas.events import Content, DocumentReceived, GenerationPromoted
from schemas.ids import content_id
from schemas.records import Position, Record, StoredRecord
from streams.codec import Codec
from streams.publisher import own_fact
from streams.signatures import SIGNATURE, Signatures
from streams.submission import submission
from tests.both_logs import on_both_logs
from tests.integration.test_recovery import copy_keys, copy_log
from tests.pipeline import TIME, Pipeline, null_overrides, pipeline, settings

__all__ = ["settings"]

EPOCH_OF_THE_ATTACK = 9_223_372_036_854_775_806


def forged(topic: str, event_type: str, data: Mapping[str, Any], **attributes: str) -> Record:
    """As any Kafka client writes it."""
    told = {"specversion": "1.0", "id": str(uuid4()), "source": "anabranch/receive", "type": event_type, **attributes}
    headers = {f"ce_{name}": value.encode() for name, value in told.items()} | {"content-type": b"application/json"}
    return Record(topic, attributes.get("document", "k").encode(), json.dumps(data).encode(), headers)


@pytest.fixture
async def at_work(settings: Settings, database: str, tmp_path: Path) -> AsyncIterator[Pipeline]:
    async with pipeline(tmp_path, database, settings=settings) as at_work:
        yield at_work


async def send(at_work: Pipeline, *records: Record) -> list[str]:
    """Codes of dead letters once everything is settled."""
    await at_work.worker.storage.log.append(records)
    await at_work.quiet()
    return [row["code"] for row in await at_work.pool.fetch("select code from dead_letters group by event_id, code order by code")]


async def document_of(at_work: Pipeline, name: str) -> Any:
    return await at_work.pool.fetchrow("select id, blob, source, withdrawn, latest from documents where external_id = $1", name)


async def visible(at_work: Pipeline) -> set[str]:
    rows = await at_work.pool.fetch("select external_id from visible join documents on id = document_id")
    return {row["external_id"] for row in rows}


def accepted(document: Any, name: str, identity: UUID, tenant: str = "default") -> dict[str, Any]:
    origin = {"accepted_id": str(uuid4()), "event_id": "x", "source": "evil", "external_id": name}
    return {
        "tenant": tenant, "document_id": str(identity), "order": [1, 1], "origin": origin, "external_id": name, "blob": document["blob"], "media_type": "text/plain",
        "payload_sha256": "0", "received_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip


@on_both_logs
async def test_clear_acceptance_of_another_documents_bytes_is_refused(at_work: Pipeline) -> None:
    await at_work.fill({"secret": "The password of the vault."})
    victim, identity = await document_of(at_work, "secret"), uuid4()
    record = forged("accepted", "document.accepted.v1", accepted(victim, "mine", identity), tenant="default", document=str(identity))
    assert await send(at_work, record) == ["UNSIGNED_EVENT"]
    assert await visible(at_work) == {"secret"}


@on_both_logs
async def test_forged_destruction_of_a_key_destroys_nothing(at_work: Pipeline, settings: Settings, database: str) -> None:
    """Neither when it comes nor when a process starts and reads what was destroyed."""
    await at_work.fill({"a": "Herons wait."})
    [key] = await at_work.pool.fetch("select id from keystore.keys where subject = (select id from documents where external_id = 'a')")
    data = {"receipt_id": str(uuid4()), "tenant": "default", "keys": [str(key["id"])]}
    assert await send(at_work, forged("control", "key.destroyed.v1", data)) == ["UNSIGNED_EVENT"]
    async with prepare_worker(settings, database, overrides=null_overrides()):
        assert await at_work.pool.fetchval("select count(*) from keystore.keys where wrapped is null") == 0


@on_both_logs
async def test_forged_newer_versions_stop_no_partition(at_work: Pipeline) -> None:
    records = [
        forged("accepted", "document.accepted.v99", {}, document=str(uuid4())),
        forged("control", "erasure.requested.v99", {}),
        forged("control", "generation.promoted.v1", {"generation": "g1"}),
        forged("outcomes", "document.indexed.v99", {}),
    ]
    assert await send(at_work, *records) == ["UNSIGNED_EVENT"] * 3, "nobody reads outcomes here"
    await at_work.fill({"a": "Herons wait."})
    assert await visible(at_work) == {"a"}


@on_both_logs
async def test_withdrawal_with_a_huge_epoch_leaves_the_document(at_work: Pipeline) -> None:
    await at_work.fill({"a": "Herons wait."})
    document = await document_of(at_work, "a")
    attributes = {"source": "evil", "sequence": "1", "sequenceepoch": str(EPOCH_OF_THE_ATTACK)}
    for named in ({"document_id": str(document["id"])}, {"external_id": "a"}):
        await send(at_work, forged("raw", "document.withdrawn.v1", named, **attributes))
    codes = await send(at_work, forged("raw", "document.withdrawn.v1", {"document_id": str(document["id"])}, source="evil", sequence="1"))
    assert codes == ["FORBIDDEN_SEQUENCE", "FORBIDDEN_SEQUENCE", "FOREIGN_DOCUMENT"]
    await at_work.fill({"a": "Herons go on waiting."})
    assert await visible(at_work) == {"a"}


async def test_text_under_the_source_of_another_producer_with_a_huge_epoch_is_refused(at_work: Pipeline) -> None:
    data = {"external_id": "a", "content": {"text": "forged"}}
    numbers = {"source": "crm", "sequence": "6"}
    honest = forged("raw", "document.received.v1", data | {"content": {"text": "Herons wait."}}, **numbers)
    assert await send(at_work, honest, forged("raw", "document.received.v1", data, **numbers, sequenceepoch=str(EPOCH_OF_THE_ATTACK))) == ["FORBIDDEN_SEQUENCE"]
    later = forged("raw", "document.received.v1", data | {"content": {"text": "Herons fly."}}, source="crm", sequence="7")
    await send(at_work, later)
    assert await at_work.pool.fetchval("select latest from documents where external_id = 'a'") == [1, 7, 0]


@on_both_logs
async def test_same_external_id_of_another_source_overwrites_nothing(at_work: Pipeline) -> None:
    await at_work.fill({"a": "Herons wait."})
    data = {"external_id": "a", "content": {"text": "forged"}}
    assert await send(at_work, forged("raw", "document.received.v1", data, source="evil")) == ["FOREIGN_DOCUMENT"]
    assert (await document_of(at_work, "a"))["source"] == "test"


async def test_names_of_own_sources_cannot_be_claimed(at_work: Pipeline) -> None:
    data = {"external_id": "a", "content": {"text": "forged"}}
    records = [forged("raw", "document.received.v1", data, source=source) for source in ("anabranch/api", "anabranch/source/crm")]
    stolen = forged("raw", "document.received.v1", data, source="anabranch/api", signature="Zm9yZ2Vk")
    assert await send(at_work, *records, stolen) == ["FORGED_SOURCE"] * 3


@pytest.mark.parametrize("tamper", ["value", "ce_type", "ce_document", "topic"])
async def test_signed_event_that_was_changed_is_refused(at_work: Pipeline, tamper: str) -> None:
    """A payload of a tenant in the clear, another type, another document, another topic."""
    codec = at_work.worker.storage.codec
    fact = own_fact(GenerationPromoted(generation="g1"), uuid4(), "anabranch/x", lambda: TIME)
    record = await codec.encode(fact, "control", "g1")
    changes = {
        "value": Record(record.topic, record.key, b'{"generation": "g2"}', record.headers),
        "topic": Record("queries", record.key, record.value, record.headers),
    }
    changed = changes.get(tamper) or Record(record.topic, record.key, record.value, {**record.headers, tamper: b"generation.dropped.v1"})
    assert set(await send(at_work, changed)) == {"UNSIGNED_EVENT"}


async def test_copied_decision_is_not_applied_again(at_work: Pipeline) -> None:
    """Its signature is ours: the claim of the first one, which is kept for ever, makes it a repeat."""
    codec, storage = at_work.worker.storage.codec, at_work.worker.storage
    first = await codec.encode(own_fact(GenerationPromoted(generation="g1"), content_id("promotion", 1), "anabranch/x", lambda: TIME), "control", "g1")
    await send(at_work, first)
    decided = await at_work.pool.fetchval("select decided_at from live_generation")
    for _ in range(3):
        assert await send(at_work, first) == []
        await storage.pool.execute("delete from handled where stage = 'transcribe'")
    assert await at_work.pool.fetchval("select decided_at from live_generation") == decided


async def test_signed_blob_of_another_document_is_refused(at_work: Pipeline) -> None:
    """Bound to tenant and document also where a program of ours would err."""
    await at_work.fill({"secret": "The password of the vault."})
    victim, identity, codec = await document_of(at_work, "secret"), uuid4(), at_work.worker.storage.codec
    record = forged("accepted", "document.accepted.v1", accepted(victim, "mine", identity, "other"), tenant="other", document=str(identity))
    assert codec.signatures is not None
    signed = Record(
        record.topic, record.key, record.value, {**record.headers, SIGNATURE: codec.signatures.sign(record.topic, record.value or b"", record.headers)}
    )
    assert await send(at_work, signed) == ["FOREIGN_BLOB"]


async def test_rebuild_applies_no_forged_decision_and_keeps_owners(database: str, other_database: str, tmp_path: Path) -> None:
    owned = "select external_id, o.source from document_owners o join documents on id = document_id"
    async with pipeline(tmp_path, database) as at_work:
        await at_work.fill({"a": "Herons wait.", "b": "Larks sing."})
        key = await at_work.pool.fetchval("select id from keystore.keys where subject = (select id from documents where external_id = 'a')")
        await send(
            at_work,
            forged("control", "key.destroyed.v1", {"receipt_id": str(uuid4()), "tenant": "default", "keys": [str(key)]}),
            forged("control", "generation.created.v99", {}),
        )
    await copy_log(database, other_database)
    await copy_keys(database, other_database)
    assert await recover(Settings(data_dir=tmp_path), other_database) is not None
    async with pipeline(tmp_path, other_database) as at_work:
        await at_work.quiet()
        assert await visible(at_work) == {"a", "b"}
        assert {tuple(row) for row in await at_work.pool.fetch(owned)} == {("a", "test"), ("b", "test")}
        assert "FOREIGN_DOCUMENT" in await send(at_work, forged("raw", "document.withdrawn.v1", {"external_id": "a"}, source="evil"))


async def test_log_of_a_version_without_signatures_goes_on(settings: Settings, database: str, tmp_path: Path) -> None:
    """What it held at the first start is accepted, what comes unsigned after that is not."""
    async with pipeline(tmp_path, database, settings=settings) as at_work:
        await at_work.fill({"a": "Herons wait."})
        await at_work.pool.execute("update events set headers = headers - 'ce_signature'")
        await at_work.pool.execute("delete from keystore.unsigned_events")
    async with pipeline(tmp_path, database, settings=settings) as at_work:
        storage = at_work.worker.storage
        assert [fact.data.generation.name async for fact in _facts(storage.codec, storage, "control")] == ["g1"]
        assert await send(at_work, forged("control", "generation.promoted.v1", {"generation": "g1"})) == ["UNSIGNED_EVENT"]
        with pytest.raises(PermanentError, match="without a signature"):
            [fact async for fact in _facts(storage.codec, storage, "control")]


async def _facts(codec: Codec, storage: Any, topic: str) -> AsyncIterator[Any]:
    async for stored in storage.log.read(topic):
        yield await codec.decode(stored)


async def test_boundary_of_unsigned_events_cannot_be_moved_in_the_table(settings: Settings, database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, settings=settings) as at_work:
        await at_work.pool.execute("update keystore.unsigned_events set below = $1", b'{"control":{"0":999}}')
    with pytest.raises(Exception, match="unsigned_events does not match"):
        async with prepare_worker(settings, database, overrides=null_overrides()):
            pass


async def test_signature_of_another_master_key_is_not_ours() -> None:
    ours, theirs = Signatures([b"a" * 32]), Signatures([b"b" * 32])
    data = DocumentReceived(external_id="a", content=Content(text="x"))
    record = await submission(data, "e", time=TIME, codec=Codec(signatures=theirs))
    stored = StoredRecord(record, Position("raw", 0, 0), TIME)
    assert [one.verify(stored) for one in (ours, theirs, Signatures([b"a" * 32, b"b" * 32]))] == [False, True, True]
    assert not (await Codec(signatures=ours).decode(stored)).ours
