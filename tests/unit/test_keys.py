from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from schemas.errors import DatabaseUnavailable, Erased, MalformedEvent, PermanentError
from schemas.events import DocumentIndexed, DocumentRemoved, Event, EventBuried, Fact, FeedbackGiven, QueryReceived
from schemas.events.dead_letters import Place
from schemas.ports.keys import StoredKey
from schemas.records import Position, Record, StoredRecord
from schemas.values import Origin
from streams.codec import Codec
from streams.keys import SealingKeys, Together

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DOCUMENT, RUN = UUID(int=9), UUID(int=10)
MASTER = os.urandom(32)


class Shelf:
    """A keystore in memory, that counts how often it was asked."""

    def __init__(self) -> None:
        self.keys: dict[UUID, StoredKey] = {}
        self.asked = 0
        self.away = False

    async def obtain(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        await self._answer()
        found = []
        for key in proposed:
            current = next((known for known in self.keys.values() if known.subject == key.subject and known.wrapped), key)
            self.keys[current.id] = current
            found.append(current)
        return found

    async def find(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        await self._answer()
        return {identity: self.keys[identity] for identity in ids if identity in self.keys}

    async def current(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        return [key.id for key in self.keys.values() if key.wrapped and key.subject in subjects]

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        for key in keys:
            self.keys[key] = replace(self.keys[key], wrapped=None)

    async def lose(self, keys: Mapping[UUID, str]) -> None:
        self.keys |= {key: StoredKey(key, tenant, key, None, lost=True) for key, tenant in keys.items() if key not in self.keys}

    async def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise DatabaseUnavailable("away")


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def codec(shelf: Shelf) -> Codec:
    return Codec(SealingKeys(shelf, MASTER))


def removed(reason: str, number: int = 1) -> Fact[DocumentRemoved]:
    data = DocumentRemoved(
        tenant="t", document_id=DOCUMENT, order=[1, number], origin=Origin(accepted_id=UUID(int=1), event_id="e", source="s"), payload_sha256="", received_at=NOW, reason=reason,
    )  # fmt: skip
    return Fact(UUID(int=number), data, "anabranch/receive", str(UUID(int=number)), NOW, "t", DOCUMENT)


def appended(record: Record, topic: str = "accepted") -> StoredRecord:
    return StoredRecord(record, Position(topic, 0, 5), NOW)


async def test_what_is_sealed_reads_back_the_same_and_shows_nothing(codec: Codec) -> None:
    record = await codec.encode(removed("canary"), "accepted", "k")
    assert b"canary" not in (record.value or b"")
    back = await codec.decode(appended(record))
    assert back.data == removed("canary").data
    assert record.headers["ce_keyid"] == str(back.key).encode()


async def test_a_life_of_a_document_has_one_key(codec: Codec, shelf: Shelf) -> None:
    records = await asyncio.gather(*(codec.encode(removed("x", number), "accepted", "k") for number in range(1, 9)))
    assert len({record.headers["ce_keyid"] for record in records}) == 1
    assert shelf.asked == 1, "together"


async def test_after_its_key_is_destroyed_nothing_opens_and_a_new_life_begins(codec: Codec, shelf: Shelf) -> None:
    old = await codec.encode(removed("old"), "accepted", "k")
    await shelf.destroy("t", await shelf.current("t", [DOCUMENT]))
    with pytest.raises(Erased):
        await Codec(SealingKeys(shelf, MASTER)).decode(appended(old))
    new = await codec.encode(removed("new"), "accepted", "k")
    assert (await codec.decode(appended(new))).data.reason == "new"


async def test_what_follows_from_an_erased_event_is_not_sealed_with_the_new_key(codec: Codec, shelf: Shelf) -> None:
    cause = await codec.decode(appended(await codec.encode(removed("old"), "accepted", "k")))
    await shelf.destroy("t", [cause.key or UUID(int=0)])
    with pytest.raises(Erased):
        await Codec(SealingKeys(shelf, MASTER)).encode(replace(removed("derived"), key=cause.key), "accepted", "k")


async def test_a_payload_belongs_to_its_event(codec: Codec) -> None:
    first, second = [await codec.encode(removed("x", number), "accepted", "k") for number in (1, 2)]
    with pytest.raises(PermanentError, match="changed"):
        await codec.decode(appended(replace(first, value=second.value)))


async def test_a_payload_opens_in_no_other_topic_or_tenant(codec: Codec) -> None:
    record = await codec.encode(removed("x"), "accepted", "k")
    assert (await codec.decode(appended(record))).data.reason == "x"
    moved = replace(record, headers={**record.headers, "ce_tenant": b"other"})
    for stored in (appended(record, "accepted.g2"), appended(moved)):
        with pytest.raises(PermanentError, match="changed"):
            await codec.decode(stored)


async def test_a_payload_that_an_older_version_sealed_opens(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.codec._context", lambda identity, event_type, tenant, topic: f"{identity} {event_type}".encode())
    record = await codec.encode(removed("old"), "accepted", "k")
    monkeypatch.undo()
    assert (await codec.decode(appended(record))).data.reason == "old"


async def test_another_master_key_opens_nothing(codec: Codec, shelf: Shelf) -> None:
    record = await codec.encode(removed("x"), "accepted", "k")
    with pytest.raises(PermanentError, match="master key"):
        await Codec(SealingKeys(shelf, os.urandom(32))).decode(appended(record))


async def test_many_records_ask_for_their_keys_together_and_one_that_is_gone_is_told_of_alone(shelf: Shelf) -> None:
    records = []
    for number in range(1, 6):
        fact = removed(f"of {number}", number)
        fact = replace(fact, data=fact.data.model_copy(update={"document_id": UUID(int=number)}), document_id=UUID(int=number))
        records.append(appended(await Codec(SealingKeys(shelf, MASTER)).encode(fact, "accepted", "k")))
    await shelf.destroy("t", await shelf.current("t", [UUID(int=3)]))
    reader = Codec(SealingKeys(shelf, MASTER))
    shelf.asked = 0
    await reader.prepare(records)
    assert [(await reader.decode(record)).data.reason for record in records if record is not records[2]] == ["of 1", "of 2", "of 4", "of 5"]
    assert shelf.asked == 1, "together"
    with pytest.raises(Erased):
        await reader.decode(records[2])


async def test_a_lost_key_names_the_backup(codec: Codec, shelf: Shelf) -> None:
    record = await codec.encode(removed("x"), "accepted", "k")
    shelf.keys.clear()
    with pytest.raises(PermanentError) as raised:
        await Codec(SealingKeys(shelf, MASTER)).decode(appended(record))
    assert "backup" in raised.value.remedy


async def test_a_keystore_that_is_away_is_told_to_everybody_who_waits(codec: Codec, shelf: Shelf) -> None:
    shelf.away = True
    answers = await asyncio.gather(*(codec.encode(removed("x", number), "accepted", "k") for number in (1, 2)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 2
    shelf.away = False
    assert (await codec.encode(removed("x"), "accepted", "k")).value


async def test_whoever_waits_for_keys_is_told_when_the_asking_is_broken_off() -> None:
    async def asked(items: Sequence[int]) -> dict[int, int]:
        await asyncio.Event().wait()
        return {}

    together = Together(asked)
    waiting = [asyncio.create_task(together(1)), asyncio.create_task(together(1)), asyncio.create_task(together(2))]
    while not together.asking:
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    next(iter(together.asking)).cancel()
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 3


@pytest.mark.parametrize(("data", "topic"), [(DocumentIndexed(tenant="t", document_id=DOCUMENT), "outcomes")])
async def test_what_foreign_programs_read_stays_readable(codec: Codec, data: Event, topic: str) -> None:
    record = await codec.encode(Fact(UUID(int=1), data, "a", str(UUID(int=1)), NOW, "t", DOCUMENT), topic, "k")
    assert str(DOCUMENT).encode() in (record.value or b"")


async def test_a_question_has_a_key_of_its_run(codec: Codec, shelf: Shelf) -> None:
    data = QueryReceived(run_id=RUN, tenant="t", kind="query", request={"query": "canary"}, received_at=NOW)
    record = await codec.encode(Fact(UUID(int=1), data, "a", str(UUID(int=1)), NOW, "t"), "queries", str(RUN))
    assert b"canary" not in (record.value or b"")
    assert [key.subject for key in shelf.keys.values()] == [RUN]


async def test_feedback_quotes_documents_and_is_sealed_with_the_key_of_its_run_or_its_own(codec: Codec, shelf: Shelf) -> None:
    for run in (UUID(int=7), None):
        said = FeedbackGiven(feedback_id=UUID(int=8), tenant="t", given_at=NOW, run_id=run, note="canary")
        record = await codec.encode(Fact(UUID(int=9), said, "anabranch/api", str(UUID(int=9)), NOW, "t"), "feedback", "k")
        assert b"canary" not in (record.value or b"")
        assert await shelf.current("t", [run or said.feedback_id]) == [UUID(record.headers["ce_keyid"].decode())]


async def test_a_tenant_may_keep_its_events_readable_and_sealed_ones_still_open(codec: Codec, shelf: Shelf) -> None:
    sealed = await codec.encode(removed("x"), "accepted", "k")
    plain = Codec(SealingKeys(shelf, MASTER, plain=lambda tenant: tenant == "t"))
    assert b"canary" in ((await plain.encode(removed("canary"), "accepted", "k")).value or b"")
    assert (await plain.decode(appended(sealed))).data.reason == "x"


async def test_a_key_named_by_a_foreign_producer_is_not_used(codec: Codec) -> None:
    headers = {"ce_specversion": b"1.0", "ce_id": b"e", "ce_source": b"s", "ce_type": b"document.withdrawn.v1", "ce_keyid": b"none"}
    assert (await codec.decode(appended(Record("raw", None, b'{"external_id": "a"}', headers), "raw"))).key is None
    with pytest.raises(MalformedEvent, match="ce_keyid"):
        await codec.decode(appended(Record("accepted", None, b"{}", {**headers, "ce_type": b"document.accepted.v1"})))


@pytest.mark.parametrize("carried", ["order canary 7", "00-canary", ""], ids=["words", "half a trace", "none"])
async def test_what_a_producer_wrote_into_attributes_that_ride_along_is_sealed_as_well(codec: Codec, carried: str) -> None:
    fact = replace(removed("x"), correlation_id=carried or None, traceparent=carried or None)
    record = await codec.encode(fact, "accepted", "k")
    assert not any(b"canary" in value for value in record.headers.values())
    back = await codec.decode(appended(record))
    assert (back.correlation_id, back.traceparent) == (fact.correlation_id, fact.traceparent)


async def test_ids_and_traces_that_can_hold_no_words_stay_clear_for_whoever_follows_them(codec: Codec) -> None:
    trace = f"00-{'4bf92f35' * 4}-{'00f067aa' * 2}-01"
    record = await codec.encode(replace(removed("x"), correlation_id=str(RUN), traceparent=trace), "accepted", "k")
    assert (record.headers["ce_correlationid"], record.headers["ce_traceparent"]) == (str(RUN).encode(), trace.encode())
    assert "ce_sealedids" not in record.headers


async def test_a_dead_letter_that_names_no_document_has_a_key_of_its_own(codec: Codec, shelf: Shelf) -> None:
    letter = EventBuried(stage="receive", event_id=RUN, tenant="t", place=Place(topic="raw", partition=0, offset=1), code="BAD", detail="canary")
    record = await codec.encode(Fact(UUID(int=3), letter, "anabranch/receive", str(UUID(int=3)), NOW, "t"), "dead_letters", "k")
    assert b"canary" not in (record.value or b"")
    assert [key.subject for key in shelf.keys.values()] == [RUN]
