"""Keys that the keystore lacks are given up only where what they sealed comes in once more by the
door.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemas.errors import ConfigurationError
from schemas.events import Content, DocumentReceived
from schemas.generations import Generation, IndexConfig
from schemas.ids import make_received_id
from schemas.records import Record
from schemas.rows import GenerationRow
from services.recovery.restore_check import INGRESS_GROUP, check_tables_current
from services.storage import Storage
from sql.recovery import restore_inbox
from streams.codec import Codec
from streams.signatures import SIGNATURE_HEADER
from streams.stage_consumer import format_group_name
from streams.submission import build_raw_record
from tests.generation_copies import apply_control_rows
from tests.shared_log import SharedLog, acknowledge_offset, open_storage

FIRST_GENERATION = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="building")
EVENT_TIME = datetime(2026, 1, 1, tzinfo=UTC)
STAGE_TOPICS = (
    ("transcribe", "g1", "accepted"),
    ("embed", "g1", "chunked"),
    ("runs", None, "queries"),
)
TRANSCRIBE, EMBED, RUNS = (
    (format_group_name(stage, generation), topic) for stage, generation, topic in STAGE_TOPICS
)
KEY, CAUSES = (
    UUID(int=7),
    [make_received_id("default", "test", f"event-{number}") for number in range(3)],
)


@pytest.fixture
async def storage(tmp_path: Path, database: str) -> AsyncIterator[Storage]:
    """Three events in `raw`, of which the tables know that the door has read one."""
    log = SharedLog()
    async with open_storage(log, tmp_path, database) as prepared:
        await apply_control_rows(prepared.pool, GenerationRow(FIRST_GENERATION))
        data = DocumentReceived(external_id="a", content=Content(text="A heron."))
        await log.append(
            [
                await build_raw_record(
                    data, f"event-{number}", source="test", time=EVENT_TIME, codec=Codec()
                )
                for number in range(3)
            ]
        )
        await acknowledge_offset(prepared.pool, log, INGRESS_GROUP, 1)
        log.offsets[INGRESS_GROUP] = {0: 3}
        yield prepared


def get_shared_log(storage: Storage) -> SharedLog:
    assert isinstance(storage.log, SharedLog)
    return storage.log


async def append_sealed_records(
    storage: Storage,
    reading: tuple[str, str],
    *causes: UUID,
    document: bool = True,
    signed: bool = True,
) -> None:
    """A record for each, that the reading has acknowledged and the tables do not know."""
    log, signatures = get_shared_log(storage), storage.codec.signer
    assert signatures is not None
    headers = {
        "ce_keyid": str(KEY),
        "ce_tenant": "default",
        **({"ce_document": str(uuid4())} if document else {}),
    }
    for cause in causes:
        encoded = {
            name: text.encode() for name, text in {**headers, "ce_causationid": str(cause)}.items()
        }
        if signed:
            encoded[SIGNATURE_HEADER] = signatures.sign(reading[1], b"?", encoded)
        await log.append([Record(reading[1], b"k", b"?", encoded)])
    log.offsets[reading] = {0: len(causes)}


async def is_key_marked_lost(storage: Storage) -> bool:
    return bool(
        await storage.pool.fetchval(
            "select lost_at is not null from keystore.keys where id = $1", KEY
        )
    )


async def assert_recovery_refused(storage: Storage) -> str:
    with pytest.raises(ConfigurationError, match="lacks 1 keys") as error:
        await check_tables_current(storage, {})
    assert (
        error.value.code == "TABLES_RESTORED"
        and "newest backup of schema `keystore`" in error.value.remedy
    )
    assert not await is_key_marked_lost(storage)
    return error.value.remedy


async def test_key_is_marked_lost_when_ingress_rereads_its_event(storage: Storage) -> None:
    await append_sealed_records(storage, TRANSCRIBE, *CAUSES[1:])
    await append_sealed_records(storage, EMBED, uuid4())
    await check_tables_current(storage, {})
    assert await is_key_marked_lost(storage)


async def test_key_named_by_forged_event_is_not_marked_lost(storage: Storage) -> None:
    await append_sealed_records(storage, TRANSCRIBE, *CAUSES[1:], signed=False)
    await check_tables_current(storage, {})
    assert not await is_key_marked_lost(storage)


async def test_key_read_beyond_slow_document_is_marked_lost(storage: Storage) -> None:
    """Its acceptance is not acknowledged, and what follows from it is."""
    await append_sealed_records(storage, TRANSCRIBE, *CAUSES[1:])
    del get_shared_log(storage).offsets[TRANSCRIBE]
    await append_sealed_records(storage, EMBED, uuid4())
    await check_tables_current(storage, {})
    assert await is_key_marked_lost(storage)


async def test_key_used_before_reread_range_is_kept(storage: Storage) -> None:
    await append_sealed_records(storage, TRANSCRIBE, *CAUSES)
    assert "anabranch rebuild" in await assert_recovery_refused(storage)


async def test_key_seen_only_in_later_events_is_kept(storage: Storage) -> None:
    await append_sealed_records(storage, EMBED, uuid4())
    await assert_recovery_refused(storage)


async def test_key_is_kept_when_ingress_missed_nothing(storage: Storage) -> None:
    await acknowledge_offset(storage.pool, get_shared_log(storage), INGRESS_GROUP, 3)
    await append_sealed_records(storage, TRANSCRIBE, CAUSES[1])
    await assert_recovery_refused(storage)


async def test_key_of_already_admitted_event_is_kept(storage: Storage) -> None:
    """It had noted its place a moment before."""
    await restore_inbox(storage.pool, [(CAUSES[1], "hash")])
    await append_sealed_records(storage, TRANSCRIBE, CAUSES[1])
    await assert_recovery_refused(storage)


async def test_key_of_a_question_is_marked_lost(storage: Storage) -> None:
    await append_sealed_records(storage, RUNS, uuid4(), document=False)
    await check_tables_current(storage, {})
    assert await is_key_marked_lost(storage)
