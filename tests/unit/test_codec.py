from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any, get_args
from uuid import UUID

import pytest
from pydantic import BaseModel

from schemas.errors import MalformedEvent, NewerVersion
from schemas.events import (
    Content,
    DocumentChunked,
    DocumentIndexed,
    DocumentReceived,
    Event,
    EventData,
    list_event_classes,
)
from schemas.ids import make_received_id
from schemas.topics import OUTCOMES, Position, Record, StoredRecord
from streams.codec import Codec
from streams.dead_letters import guess_producer_attributes, guess_text, resolve_tenant
from streams.publisher import build_raw_record

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PAYLOAD = {"external_id": "contract-17", "content": {"text": "hello"}}
BODY = json.dumps(PAYLOAD).encode()
HEADERS = {
    "ce_specversion": b"1.0",
    "ce_id": b"e1",
    "ce_source": b"shop",
    "ce_type": b"document.received.v1",
    "content-type": b"application/json",
}

ENVELOPE: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e1",
    "source": "shop",
    "type": "document.received.v1",
}
STRUCTURED = {"Content-Type": b"application/cloudevents+json; charset=utf-8"}


def make_stored_record(
    value: bytes | None, headers: dict[str, bytes], topic: str = "raw"
) -> StoredRecord:
    return StoredRecord(Record(topic, None, value, headers), Position(topic, 3, 41), NOW)


def make_structured_record(**change: Any) -> StoredRecord:
    envelope = ENVELOPE | {"data": PAYLOAD} | change
    return make_stored_record(json.dumps(envelope).encode(), STRUCTURED)


async def test_byte_order_mark_is_no_part_of_a_record() -> None:
    plain = await Codec().decode(make_stored_record(BODY, HEADERS))
    structured = make_structured_record()
    for marked in (
        make_stored_record(b"\xef\xbb\xbf" + BODY, HEADERS),
        make_stored_record(b"\xef\xbb\xbf" + (structured.record.value or b""), STRUCTURED),
    ):
        event = await Codec().decode(marked)
        assert (event.data, event.payload_sha256) == (plain.data, plain.payload_sha256)


async def test_binary_and_structured_mode_decode_to_same_event() -> None:
    binary = await Codec().decode(make_stored_record(BODY, HEADERS))
    assert binary == await Codec().decode(make_structured_record())
    assert binary.id == make_received_id("default", "shop", "e1")
    assert binary.data == DocumentReceived(external_id="contract-17", content=Content(text="hello"))


async def test_data_base64_is_decoded_as_payload() -> None:
    payload = base64.b64encode(json.dumps(PAYLOAD, indent=2).encode()).decode()
    envelope = ENVELOPE | {"data_base64": payload}
    assert await Codec().decode(
        make_stored_record(json.dumps(envelope).encode(), STRUCTURED)
    ) == await Codec().decode(make_structured_record())
    for wrong in (
        {"data_base64": "%"},
        {"data_base64": 7},
        {"data_base64": "é"},
        {"data": PAYLOAD},
    ):
        with pytest.raises(MalformedEvent, match="base64"):
            await Codec().decode(
                make_stored_record(json.dumps(envelope | wrong).encode(), STRUCTURED)
            )


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
async def test_empty_attribute_is_reported_missing_in_both_modes(name: str) -> None:
    for record in (
        make_structured_record(**{name: ""}),
        make_stored_record(BODY, HEADERS | {f"ce_{name}": b""}),
    ):
        with pytest.raises(MalformedEvent, match=f"missing.*{name}"):
            await Codec().decode(record)


async def test_lowercase_rfc3339_time_is_accepted() -> None:
    event = await Codec().decode(
        make_stored_record(BODY, HEADERS | {"ce_time": b"2026-03-01t00:00:00z"})
    )
    assert event.time == NOW


async def test_payload_hash_ignores_json_formatting() -> None:
    loose = await Codec().decode(
        make_stored_record(json.dumps(PAYLOAD, indent=3).encode(), HEADERS)
    )
    tight = await Codec().decode(
        make_stored_record(json.dumps(dict(reversed(PAYLOAD.items()))).encode(), HEADERS)
    )
    other = await Codec().decode(
        make_stored_record(json.dumps(PAYLOAD | {"title": "x"}).encode(), HEADERS)
    )
    assert loose.payload_sha256 == tight.payload_sha256 != other.payload_sha256


async def test_internal_event_round_trips() -> None:
    identity = UUID(int=7)
    event = Event(
        identity,
        DocumentIndexed(tenant="t", document_id=UUID(int=9), chunks_count=3),
        "anabranch/index",
        str(identity),
        NOW,
        "t",
        UUID(int=9),
        pipeline_fingerprint="abc",
    )
    record = await Codec().encode(event, "outcomes", "key")
    back = await Codec().decode(StoredRecord(record, Position("outcomes", 0, 5), NOW))
    assert (
        back.id,
        back.data,
        back.time,
        back.tenant,
        back.document_id,
        back.pipeline_fingerprint,
    ) == (identity, event.data, NOW, "t", UUID(int=9), "abc")


