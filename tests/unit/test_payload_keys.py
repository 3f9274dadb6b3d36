from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from schemas.errors import DatabaseUnavailable, DataErased, MalformedEvent, PermanentError
from schemas.events import (
    DocumentIndexed,
    DocumentRemoved,
    Event,
    EventData,
    EventDeadLettered,
    FeedbackGiven,
    QueryReceived,
)
from schemas.events.dead_letters import LogPosition
from schemas.topics import Position, Record, StoredRecord
from schemas.values import Origin
from streams.cloudevents import SIGNATURE_HEADER, UNSIGNED_EVENT, EventSigner
from streams.codec import Codec
from streams.payload_keys import SealingKeys
from tests.fakes.key_store import MASTER_KEY, MemoryKeyStore

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DOCUMENT, RUN = UUID(int=9), UUID(int=10)


@pytest.fixture
def store() -> MemoryKeyStore:
    return MemoryKeyStore()


@pytest.fixture
def codec(store: MemoryKeyStore) -> Codec:
    return Codec(SealingKeys(store, MASTER_KEY))


def make_removed_event(reason: str, number: int = 1) -> Event[DocumentRemoved]:
    data = DocumentRemoved(
        tenant="t",
        document_id=DOCUMENT,
        order=[1, number],
        origin=Origin(accepted_id=UUID(int=1), event_id="e", source="s"),
        payload_sha256="",
        received_at=NOW,
        reason=reason,
    )
    return Event(
        UUID(int=number), data, "anabranch/receive", str(UUID(int=number)), NOW, "t", DOCUMENT
    )


def make_stored_record(record: Record, topic: str = "accepted") -> StoredRecord:
    return StoredRecord(record, Position(topic, 0, 5), NOW)


async def test_sealed_event_round_trips_without_plaintext(codec: Codec) -> None:
    record = await codec.encode(make_removed_event("canary"), "accepted", "k")
    assert b"canary" not in (record.value or b"")
    back = await codec.decode(make_stored_record(record))
    assert back.data == make_removed_event("canary").data
    assert record.headers["ce_keyid"] == str(back.key).encode()


async def test_events_of_a_document_share_one_key(codec: Codec, store: MemoryKeyStore) -> None:
    records = await asyncio.gather(
        *(codec.encode(make_removed_event("x", number), "accepted", "k") for number in range(1, 9))
    )
    assert len({record.headers["ce_keyid"] for record in records}) == 1
    assert store.call_count == 1, "together"


async def test_destroyed_key_erases_old_events_and_new_key_works(
    codec: Codec, store: MemoryKeyStore
) -> None:
    old = await codec.encode(make_removed_event("old"), "accepted", "k")
    await store.destroy("t", await store.fetch_current_ids("t", [DOCUMENT]))
    with pytest.raises(DataErased):
        await Codec(SealingKeys(store, MASTER_KEY)).decode(make_stored_record(old))
    new = await codec.encode(make_removed_event("new"), "accepted", "k")
    assert (await codec.decode(make_stored_record(new))).data.reason == "new"


async def test_derived_event_of_erased_cause_is_not_sealed(
    codec: Codec, store: MemoryKeyStore
) -> None:
    cause = await codec.decode(
        make_stored_record(await codec.encode(make_removed_event("old"), "accepted", "k"))
    )
    await store.destroy("t", [cause.key or UUID(int=0)])
    with pytest.raises(DataErased):
        await Codec(SealingKeys(store, MASTER_KEY)).encode(
            replace(make_removed_event("derived"), key=cause.key), "accepted", "k"
        )


async def test_payload_is_bound_to_its_event(codec: Codec) -> None:
    first, second = [
        await codec.encode(make_removed_event("x", number), "accepted", "k") for number in (1, 2)
    ]
    with pytest.raises(PermanentError, match="changed"):
        await codec.decode(make_stored_record(replace(first, value=second.value)))


async def test_payload_is_bound_to_topic_and_tenant(codec: Codec) -> None:
    record = await codec.encode(make_removed_event("x"), "accepted", "k")
    assert (await codec.decode(make_stored_record(record))).data.reason == "x"
    moved = replace(record, headers={**record.headers, "ce_tenant": b"other"})
    for stored in (make_stored_record(record, "accepted.g2"), make_stored_record(moved)):
        with pytest.raises(PermanentError, match="changed"):
            await codec.decode(stored)


