from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import MalformedEvent, NewerVersion
from schemas.events import Content, DocumentIndexed, DocumentReceived, Fact
from schemas.ids import received_id
from schemas.records import Position, Record, StoredRecord
from streams.codec import Codec, clues, guessed_text, owner
from streams.submission import submission

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PAYLOAD = {"external_id": "contract-17", "content": {"text": "hello"}}
HEADERS = {
    "ce_specversion": b"1.0", "ce_id": b"e1", "ce_source": b"shop", "ce_type": b"document.received.v1", "content-type": b"application/json",
}  # fmt: skip

STRUCTURED = {"Content-Type": b"application/cloudevents+json; charset=utf-8"}


def stored(value: bytes | None, headers: dict[str, bytes], topic: str = "raw") -> StoredRecord:
    return StoredRecord(Record(topic, None, value, headers), Position(topic, 3, 41), NOW)


def structured(**change: Any) -> StoredRecord:
    envelope = {"specversion": "1.0", "id": "e1", "source": "shop", "type": "document.received.v1", "data": PAYLOAD} | change
    return stored(json.dumps(envelope).encode(), STRUCTURED)


async def test_binary_and_structured_mode_give_the_same_fact() -> None:
    binary = await Codec().decode(stored(json.dumps(PAYLOAD).encode(), HEADERS))
    assert binary == await Codec().decode(structured())
    assert binary.id == received_id("default", "shop", "e1")
    assert binary.data == DocumentReceived(external_id="contract-17", content=Content(text="hello"))


async def test_binary_data_of_a_structured_event_is_its_payload() -> None:
    payload = base64.b64encode(json.dumps(PAYLOAD, indent=2).encode()).decode()
    envelope = {"specversion": "1.0", "id": "e1", "source": "shop", "type": "document.received.v1", "data_base64": payload}
    assert await Codec().decode(stored(json.dumps(envelope).encode(), STRUCTURED)) == await Codec().decode(structured())
    for wrong in ({"data_base64": "%"}, {"data_base64": 7}, {"data_base64": "é"}, {"data": PAYLOAD}):
        with pytest.raises(MalformedEvent, match="base64"):
            await Codec().decode(stored(json.dumps(envelope | wrong).encode(), STRUCTURED))


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
async def test_an_attribute_that_is_empty_is_missing_in_both_modes(name: str) -> None:
    for record in (structured(**{name: ""}), stored(json.dumps(PAYLOAD).encode(), HEADERS | {f"ce_{name}": b""})):
        with pytest.raises(MalformedEvent, match=f"missing.*{name}"):
            await Codec().decode(record)


async def test_a_time_may_be_written_in_small_letters() -> None:
    fact = await Codec().decode(stored(json.dumps(PAYLOAD).encode(), HEADERS | {"ce_time": b"2026-03-01t00:00:00z"}))
    assert fact.time == NOW


async def test_the_payload_hash_ignores_how_the_json_is_written() -> None:
    loose = await Codec().decode(stored(json.dumps(PAYLOAD, indent=3).encode(), HEADERS))
    tight = await Codec().decode(stored(json.dumps(dict(reversed(PAYLOAD.items()))).encode(), HEADERS))
    other = await Codec().decode(stored(json.dumps(PAYLOAD | {"title": "x"}).encode(), HEADERS))
    assert loose.payload_sha256 == tight.payload_sha256 != other.payload_sha256


async def test_what_the_system_says_itself_reads_back_the_same() -> None:
    identity = UUID(int=7)
    fact = Fact(
        identity, DocumentIndexed(tenant="t", document_id=UUID(int=9), chunks_count=3), "anabranch/index", str(identity), NOW, "t", UUID(int=9), how="abc"
    )
    record = await Codec().encode(fact, "outcomes", "key")
    back = await Codec().decode(StoredRecord(record, Position("outcomes", 0, 5), NOW))
    assert (back.id, back.data, back.time, back.tenant, back.document_id, back.how) == (identity, fact.data, NOW, "t", UUID(int=9), "abc")


