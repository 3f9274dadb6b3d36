"""Record the events of this version of the program: `python -m tests.golden.recorder NAME`.

A recording is never rewritten. A new event type or event version needs a new recording: a test
fails until it has a golden event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import EVENT_CLASSES
from schemas.events import (
    EventData,
    FactRetracted,
    SourceAdded,
    SourceRemoved,
    SourceReset,
    build_root_event,
)
from schemas.ids import content_id
from schemas.sources import SequenceReset, SourceSpec, UrlsSource
from schemas.topics import RAW, Record
from services.storage import Storage
from sql.database import Pool
from sql.embedded.server import EPHEMERAL_SETTINGS, EmbeddedPostgres
from streams.asyncapi import JSON_SCHEMA, get_schema_file_name
from streams.publisher import API_SOURCE
from tests.fakes.null_embedder import NullEmbedder
from tests.golden.recording import LOG_NAMES, RECORDINGS_DIR, RecordedEvent, decode_or_error
from tests.golden.views import fetch_views
from tests.support.api_world import ApiWorld, run_system
from tests.support.eventually import eventually

TEXT = """# Weir House

Ada Lovelace works for Weir House. She reads the gauge at the weir every morning.

## Tides

| day | height |
| --- | --- |
| Monday | 3.2 m |

Invoice INV-2041 of 12 March 2024 came to EUR 1,250.00.
"""
FERRY = "The ferry leaves the quay at a quarter past nine."


async def produce_all_events(world: ApiWorld) -> None:
    """Events of every type, produced by clients and by commands."""
    weir = await world.ingest_until_searchable(
        TEXT, "weir.md", external_id="weir", collection="river", tags="gauge"
    )
    await world.ingest_until_searchable(
        f"{TEXT}\nThe gate was painted green.\n",
        "weir.md",
        external_id="weir",
        collection="river",
        tags="gauge",
    )
    await world.ingest_until_searchable(
        f"{TEXT}\nThe gate was painted green.\n",
        "weir.md",
        external_id="weir",
        collection="river",
        tags="gauge",
    )
    await _send(
        world.http.patch(
            f"/v1/documents/{weir['document_id']}",
            json={"title": "The weir and its house", "tags": ["gauge", "green"]},
        )
    )
    ferry = await world.ingest_until_searchable(FERRY, "ferry.txt", external_id="ferry")
    await _send(world.http.delete(f"/v1/documents/{ferry['document_id']}"))
    await world.wait_until_final(
        await world.ingest(b"%PDF-1.4 and nothing more", "broken.pdf", external_id="broken")
    )
    await _send(
        world.http.post("/v1/dead-letters/discard", json={"all": True, "reason": "a broken copy"})
    )
    await world.worker.storage.log.append(list(make_external_records()))
    answer = await world.ask("Who reads the gauge at the weir?")
    for query in ({"query": "Who reads the gauge?"}, {"query": "Who?", "generation": "unknown"}):
        run = await _send(world.http.post("/v1/runs", json=query))
        await world.http.get(f"/v1/runs/{run['run_id']}/stream")
    feedback = {
        "run_id": answer["run_id"],
        "useful": True,
        "note": "as it is",
        "chunk_ids": [answer["citations"][0]["chunk_id"]],
    }
    await _send(world.http.post("/v1/feedback", json=feedback))
    await _send(world.http.post("/v1/calibrations", json={"questions": 4}))
    entities = await eventually(
        lambda: world.fetch_json("/v1/entities"), lambda page: len(page["items"]) > 1
    )
    await _send(
        world.http.patch(
            f"/v1/entities/{entities['items'][0]['id']}", json={"add_aliases": ["the keeper"]}
        )
    )
    entity, other = (one["id"] for one in entities["items"][:2])
    await _send(world.http.patch(f"/v1/entities/{entity}", json={"type": "GAUGE"}))
    await _send(world.http.post(f"/v1/entities/{other}/merge", json={"into": entity}))
    await _send(world.http.post(f"/v1/entities/{entity}/split", json={"part": other}))
    settings = {"default_profile": "rrf", "chunking": "small", "extract": {"entities": ["ORG"]}}
    await _send(world.http.put("/v1/collections/gone", json=settings))
    await _send(world.http.post("/v1/experiments", json={"candidate": "rrf"}))
    await _send(world.http.delete("/v1/collections/gone"))
    await eventually(
        lambda: _has_rows(
            world.worker.storage.pool, "collection_deletions where completed_at is not null"
        )
    )
    await _state_facts(world)
    await _change_an_answer(world)
    secret = await world.ingest_until_searchable(
        "The code of the safe is kingfisher.", "secret.txt", external_id="secret"
    )
    receipt = await _send(
        world.http.post("/v1/erasures", json={"scope": "document", "name": secret["document_id"]})
    )
    await eventually(
        lambda: _has_value(world, f"/v1/erasures/{receipt['receipt_id']}", "state", "done")
    )
    await wait_until_idle(world)
    await _send(
        world.http.post("/v1/generations", json={"purpose": "rebuild", "keep_previous": False})
    )
    await eventually(
        lambda: _has_rows(world.worker.storage.pool, "live_generation where name = 'g2'")
    )
    await eventually(
        lambda: _has_rows(
            world.worker.storage.pool, "generations where name = 'g1' and state = 'dropped'"
        )
    )
    await wait_until_idle(world)
    await world.worker.storage.log.append(
        [
            await encode_event(world.worker.storage, event, "anabranch/sources")
            for event in make_source_events()
        ]
    )
    await eventually(lambda: _has_rows(world.worker.storage.pool, "sources where removed"))
    await wait_until_idle(world)


async def _state_facts(world: ApiWorld) -> None:
    """State facts: one is approved, one rejected, one erased, and one only retracted: the events of
    an erased one are unreadable.
    """
    fact_ids = []
    for name in ("Ada", "Bruno", "Carla", "Dora"):
        fact = {"subject": "The keeper of the weir", "predicate": "is", "object": name}
        proposed = await _send(world.http.post("/v1/facts", json={**fact, "source": "a letter"}))
        fact_ids.append(proposed["fact_id"])
    approved, rejected, erased, retracted = fact_ids
    await _send(world.http.post(f"/v1/facts/{approved}/approve"))
    await _send(world.http.post(f"/v1/facts/{rejected}/reject", json={"reason": "a rumor"}))
    await eventually(lambda: world.fetch_json(f"/v1/facts/{retracted}"))
    retraction = FactRetracted(fact_id=UUID(retracted), tenant="default")
    await world.worker.storage.log.append([await encode_event(world.worker.storage, retraction)])
    receipt = await _send(world.http.delete(f"/v1/facts/{erased}"))
    await eventually(
        lambda: _has_value(world, f"/v1/erasures/{receipt['receipt_id']}", "state", "done")
    )


async def _change_an_answer(world: ApiWorld) -> None:
    """Save a question, change the document that answers it, and delete the question."""
    await world.ingest_until_searchable("The sluice opens at dawn.", external_id="sluice")
    saved = await _send(world.http.post("/v1/questions", json={"query": "When opens the sluice?"}))
    path = f"/v1/questions/{saved['question_id']}"
    await eventually(lambda: world.fetch_json(path), lambda found: found and found["answered_at"])
    await world.ingest_until_searchable("The sluice opens at noon.", external_id="sluice")
    await eventually(lambda: world.fetch_json(f"{path}/changes"), lambda found: found["items"])
    await wait_until_idle(world)
    await _send(world.http.delete(path))


def make_external_records() -> list[Record]:
    """Records of a producer that numbers its changes, with one unknown event type."""
    revised = {"external_id": "row-7", "content": {"text": "Row seven, as it is now."}}
    return [
        make_structured_record(5, "document.received.v1", revised),
        make_binary_record(
            4,
            "document.received.v1",
            {"external_id": "row-7", "content": {"text": "Row seven, as it was."}},
        ),
        make_structured_record(
            6, "document.amended.v1", {"external_id": "row-7", "tags": ["seven"]}
        ),
        make_binary_record(
            7, "document.amended.v1", {"external_id": "row-7", "metadata": {"colour": "green"}}
        ),
        make_structured_record(
            3,
            "document.received.v1",
            {
                "external_id": "row-8",
                "content": {"base64": "Um93IGVpZ2h0Lg=="},
                "filename": "eight.txt",
            },
        ),
        make_structured_record(
            8, "document.withdrawn.v1", {"external_id": "row-8", "reason": "gone"}
        ),
        make_binary_record(9, "document.withdrawn.v1", {"external_id": "row-9"}),
        make_binary_record(
            10,
            "document.received.v9",
            {"external_id": "row-10", "content": {"text": "By a newer producer."}},
        ),
    ]


def _make_attributes(sequence: int, event_type: str) -> dict[str, str]:
    return {
        "specversion": "1.0",
        "id": f"change-{sequence}",
        "source": "shop",
        "type": event_type,
        "sequence": str(sequence),
        "time": "2026-03-01T09:00:00Z",
    }


def make_binary_record(sequence: int, event_type: str, payload: dict[str, Any]) -> Record:
    headers = {
        f"ce_{name}": value.encode()
        for name, value in _make_attributes(sequence, event_type).items()
    } | {"content-type": b"application/json"}
    return Record(RAW, payload["external_id"].encode(), json.dumps(payload).encode(), headers)


def make_structured_record(sequence: int, event_type: str, payload: dict[str, Any]) -> Record:
    envelope = _make_attributes(sequence, event_type) | {
        "datacontenttype": "application/json",
        "data": payload,
    }
    return Record(
        RAW,
        payload["external_id"].encode(),
        json.dumps(envelope).encode(),
        {"content-type": b"application/cloudevents+json"},
    )


def make_source_events() -> list[EventData]:
    spec = SourceSpec(
        name="pages",
        connector=UrlsSource(urls=["https://example.org/a"], every_s=86_400.0),
        tenant="default",
    )
    return [
        SourceAdded(source=spec),
        SourceReset(source="shop", reset=SequenceReset(epoch=2, begins={})),
        SourceRemoved(source="pages"),
    ]


async def encode_event(storage: Storage, event: EventData, source: str = API_SOURCE) -> Record:
    """Encode the event for its own topic, sealed and keyed by its document or run, if any."""
    document_id = getattr(event, "document_id", None)
    subject = document_id or getattr(event, "run_id", None)
    identity = content_id("recorded", event.event_type(), *([str(subject)] if subject else []))
    envelope = {"tenant": getattr(event, "tenant", None), "document_id": document_id}
    return await storage.codec.encode(
        build_root_event(event, identity, source, lambda: datetime.now(UTC), **envelope),
        event.topic,
        str(subject or identity),
    )


async def wait_until_idle(world: ApiWorld) -> None:
    """Wait until every consumer group is at the end of the log, twice in a row."""
    storage = world.worker.storage

    async def idle() -> bool:
        readers = [reader for reader, _ in world.worker.consumers.assignment_tasks.values()]
        return bool(readers) and not sum(
            [await storage.log.count_pending(reader.group, reader.topic) for reader in readers]
        )

    for _ in range(3):
        await asyncio.sleep(1.0)
        await eventually(idle)


async def _send(request: Any) -> Any:
    response = await request
    assert response.status_code < 300, response.text
    return response.json()


async def _has_value(world: ApiWorld, path: str, field: str, value: str) -> bool:
    return bool((await world.http.get(path)).json().get(field) == value)


async def _has_rows(pool: Pool, table_expression: str) -> bool:
    return bool(await pool.fetchval(f"select count(*) from {table_expression}"))


async def record_log(folder: Path, name: str, dsn: str, settings: Settings) -> dict[str, Any]:
    """Write the log, and return the rows of the tables."""
    async with run_system(settings, dsn, Overrides(embedder=NullEmbedder(8, 4))) as world:
        await produce_all_events(world)
        storage = world.worker.storage
        topics = [
            row["topic"] for row in await storage.pool.fetch("select distinct topic from events")
        ]
        records = [
            stored for topic in topics for stored in [one async for one in storage.log.read(topic)]
        ]
        lines = [
            RecordedEvent(stored, await decode_or_error(storage.codec, stored)).to_line()
            for stored in sorted(records, key=lambda one: one.position.offset)
        ]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        if name == "sealed":
            await _write_keys(folder, storage.pool, settings)
        return await fetch_views(storage.pool)


async def _write_keys(folder: Path, pool: Pool, settings: Settings) -> None:
    rows = await pool.fetch(
        "select id, tenant, subject, wrapped from keystore.keys order by created_at, id"
    )
    assert settings.log.master_key is not None
    keys = [
        {
            "id": str(row["id"]),
            "tenant": row["tenant"],
            "subject": row["subject"] and str(row["subject"]),
            "wrapped": row["wrapped"] and b64encode(row["wrapped"]).decode(),
        }
        for row in rows
    ]
    (folder / "keys.json").write_text(
        json.dumps({"master": settings.log.master_key.get_secret_value(), "keys": keys}, indent=1)
    )


def record_all(folder: Path) -> None:
    """Record under a new name. Raises FileExistsError for an existing one."""
    folder.mkdir(parents=True)
    (folder / "schemas").mkdir()
    for event in EVENT_CLASSES:
        schema = {
            "$schema": JSON_SCHEMA,
            "$id": get_schema_file_name(event),
        } | event.model_json_schema(mode="validation")
        (folder / "schemas" / get_schema_file_name(event)).write_text(
            json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        )
    views_by_log = {}
    # Both logs are signed with one key: a recording holds one.
    master_key = b64encode(os.urandom(32)).decode()
    for name in LOG_NAMES:
        with tempfile.TemporaryDirectory(
            prefix="anabranch-record-", ignore_cleanup_errors=True
        ) as data:
            Path(data).chmod(0o711)
            postgres = EmbeddedPostgres(Path(data) / "postgres", settings=EPHEMERAL_SETTINGS)
            postgres.start()
            try:
                sets = [
                    "logging.level=error",
                    f"log.encrypt={'true' if name == 'sealed' else 'false'}",
                    f"log.master_key={master_key}",
                ]
                sets.append(
                    f"database.url={postgres.dsn}"
                )  # without a key file, whose shares the recording could not hold
                settings = load_settings(data_dir=Path(data) / "data", sets=sets)
                views_by_log[name] = asyncio.run(record_log(folder, name, postgres.dsn, settings))
            finally:
                postgres.stop()
    (folder / "views.json").write_text(
        json.dumps(views_by_log, indent=1, ensure_ascii=False) + "\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of the recording, a folder of tests/golden/recorded")
    record_all(RECORDINGS_DIR / parser.parse_args().name)
