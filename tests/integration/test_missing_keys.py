"""Tables restored with a keystore that lacks keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from schemas.errors import ConfigurationError
from schemas.events import Content, DocumentReceived
from schemas.generations import Generation, IndexConfig
from schemas.topics import Record
from services.recovery.restore_check import INGRESS_GROUP, check_tables_current
from services.storage import Storage
from streams.cloudevents import SIGNATURE_HEADER
from streams.codec import Codec
from streams.publisher import build_raw_record
from streams.stage_consumer import format_group_name
from tests.support.generation_copies import apply_control_rows, created_row
from tests.support.shared_log import SharedLog, acknowledge_offset, open_storage

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
KEY, DOCUMENT = UUID(int=7), UUID(int=8)


@pytest.fixture
async def storage(tmp_path: Path, database: str) -> AsyncIterator[Storage]:
    """Three events in `raw`. The tables were restored from when ingress had read one of them."""
    log = SharedLog()
    async with open_storage(log, tmp_path, database) as prepared:
        await apply_control_rows(prepared.pool, created_row(FIRST_GENERATION))
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


async def append_encrypted_record(
    storage: Storage, group_topic: tuple[str, str], *, document: bool = True, signed: bool = True
) -> None:
    """Append a record that the group has acknowledged and the tables have not seen."""
    log, signatures = get_shared_log(storage), storage.codec.signer
    assert signatures is not None
    headers = {
        "ce_keyid": str(KEY).encode(),
        "ce_tenant": b"default",
        **({"ce_document": str(DOCUMENT).encode()} if document else {}),
    }
    if signed:
        headers[SIGNATURE_HEADER] = signatures.sign(group_topic[1], b"?", headers)
    await log.append([Record(group_topic[1], b"k", b"?", headers)])
    log.offsets[group_topic] = {0: 1}


async def is_key_destroyed(storage: Storage) -> bool:
    return bool(
        await storage.pool.fetchval(
            "select destroyed_at is not null from keystore.keys where id = $1", KEY
        )
    )


async def assert_start_refused(storage: Storage) -> None:
    with pytest.raises(ConfigurationError, match=f"1 documents: default/{DOCUMENT}") as error:
        await check_tables_current(storage, {})
    assert error.value.code == "TABLES_RESTORED"
    assert "newest backup of schema `keystore`" in error.value.remedy
    assert "anabranch rebuild" in error.value.remedy
    assert not await is_key_destroyed(storage)
    assert (await storage.offset_store.fetch_all())[INGRESS_GROUP] == {0: 1}


async def test_missing_key_of_missed_event_prevents_start(storage: Storage) -> None:
    await append_encrypted_record(storage, TRANSCRIBE)
    await assert_start_refused(storage)


async def test_missing_key_of_later_stage_prevents_start(storage: Storage) -> None:
    await append_encrypted_record(storage, EMBED)
    await assert_start_refused(storage)


async def test_missing_key_of_unacknowledged_document_prevents_start(storage: Storage) -> None:
    """A slow document delays the commit of its stage, so its event is in no missed range."""
    await append_encrypted_record(storage, TRANSCRIBE)
    del get_shared_log(storage).offsets[TRANSCRIBE]
    await assert_start_refused(storage)


async def test_key_named_by_forged_event_is_ignored(storage: Storage) -> None:
    await append_encrypted_record(storage, TRANSCRIBE, signed=False)
    await check_tables_current(storage, {})
    assert not await is_key_destroyed(storage)


async def test_missing_key_of_question_prevents_nothing(storage: Storage) -> None:
    await append_encrypted_record(storage, RUNS, document=False)
    await check_tables_current(storage, {})
    assert await is_key_destroyed(storage)