async def test_a_submission_is_what_any_producer_would_send() -> None:
    record = await submission(DocumentReceived(external_id="a", content=Content(url="https://example.org/x")), "e9", time=NOW, codec=Codec())
    assert record.topic == "raw"
    assert record.key == b"a"
    fact = await Codec().decode(StoredRecord(record, Position("raw", 0, 0), NOW))
    assert fact.event_id == "e9"


@pytest.mark.parametrize(
    ("value", "headers", "complaint"),
    [
        (None, HEADERS, "no value"),
        (b"{}", {}, "ce_specversion, ce_id, ce_source, ce_type"),
        (b"not json", HEADERS, "Invalid JSON"),
        (b'{"external_id": "a"}', HEADERS, "content"),
        (b'{"content": {"text": "a", "url": "b"}}', HEADERS, "exactly one of"),
        (b'{"content": {"text": "a"}, "extern_id": "typo"}', HEADERS, "extern_id"),
        (b"{}", HEADERS | {"ce_type": b"document.eaten.v1"}, "document.received.v1"),
        (b"{}", HEADERS | {"ce_type": b"document.received.v9"}, "newest is v1"),
        (json.dumps(PAYLOAD).encode(), HEADERS | {"ce_sequence": b"three"}, "ce_sequence 'three'"),
        (json.dumps(PAYLOAD).encode(), HEADERS | {"ce_time": b"yesterday"}, "ce_time 'yesterday'"),
        (json.dumps(PAYLOAD).encode(), HEADERS | {"ce_source": b"\xff"}, "ce_source is not UTF-8"),
        (json.dumps(PAYLOAD).encode(), HEADERS | {"ce_id": b"i" * 1025}, "ce_id has 1025 bytes; 1024 are allowed"),
        (json.dumps(PAYLOAD).encode(), HEADERS | {"ce_sequence": b"1_000"}, "ce_sequence '1_000'"),
        (json.dumps(PAYLOAD).encode(), HEADERS | {"ce_sequence": "\u0663".encode()}, "is not an integer"),
        (json.dumps(PAYLOAD).encode(), HEADERS | {"ce_sequence": b"9" * 5000}, "outside 0"),
        (json.dumps(PAYLOAD).encode(), HEADERS | {"ce_specversion": b"0.3"}, "CloudEvents '0.3' is not 1.0"),
        (b'{"content": {"text": "a"}, "metadata": {"a": NaN}}', HEADERS, "NaN is no number"),
        (b'{"content": {"text": "a"}, "metadata": {"a": -1e999}}', HEADERS, "-1e999 is no number"),
        (b'{"content": {"text": "a"}, "tenant": "a\\u0000b"}', HEADERS, "is not 1 to 64 characters"),
        (b'{"content": {"text": "a"}, "tenant": "a/b"}', HEADERS, "tenant 'a/b'"),
        (b"[" * 100_000, {"content-type": b"application/cloudevents+json"}, "not JSON that can be read"),
        (b'{"a": ' * 100_000, HEADERS, "Invalid JSON"),
    ],
)
async def test_what_cannot_be_read_is_named(value: bytes | None, headers: dict[str, bytes], complaint: str) -> None:
    with pytest.raises(MalformedEvent) as caught:
        await Codec().decode(stored(value, headers))
    assert complaint in caught.value.detail


async def test_a_newer_version_on_our_own_topics_is_never_guessed_at() -> None:
    headers = HEADERS | {"ce_id": str(UUID(int=1)).encode(), "ce_type": b"document.chunked.v2"}
    with pytest.raises(NewerVersion):
        await Codec().decode(stored(b"{}", headers, "chunked"))


async def test_a_generations_own_topic_is_read_like_the_plain_one() -> None:
    headers = HEADERS | {"ce_id": str(UUID(int=1)).encode(), "ce_type": b"document.indexed.v1"}
    fact = await Codec().decode(stored(b"{}", headers, "outcomes.g2"))
    assert isinstance(fact.data, DocumentIndexed)