async def test_submission_is_a_raw_producer_record() -> None:
    record = await build_raw_record(
        DocumentReceived(external_id="a", content=Content(url="https://example.org/x")),
        "e9",
        time=NOW,
        codec=Codec(),
    )
    assert record.topic == "raw"
    assert record.key == b"a"
    event = await Codec().decode(StoredRecord(record, Position("raw", 0, 0), NOW))
    assert event.event_id == "e9"


@pytest.mark.parametrize(
    ("value", "headers", "complaint"),
    [
        (None, HEADERS, "no value"),
        (b"{}", {}, "ce_specversion, ce_id, ce_source, ce_type"),
        (b"not json", HEADERS, "Invalid JSON"),
        (b"[1]", HEADERS, "object"),
        (b'{"content": {"text": "a"}, "document_date": "soon"}', HEADERS, "document_date"),
        (b'{"external_id": "a"}', HEADERS, "content"),
        (b'{"content": {"text": "a", "url": "b"}}', HEADERS, "exactly one of"),
        (b'{"content": {"text": "a"}, "extern_id": "typo"}', HEADERS, "extern_id"),
        (b"{}", HEADERS | {"ce_type": b"document.eaten.v1"}, "document.received.v1"),
        (b"{}", HEADERS | {"ce_type": b"document.received.v9"}, "newest is v1"),
        (BODY, HEADERS | {"ce_sequence": b"three"}, "ce_sequence 'three'"),
        (BODY, HEADERS | {"ce_sequence": b"-1"}, "ce_sequence -1 is outside"),
        (BODY, HEADERS | {"ce_time": b"yesterday"}, "ce_time 'yesterday'"),
        (BODY, HEADERS | {"ce_source": b"\xff"}, "ce_source is not UTF-8"),
        (BODY, HEADERS | {"ce_id": b"i" * 1025}, "ce_id has 1025 bytes; 1024 are allowed"),
        (BODY, HEADERS | {"ce_sequence": b"1_000"}, "ce_sequence '1_000'"),
        (BODY, HEADERS | {"ce_sequence": "\u0663".encode()}, "is not an integer"),
        (BODY, HEADERS | {"ce_sequence": b"9" * 5000}, "outside 0"),
        (BODY, HEADERS | {"ce_specversion": b"0.3"}, "CloudEvents version '0.3'"),
        (
            b'{"content": {"text": "a"}, "metadata": {"a": NaN}}',
            HEADERS,
            "NaN is not a finite number",
        ),
        (
            b'{"content": {"text": "a"}, "metadata": {"a": -1e999}}',
            HEADERS,
            "-1e999 is not a finite number",
        ),
        (b'{"content": {"text": "a"}, "tenant": "a\\u0000b"}', HEADERS, "use 1 to 64 characters"),
        (b'{"content": {"text": "a"}, "tenant": "a/b"}', HEADERS, "tenant 'a/b'"),
        (b"[" * 100_000, {"content-type": b"application/cloudevents+json"}, "not valid JSON"),
        (b'{"a": ' * 100_000, HEADERS, "Invalid JSON"),
    ],
)
async def test_undecodable_record_is_rejected_with_reason(
    value: bytes | None, headers: dict[str, bytes], complaint: str
) -> None:
    with pytest.raises(MalformedEvent) as caught:
        await Codec().decode(make_stored_record(value, headers))
    assert complaint in caught.value.detail


async def test_newer_event_version_on_internal_topic_raises() -> None:
    headers = HEADERS | {"ce_id": str(UUID(int=1)).encode(), "ce_type": b"document.chunked.v2"}
    with pytest.raises(NewerVersion):
        await Codec().decode(make_stored_record(b"{}", headers, "chunked"))


async def test_generation_topic_is_decoded_like_base_topic() -> None:
    headers = HEADERS | {"ce_id": str(UUID(int=1)).encode(), "ce_type": b"document.indexed.v1"}
    event = await Codec().decode(make_stored_record(b"{}", headers, "outcomes.g2"))
    assert isinstance(event.data, DocumentIndexed)


def test_header_attributes_of_undecodable_record_are_recovered() -> None:
    assert guess_producer_attributes(Record("raw", None, b"\x00", HEADERS)) == (
        "e1",
        "shop",
        "document.received.v1",
    )
    assert guess_producer_attributes(Record("raw", None, b"\x00", {})) == (None, None, None)
    assert (
        guess_producer_attributes(Record("raw", None, b"{}", HEADERS | {"ce_id": b"i" * 2000}))[0]
        == "i" * 1024
    )


