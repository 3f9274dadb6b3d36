"""Keys that the keystore lacks are given up only where what they sealed comes in once more by the door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from anabranch.composition.restored import DOOR, check_current
from anabranch.composition.storage import Storage
from schemas.errors import ConfigurationError
from schemas.events import Content, DocumentReceived
from schemas.generations import Generation, IndexConfig
from schemas.ids import received_id
from schemas.records import Record
from schemas.rows import GenerationRow
from sql.recovery import claim_at_door
from streams.codec import Codec
from streams.hosting import group_name
from streams.signatures import SIGNATURE
from streams.submission import submission
from tests.generations import decide
from tests.shared_log import SharedLog, acknowledge, storage_over

FIRST = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="building")
TIME = datetime(2026, 1, 1, tzinfo=UTC)
READ = (("transcribe", "g1", "accepted"), ("embed", "g1", "chunked"), ("runs", None, "queries"))
TRANSCRIBE, EMBED, RUNS = ((group_name(stage, generation), topic) for stage, generation, topic in READ)
KEY, CAUSES = UUID(int=7), [received_id("default", "test", f"event-{number}") for number in range(3)]


@pytest.fixture
async def storage(tmp_path: Path, database: str) -> AsyncIterator[Storage]:
    """Three events in `raw`, of which the tables know that the door has read one."""
    log = SharedLog()
    async with storage_over(log, tmp_path, database) as prepared:
        await decide(prepared.pool, GenerationRow(FIRST))
        data = DocumentReceived(external_id="a", content=Content(text="A heron."))
        await log.append([await submission(data, f"event-{number}", source="test", time=TIME, codec=Codec()) for number in range(3)])
        await acknowledge(prepared.pool, log, DOOR, 1)
        log.places[DOOR] = {0: 3}
        yield prepared


def log_of(storage: Storage) -> SharedLog:
    assert isinstance(storage.log, SharedLog)
    return storage.log


async def sealed(storage: Storage, reading: tuple[str, str], *causes: UUID, document: bool = True, signed: bool = True) -> None:
    """A record for each, that the reading has acknowledged and the tables do not know."""
    log, signatures = log_of(storage), storage.codec.signatures
    assert signatures is not None
    headers = {"ce_keyid": str(KEY), "ce_tenant": "default", **({"ce_document": str(uuid4())} if document else {})}
    for cause in causes:
        encoded = {name: text.encode() for name, text in {**headers, "ce_causationid": str(cause)}.items()}
        if signed:
            encoded[SIGNATURE] = signatures.sign(reading[1], b"?", encoded)
        await log.append([Record(reading[1], b"k", b"?", encoded)])
    log.places[reading] = {0: len(causes)}


async def given_up(storage: Storage) -> bool:
    return bool(await storage.pool.fetchval("select lost_at is not null from keystore.keys where id = $1", KEY))


async def refused(storage: Storage) -> str:
    with pytest.raises(ConfigurationError, match="lacks 1 keys") as error:
        await check_current(storage, {})
    assert error.value.code == "TABLES_RESTORED" and "newest backup of schema `keystore`" in error.value.remedy
    assert not await given_up(storage)
    return error.value.remedy


async def test_a_key_of_what_the_door_reads_again_is_given_up(storage: Storage) -> None:
    await sealed(storage, TRANSCRIBE, *CAUSES[1:])
    await sealed(storage, EMBED, uuid4())
    await check_current(storage, {})
    assert await given_up(storage)


async def test_key_that_a_forged_event_names_is_not_given_up(storage: Storage) -> None:
    await sealed(storage, TRANSCRIBE, *CAUSES[1:], signed=False)
    await check_current(storage, {})
    assert not await given_up(storage)


async def test_a_key_of_a_document_that_is_read_beyond_a_slow_one_is_given_up(storage: Storage) -> None:
    """Its acceptance is not acknowledged, and what follows from it is."""
    await sealed(storage, TRANSCRIBE, *CAUSES[1:])
    del log_of(storage).places[TRANSCRIBE]
    await sealed(storage, EMBED, uuid4())
    await check_current(storage, {})
    assert await given_up(storage)


async def test_a_key_of_which_one_document_lies_before_what_the_door_reads_again_is_not(storage: Storage) -> None:
    await sealed(storage, TRANSCRIBE, *CAUSES)
    assert "anabranch rebuild" in await refused(storage)


async def test_a_key_of_a_document_that_only_later_events_tell_of_is_not(storage: Storage) -> None:
    await sealed(storage, EMBED, uuid4())
    await refused(storage)


async def test_nor_is_one_where_the_door_has_missed_nothing(storage: Storage) -> None:
    await acknowledge(storage.pool, log_of(storage), DOOR, 3)
    await sealed(storage, TRANSCRIBE, CAUSES[1])
    await refused(storage)


async def test_nor_one_of_what_the_tables_know_that_the_door_let_in(storage: Storage) -> None:
    """It had noted its place a moment before."""
    await claim_at_door(storage.pool, [(CAUSES[1], "hash")])
    await sealed(storage, TRANSCRIBE, CAUSES[1])
    await refused(storage)


async def test_the_key_of_a_question_is_given_up(storage: Storage) -> None:
    await sealed(storage, RUNS, uuid4(), document=False)
    await check_current(storage, {})
    assert await given_up(storage)