def test_an_unreadable_record_still_gives_what_its_headers_say() -> None:
    assert clues(Record("raw", None, b"\x00", HEADERS)) == ("e1", "shop", "document.received.v1")
    assert clues(Record("raw", None, b"\x00", {})) == (None, None, None)
    assert clues(Record("raw", None, b"{}", HEADERS | {"ce_id": b"i" * 2000}))[0] == "i" * 1024


@pytest.mark.parametrize("data", [{}, {"data": {"external_id": 7}}, {"data": None}])
def test_half_a_structured_event_still_gives_what_is_there(data: dict[str, Any]) -> None:
    record = Record("raw", None, json.dumps({"id": "e1", "source": "shop", "type": 7} | data).encode(), {"content-type": b"application/cloudevents+json"})
    assert clues(record) == ("e1", "shop", None)
    assert guessed_text(record, "external_id") is None


def test_an_invalid_payload_may_still_name_its_document() -> None:
    assert guessed_text(Record("raw", None, b'{"external_id": "a", "content": 7}', HEADERS), "external_id") == "a"
    assert guessed_text(Record("raw", None, b'{"data": {"external_id": "b"}}', {}), "external_id") == "b"
    assert guessed_text(Record("raw", None, b'{"external_id": "c", "metadata": {"a": NaN}}', HEADERS), "external_id") == "c"
    assert guessed_text(Record("raw", None, b"[" * 100_000, HEADERS), "external_id") is None


@pytest.mark.parametrize("tenant", ["a\0b", "../other", "", "t" * 256, "\ud800/", 7, None])
def test_what_belongs_to_nobody_that_there_can_be_is_the_default_tenants(tenant: Any) -> None:
    assert owner(stored(json.dumps(PAYLOAD | {"tenant": tenant, "unknown": 1}).encode(), HEADERS)) == "default"
    assert owner(stored(b"{}", HEADERS | {"ce_tenant": str(tenant).encode(errors="replace") + b"\0"}, "chunked")) is None


def test_what_cannot_be_read_belongs_to_the_tenant_that_it_names() -> None:
    assert owner(stored(json.dumps(PAYLOAD | {"tenant": "theirs", "unknown": 1}).encode(), HEADERS)) == "theirs"
    assert owner(stored(b"{}", HEADERS | {"ce_tenant": b"theirs"}, "chunked")) == "theirs"
    assert owner(stored(b"{}", HEADERS, "control")) is None


async def test_an_outcome_says_null_where_there_is_nothing_to_say_and_other_facts_leave_it_out() -> None:
    def fact(data: Any) -> Fact[Any]:
        return Fact(UUID(int=7), data, "anabranch/index", "7", NOW)

    outcome = await Codec().encode(fact(DocumentIndexed(chunks_count=3)), "outcomes", "key")
    assert json.loads(outcome.value or b"").keys() == DocumentIndexed.model_fields.keys()
    other = await Codec().encode(fact(DocumentReceived(content=Content(text="x"))), "raw", "key")
    assert json.loads(other.value or b"")["content"] == {"text": "x"}


@pytest.mark.parametrize("attribute", ["id", "source", "type", "correlationid", "subject"])
async def test_half_a_surrogate_pair_is_malformed_and_what_is_told_of_it_can_be_written(attribute: str) -> None:
    record = structured(**{attribute: "a\ud800"})
    with pytest.raises(MalformedEvent, match="surrogate"):
        await Codec().decode(record)
    assert "".join(filter(None, clues(record.record))).encode()
    assert guessed_text(stored(b'{"external_id": "a\\ud800"}', {}).record, "external_id") == "a?"


async def test_a_name_is_measured_in_bytes_and_what_is_told_of_it_is_as_short() -> None:
    record = structured(id="\u00e9" * 600)
    with pytest.raises(MalformedEvent, match="1200 bytes"):
        await Codec().decode(record)
    assert clues(record.record)[0] == "\u00e9" * 512
