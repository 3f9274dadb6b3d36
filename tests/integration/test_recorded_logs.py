"""Read logs of earlier versions of the program through the current stages."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.composition.storage import recover_database
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from schemas.events import KeysDestroyed
from services.erasure.key_destruction import reapply_key_destruction
from sql.database import Pool, close_pool, open_pool
from sql.log.event_log import PgLog, encode_headers
from streams.codec import Codec
from streams.payload_keys import compute_master_key_fingerprint
from tests.fakes.null_embedder import NullEmbedder
from tests.golden.recording import LOG_NAMES, RecordedEvent, list_recordings, load_keys, load_log
from tests.golden.views import fetch_views
from tests.support.pipeline import run_pipeline

FOR_EVERY_RECORDING = pytest.mark.parametrize(
    "recording", list_recordings(), ids=lambda path: path.name
)


@asynccontextmanager
async def open_test_pool(dsn: str) -> AsyncIterator[Pool]:
    pool = await open_pool(dsn, size=2, name="recorded")
    try:
        yield pool
    finally:
        await close_pool(pool)


async def restore_log(dsn: str, records: list[RecordedEvent]) -> None:
    """Restore the log as a dump of its table would."""
    rows = [
        (one.stored.position.offset, one.stored.record, one.stored.appended_at) for one in records
    ]
    async with open_test_pool(dsn) as pool:
        await pool.executemany(
            "insert into events (position, xact, topic, key, headers, value, appended_at) "
            "overriding system value values ($1, '3', $2, $3, $4::text::jsonb, $5, $6)",
            [
                (
                    offset,
                    record.topic,
                    record.key,
                    encode_headers(record.headers),
                    record.value,
                    moment,
                )
                for offset, record, moment in rows
            ],
        )


async def restore_keystore(dsn: str, recording: Path) -> None:
    master, keys = load_keys(recording)
    async with open_test_pool(dsn) as pool:
        await pool.execute(
            "insert into keystore.master (fingerprint) values ($1)",
            compute_master_key_fingerprint(master),
        )
        await pool.executemany(
            "insert into keystore.keys (id, tenant, subject, wrapped, destroyed_at) "
            "values ($1, $2, $3, $4, case when $4::bytea is null then now() end)",
            [(key.id, key.tenant, key.subject, key.wrapped_key) for key in keys],
        )


def make_settings(folder: Path, dsn: str, recording: Path, name: str) -> Settings:
    master = b64encode(load_keys(recording)[0]).decode()
    encrypt = "true" if name == "sealed" else "false"
    return load_settings(
        data_dir=folder,
        sets=[f"database.url={dsn}", f"log.encrypt={encrypt}", f"log.master_key={master}"],
    )


@FOR_EVERY_RECORDING
@pytest.mark.parametrize("name", LOG_NAMES)
async def test_recorded_log_projects_to_recorded_views(
    recording: Path, name: str, database: str, tmp_path: Path
) -> None:
    await restore_log(database, load_log(recording, name))
    if name == "sealed":
        await restore_keystore(database, recording)
    recovery = await recover_database(make_settings(tmp_path, database, recording, name), database)
    assert recovery is not None and recovery.engine_calls == 0
    async with open_test_pool(database) as pool:
        found = await fetch_views(pool)
    expected = json.loads((recording / "views.json").read_text())[name]
    assert {view: found[view] for view in expected} == expected


@FOR_EVERY_RECORDING
async def test_events_of_old_producers_are_accepted(
    recording: Path, database: str, tmp_path: Path
) -> None:
    """Accept inline bytes, in binary and structured mode."""
    sent = [
        one
        for one in load_log(recording, "clear")
        if one.topic == "raw" and "shop" in (one.decoded.get("source"), get_event_source(one))
    ]
    names = {name for one in sent if (name := one.decoded.get("data", {}).get("external_id"))}
    assert names and any(
        one.stored.record.headers["content-type"] == b"application/cloudevents+json" for one in sent
    )
    async with run_pipeline(tmp_path, database, Overrides(embedder=NullEmbedder(8, 4))) as at_work:
        await at_work.worker.storage.log.append([one.stored.record for one in sent])
        await at_work.wait_until_idle()
        found = await fetch_views(at_work.pool)
    expected = json.loads((recording / "views.json").read_text())["clear"]
    for view in ("documents", "texts", "parents", "children", "mentions"):
        assert select_views(found[view], names) == select_views(expected[view], names), view
    assert [letter["code"] for letter in found["dead_letters"]] == ["UNKNOWN_VERSION"]


@FOR_EVERY_RECORDING
async def test_key_destroyed_by_older_version_stays_destroyed(
    recording: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also test a keystore restored from before the destruction."""
    await restore_log(database, load_log(recording, "sealed"))
    await restore_keystore(database, recording)
    async with open_test_pool(database) as pool:
        count = "select count(*) from keystore.keys where wrapped is null"
        destroyed = await pool.fetchval(count)
        assert destroyed
        await pool.execute(
            "update keystore.keys set wrapped = 'x', subject = gen_random_uuid(), destroyed_at = "
            "null where wrapped is null"
        )
        monkeypatch.setattr(KeysDestroyed, "version", 2)
        monkeypatch.setattr(KeysDestroyed, "upcasts", {1: lambda payload: payload})
        await reapply_key_destruction(PgLog(pool), Codec(), pool)
        assert await pool.fetchval(count) == destroyed


def get_event_source(one: RecordedEvent) -> str:
    return one.stored.record.headers.get("ce_source", b"").decode()


def select_views(rows: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    """Of what was withdrawn no more than that: whether its fields were ever seen depends on what
    came first.
    """
    named = [row for row in rows if row["external_id"] in names]
    return [
        {"external_id": row["external_id"], "withdrawn": True} if row.get("withdrawn") else row
        for row in named
    ]