async def test_payload_sealed_by_older_version_opens(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "streams.codec._build_sealing_context",
        lambda identity, event_type, tenant, topic: f"{identity} {event_type}".encode(),
    )
    record = await codec.encode(make_removed_event("old"), "accepted", "k")
    monkeypatch.undo()
    assert (await codec.decode(make_stored_record(record))).data.reason == "old"


async def test_wrong_master_key_opens_nothing(codec: Codec, store: MemoryKeyStore) -> None:
    record = await codec.encode(make_removed_event("x"), "accepted", "k")
    with pytest.raises(PermanentError, match="master key"):
        await Codec(SealingKeys(store, os.urandom(32))).decode(make_stored_record(record))


async def test_batch_fetches_keys_once_and_only_erased_record_fails(store: MemoryKeyStore) -> None:
    records = []
    for number in range(1, 6):
        event = make_removed_event(f"of {number}", number)
        event = replace(
            event,
            data=event.data.model_copy(update={"document_id": UUID(int=number)}),
            document_id=UUID(int=number),
        )
        records.append(
            make_stored_record(
                await Codec(SealingKeys(store, MASTER_KEY)).encode(event, "accepted", "k")
            )
        )
    await store.destroy("t", await store.fetch_current_ids("t", [UUID(int=3)]))
    reader = Codec(SealingKeys(store, MASTER_KEY))
    store.call_count = 0
    await reader.prefetch_keys(records)
    assert [
        (await reader.decode(record)).data.reason for record in records if record is not records[2]
    ] == ["of 1", "of 2", "of 4", "of 5"]
    assert store.call_count == 1, "together"
    with pytest.raises(DataErased):
        await reader.decode(records[2])


async def test_lost_key_error_mentions_backup(codec: Codec, store: MemoryKeyStore) -> None:
    record = await codec.encode(make_removed_event("x"), "accepted", "k")
    store.keys.clear()
    with pytest.raises(PermanentError) as raised:
        await Codec(SealingKeys(store, MASTER_KEY)).decode(make_stored_record(record))
    assert "backup" in raised.value.remedy