@pytest.mark.parametrize("data", [{}, {"data": {"external_id": 7}}, {"data": None}])
def test_attributes_of_partial_structured_event_are_recovered(data: dict[str, Any]) -> None:
    record = Record(
        "raw",
        None,
        json.dumps({"id": "e1", "source": "shop", "type": 7} | data).encode(),
        {"content-type": b"application/cloudevents+json"},
    )
    assert guess_producer_attributes(record) == ("e1", "shop", None)
    assert guess_text(record, "external_id") is None


def test_external_id_is_recovered_from_invalid_payload() -> None:
    assert (
        guess_text(
            Record("raw", None, b'{"external_id": "a", "content": 7}', HEADERS), "external_id"
        )
        == "a"
    )
    assert (
        guess_text(Record("raw", None, b'{"data": {"external_id": "b"}}', {}), "external_id") == "b"
    )
    assert (
        guess_text(
            Record("raw", None, b'{"external_id": "c", "metadata": {"a": NaN}}', HEADERS),
            "external_id",
        )
        == "c"
    )
    assert guess_text(Record("raw", None, b"[" * 100_000, HEADERS), "external_id") is None


@pytest.mark.parametrize("tenant", ["a\0b", "../other", "", "t" * 256, "\ud800/", 7, None])
def test_invalid_tenant_falls_back_to_default(tenant: Any) -> None:
    assert (
        resolve_tenant(
            make_stored_record(
                json.dumps(PAYLOAD | {"tenant": tenant, "unknown": 1}).encode(), HEADERS
            )
        )
        == "default"
    )
    assert (
        resolve_tenant(
            make_stored_record(
                b"{}",
                HEADERS | {"ce_tenant": str(tenant).encode(errors="replace") + b"\0"},
                "chunked",
            )
        )
        is None
    )


def test_undecodable_record_belongs_to_its_named_tenant() -> None:
    assert (
        resolve_tenant(
            make_stored_record(
                json.dumps(PAYLOAD | {"tenant": "theirs", "unknown": 1}).encode(), HEADERS
            )
        )
        == "theirs"
    )
    assert (
        resolve_tenant(make_stored_record(b"{}", HEADERS | {"ce_tenant": b"theirs"}, "chunked"))
        == "theirs"
    )
    assert resolve_tenant(make_stored_record(b"{}", HEADERS, "control")) is None


async def test_event_without_subject_is_not_written_in_clear_to_a_sealed_topic() -> None:
    chunked = DocumentChunked.model_construct(tenant="t", document_id=UUID(int=9), parents=[])
    event = Event(UUID(int=7), chunked, "anabranch/chunk", "7", NOW, "t")
    with pytest.raises(ValueError, match=r"document\.chunked\.v1 is sealed on topic chunked"):
        await Codec().encode(event, "chunked", "key")


async def test_outcome_events_encode_nulls_and_others_omit_them() -> None:
    def make_event(data: Any) -> Event[Any]:
        return Event(UUID(int=7), data, "anabranch/index", "7", NOW)

    outcome = await Codec().encode(make_event(DocumentIndexed(chunks_count=3)), "outcomes", "key")
    assert json.loads(outcome.value or b"").keys() == DocumentIndexed.model_fields.keys()
    other = await Codec().encode(
        make_event(DocumentReceived(content=Content(text="x"))), "raw", "key"
    )
    assert json.loads(other.value or b"")["content"] == {"text": "x"}


@pytest.mark.parametrize("attribute", ["id", "source", "type", "correlationid", "subject"])
async def test_lone_surrogate_is_malformed_and_replaced_in_attributes(attribute: str) -> None:
    record = make_structured_record(**{attribute: "a\ud800"})
    with pytest.raises(MalformedEvent, match="surrogate"):
        await Codec().decode(record)
    assert "".join(filter(None, guess_producer_attributes(record.record))).encode()
    assert (
        guess_text(make_stored_record(b'{"external_id": "a\\ud800"}', {}).record, "external_id")
        == "a?"
    )


async def test_attribute_length_limit_counts_bytes() -> None:
    record = make_structured_record(id="\u00e9" * 600)
    with pytest.raises(MalformedEvent, match="1200 bytes"):
        await Codec().decode(record)
    assert guess_producer_attributes(record.record)[0] == "\u00e9" * 512


def collect_models(annotation: Any, models: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """Add the models that a value of the annotation may hold, at any depth."""
    arguments = list(get_args(annotation))
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    if is_model and annotation not in models:
        models.add(annotation)
        arguments += [field.annotation for field in annotation.model_fields.values()]
    for argument in arguments:
        collect_models(argument, models)
    return models


@pytest.mark.parametrize("event_class", list_event_classes())
def test_nullable_fields_have_defaults_since_nulls_are_left_out(
    event_class: type[EventData],
) -> None:
    required_nullable = [
        f"{model.__name__}.{name}"
        for model in collect_models(event_class, set())
        for name, field in model.model_fields.items()
        if field.is_required() and type(None) in get_args(field.annotation)
    ]
    assert required_nullable == [] or event_class.topic == OUTCOMES
