"""Logs that earlier versions of the program wrote, through the stages of this one to the tables."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.background.recovery import recover
from anabranch.composition.overrides import Overrides
from anabranch.composition.sealing import destroy_again
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from engines.embed.null import NullEmbedder
from schemas.events import KeysDestroyed
from sql.log import PgLog
from sql.log_records import encode_headers
from sql.pool import Pool, close_pool, open_pool
from streams.codec import Codec
from streams.keys import fingerprint
from tests.golden.recording import LOGS, Recorded, keys_of, log_of, recordings
from tests.golden.views import views
from tests.pipeline import pipeline

EVERY = pytest.mark.parametrize("recording", recordings(), ids=lambda path: path.name)


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Pool]:
    pool = await open_pool(dsn, size=2, name="recorded")
    try:
        yield pool
    finally:
        await close_pool(pool)


async def restored(dsn: str, records: list[Recorded]) -> None:
    """As a dump of the log's table would be."""
    rows = [(one.stored.position.offset, one.stored.record, one.stored.appended_at) for one in records]
    async with opened(dsn) as pool:
        await pool.executemany(
            "insert into events (position, xact, topic, key, headers, value, appended_at) overriding system value values ($1, '3', $2, $3, $4::text::jsonb, $5, $6)",
            [(offset, record.topic, record.key, encode_headers(record.headers), record.value, moment) for offset, record, moment in rows],
        )


async def keystore(dsn: str, recording: Path) -> None:
    master, keys = keys_of(recording)
    async with opened(dsn) as pool:
        await pool.execute("insert into keystore.master (fingerprint) values ($1)", fingerprint(master))
        await pool.executemany(
            "insert into keystore.keys (id, tenant, subject, wrapped, destroyed_at) values ($1, $2, $3, $4, case when $4::bytea is null then now() end)",
            [(key.id, key.tenant, key.subject, key.wrapped) for key in keys],
        )


def settings_of(folder: Path, dsn: str, recording: Path, name: str) -> Settings:
    master = b64encode(keys_of(recording)[0]).decode()
    encrypt = "true" if name == "sealed" else "false"
    return load_settings(data_dir=folder, sets=[f"database.url={dsn}", f"log.encrypt={encrypt}", f"log.master_key={master}"])


@EVERY
@pytest.mark.parametrize("name", LOGS)
async def test_a_recorded_log_fills_the_tables_with_what_it_said(recording: Path, name: str, database: str, tmp_path: Path) -> None:
    await restored(database, log_of(recording, name))
    if name == "sealed":
        await keystore(database, recording)
    told = await recover(settings_of(tmp_path, database, recording, name), database)
    assert told is not None and told["engine_calls"] == 0
    async with opened(database) as pool:
        found = await views(pool)
    expected = json.loads((recording / "views.json").read_text())[name]
    assert {view: found[view] for view in expected} == expected


def named_by_external_id(expected: dict[str, Any]) -> dict[str, Any]:
    """Text without a name was called `document.md` then; now its external id is its title."""
    text = json.dumps(expected).replace('"filename": "document.md"', '"filename": null')
    return dict(json.loads(text.replace("document.md", "row-7")))


@EVERY
async def test_what_producers_sent_then_is_taken_in_now(recording: Path, database: str, tmp_path: Path) -> None:
    """With its bytes inside, in binary and structured mode."""
    sent = [one for one in log_of(recording, "clear") if one.topic == "raw" and "shop" in (one.means.get("source"), said_source(one))]
    names = {name for one in sent if (name := one.means.get("data", {}).get("external_id"))}
    assert names and any(one.stored.record.headers["content-type"] == b"application/cloudevents+json" for one in sent)
    async with pipeline(tmp_path, database, Overrides(embedder=NullEmbedder(8, 4))) as at_work:
        await at_work.worker.storage.log.append([one.stored.record for one in sent])
        await at_work.quiet()
        found = await views(at_work.pool)
    expected = named_by_external_id(json.loads((recording / "views.json").read_text())["clear"])
    for view in ("documents", "texts", "parents", "children", "mentions"):
        assert about(found[view], names) == about(expected[view], names), view
    assert [letter["code"] for letter in found["dead_letters"]] == ["UNKNOWN_VERSION"]


@EVERY
async def test_a_key_that_an_older_version_destroyed_stays_destroyed(recording: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the keystore is a backup from before."""
    await restored(database, log_of(recording, "sealed"))
    await keystore(database, recording)
    async with opened(database) as pool:
        backup = "update keystore.keys set wrapped = 'x', subject = gen_random_uuid(), destroyed_at = null where wrapped is null"
        assert await pool.execute(backup) == "UPDATE 1"
        monkeypatch.setattr(KeysDestroyed, "version", 2)
        monkeypatch.setattr(KeysDestroyed, "upcasts", {1: lambda payload: payload})
        await destroy_again(PgLog(pool), Codec(), pool)
        assert await pool.fetchval("select count(*) from keystore.keys where wrapped is null") == 1


def said_source(one: Recorded) -> str:
    return one.stored.record.headers.get("ce_source", b"").decode()


def about(rows: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    """Of what was withdrawn no more than that: whether its fields were ever seen depends on what came first."""
    named = [row for row in rows if row["external_id"] in names]
    return [{"external_id": row["external_id"], "withdrawn": True} if row.get("withdrawn") else row for row in named]