async def test_key_store_outage_fails_all_waiting_calls(
    codec: Codec, store: MemoryKeyStore
) -> None:
    store.unavailable = True
    answers = await asyncio.gather(
        *(codec.encode(make_removed_event("x", number), "accepted", "k") for number in (1, 2)),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 2
    store.unavailable = False
    assert (await codec.encode(make_removed_event("x"), "accepted", "k")).value


async def test_outcome_events_are_not_sealed(codec: Codec) -> None:
    data = DocumentIndexed(tenant="t", document_id=DOCUMENT)
    event = Event(UUID(int=1), data, "a", str(UUID(int=1)), NOW, "t", DOCUMENT)
    record = await codec.encode(event, "outcomes", "k")
    assert str(DOCUMENT).encode() in (record.value or b"")


def make_feedback(run_id: UUID | None) -> FeedbackGiven:
    return FeedbackGiven(
        feedback_id=UUID(int=8), tenant="t", given_at=NOW, run_id=run_id, note="canary"
    )


@pytest.mark.parametrize(
    ("data", "subject"),
    [
        (
            QueryReceived(
                run_id=RUN, tenant="t", kind="query", request={"query": "canary"}, received_at=NOW
            ),
            RUN,
        ),
        (make_feedback(RUN), RUN),
        (make_feedback(None), UUID(int=8)),
        (
            EventDeadLettered(
                stage="receive",
                event_id=RUN,
                tenant="t",
                position=LogPosition(topic="raw", partition=0, offset=1),
                code="BAD",
                detail="canary",
            ),
            RUN,
        ),
    ],
    ids=["a query", "feedback on a run", "feedback on none", "a dead letter without document"],
)
async def test_event_without_document_is_sealed_with_key_of_its_subject(
    codec: Codec, store: MemoryKeyStore, data: EventData, subject: UUID
) -> None:
    event = Event(UUID(int=1), data, "a", str(UUID(int=1)), NOW, "t")
    record = await codec.encode(event, data.topic, "k")
    assert b"canary" not in (record.value or b"")
    assert [key.subject for key in store.keys.values()] == [subject]
    assert await store.fetch_current_ids("t", [subject]) == [
        UUID(record.headers["ce_keyid"].decode())
    ]


async def test_tenant_may_disable_sealing_and_read_sealed_events(
    codec: Codec, store: MemoryKeyStore
) -> None:
    sealed = await codec.encode(make_removed_event("x"), "accepted", "k")
    plain = Codec(SealingKeys(store, MASTER_KEY, is_plaintext_tenant=lambda tenant: tenant == "t"))
    assert b"canary" in (
        (await plain.encode(make_removed_event("canary"), "accepted", "k")).value or b""
    )
    assert (await plain.decode(make_stored_record(sealed))).data.reason == "x"


async def test_key_id_of_foreign_producer_is_ignored(codec: Codec) -> None:
    headers = {
        "ce_specversion": b"1.0",
        "ce_id": b"e",
        "ce_source": b"s",
        "ce_type": b"document.withdrawn.v1",
        "ce_keyid": b"none",
    }
    assert (
        await codec.decode(
            make_stored_record(Record("raw", None, b'{"external_id": "a"}', headers), "raw")
        )
    ).key is None
    with pytest.raises(MalformedEvent, match="ce_keyid"):
        await codec.decode(
            make_stored_record(
                Record("accepted", None, b"{}", {**headers, "ce_type": b"document.accepted.v1"})
            )
        )


@pytest.mark.parametrize(
    "carried", ["order canary 7", "00-canary", ""], ids=["words", "half a trace", "none"]
)
async def test_free_text_in_trace_attributes_is_sealed(codec: Codec, carried: str) -> None:
    event = replace(
        make_removed_event("x"), correlation_id=carried or None, traceparent=carried or None
    )
    record = await codec.encode(event, "accepted", "k")
    assert not any(b"canary" in value for value in record.headers.values())
    back = await codec.decode(make_stored_record(record))
    assert (back.correlation_id, back.traceparent) == (event.correlation_id, event.traceparent)


async def test_valid_correlation_and_trace_ids_stay_readable(codec: Codec) -> None:
    trace = f"00-{'4bf92f35' * 4}-{'00f067aa' * 2}-01"
    record = await codec.encode(
        replace(make_removed_event("x"), correlation_id=str(RUN), traceparent=trace),
        "accepted",
        "k",
    )
    assert (record.headers["ce_correlationid"], record.headers["ce_traceparent"]) == (
        str(RUN).encode(),
        trace.encode(),
    )
    assert "ce_sealedids" not in record.headers


def make_signing_codec(store: MemoryKeyStore, plaintext_tenant: str = "") -> Codec:
    keys = SealingKeys(
        store, MASTER_KEY, is_plaintext_tenant=lambda tenant: tenant == plaintext_tenant
    )
    return Codec(keys, signer=EventSigner([b"a" * 32]))


@pytest.mark.parametrize("plaintext_tenant", ["", "t"])
@pytest.mark.parametrize("correlation_id", [None, str(UUID(int=3)), "Mr. Smith's order"])
async def test_codec_decodes_its_own_record_as_another_process_does(
    store: MemoryKeyStore, plaintext_tenant: str, correlation_id: str | None
) -> None:
    writer = make_signing_codec(store, plaintext_tenant)
    event = replace(
        make_removed_event("expired"),
        pipeline_fingerprint="abc",
        causation_id=UUID(int=2),
        correlation_id=correlation_id,
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    )
    record = make_stored_record(await writer.encode(event, "accepted", "k"))
    decoded = await writer.decode(record)
    assert decoded == await make_signing_codec(store).decode(record)
    assert decoded.data == event.data
    assert decoded.position == record.position


@pytest.mark.parametrize("change", ["payload", "attribute", "topic", "signature"])
async def test_codec_refuses_its_own_record_after_a_change(
    store: MemoryKeyStore, change: str
) -> None:
    writer = make_signing_codec(store)
    record = await writer.encode(make_removed_event("expired"), "accepted", "k")
    assert await writer.decode(make_stored_record(record))
    headers, topic = dict(record.headers), "accepted"
    match change:
        case "payload":
            record = replace(record, value=(record.value or b"") + b" ")
        case "attribute":
            headers["ce_document"] = str(UUID(int=11)).encode()
        case "topic":
            topic = "accepted_g2"
        case "signature":
            del headers[SIGNATURE_HEADER]
    with pytest.raises(PermanentError) as caught:
        await writer.decode(make_stored_record(replace(record, headers=headers), topic))
    assert caught.value.code == UNSIGNED_EVENT
