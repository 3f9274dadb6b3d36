"""Run the programs of the page 'Push documents to Kafka' as they are printed."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from anabranch.composition.worker import prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from streams.kafka.broker import get_default_jars_dir
from streams.kafka.client import KafkaClientSettings
from tests.fakes.null_embedder import NullEmbedder
from tests.fakes.web_server import fake_web

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/push-documents-to-kafka.md").read_text(encoding="utf-8")
RECEIVED, WITHDRAWN = "document.received.v1", "document.withdrawn.v1"


def extract_programs(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def load_event_schema(event_type: str) -> Any:
    return json.loads(
        (ROOT / f"docs/reference/events/{event_type}.json").read_text(encoding="utf-8")
    )


@pytest.fixture
def shop(
    kafka_settings: KafkaClientSettings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ModuleType, ModuleType]]:
    """Return the page's modules `push` and `outcomes`."""
    monkeypatch.setenv("KAFKA", kafka_settings.bootstrap_servers)
    monkeypatch.setenv("TOPIC_PREFIX", kafka_settings.topic_prefix)
    push, outcomes = ModuleType("push"), ModuleType("outcomes")
    for module, program in zip((push, outcomes), extract_programs("python"), strict=True):
        assert "anabranch" not in program
        exec(compile(program, f"{module.__name__}.py", "exec"), module.__dict__)
    yield push, outcomes
    assert push.producer.flush(30) == 0
    del push.producer


@pytest.fixture
def web() -> Iterator[str]:
    with fake_web() as address:
        yield address.removeprefix("http://")


@pytest.fixture
async def at_work(
    kafka_settings: KafkaClientSettings, database: str, web: str, tmp_path: Path
) -> AsyncIterator[Path]:
    """Run a worker with all stages and yield its blob store's folder."""
    sets = [
        f"kafka.bootstrap_servers={kafka_settings.bootstrap_servers}",
        f"kafka.topic_prefix={kafka_settings.topic_prefix}",
        "kafka.partitions=4",
        f"ingest.url_allow={web}",
        'ingest.sources={"shop/contracts": ["default"], "shop/notices": ["default"]}',
    ]
    settings = load_settings(data_dir=tmp_path / "data", sets=sets)
    async with prepare_worker(
        settings, database, overrides=Overrides(embedder=NullEmbedder(32, 8))
    ) as worker:
        working = asyncio.create_task(worker.run())
        yield tmp_path / "data" / "blobs"
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def collect_outcomes(
    shop: tuple[ModuleType, ModuleType], *event_ids: str
) -> dict[str, tuple[str, dict[str, Any]]]:
    push, outcomes = shop
    assert push.producer.flush(30) == 0
    async with asyncio.timeout(120):
        return dict(await asyncio.to_thread(outcomes.outcomes, set(event_ids)))


async def test_page_programs_push_documents_and_read_outcomes(
    shop: tuple[ModuleType, ModuleType], at_work: Path, web: str, tmp_path: Path
) -> None:
    push = shop[0]
    payloads = {
        "text": {
            "external_id": "note-1",
            "content": {"text": "# Locks\n\nThe lock is closed on Mondays."},
            "collection": "notes",
            "tags": ["lock"],
        },
        "url": {"external_id": "tides", "content": {"url": f"http://{web}/tides.html"}},
        "storage": {
            "external_id": "log-1",
            "filename": "log.txt",
            "content": {"storage_key": "uploads/default/log.txt"},
        },
        "structured": {"external_id": "note-2", "content": {"text": "The weir was built in 1911."}},
    }
    for payload in payloads.values():
        jsonschema.validate(payload, load_event_schema(RECEIVED))
    (at_work / "uploads/default").mkdir(parents=True, exist_ok=True)
    (at_work / "uploads/default/log.txt").write_text("Level 2.40 m at six.\n")
    for name in ("text", "url", "storage"):
        push.send(RECEIVED, payloads[name], name)
    push.send_structured(RECEIVED, payloads["structured"], "structured")
    small = tmp_path / "fares.csv"
    small.write_text("ticket,fare\nbicycle,1.00\n")
    file_id = push.send_file(small, "fares")
    found = await collect_outcomes(shop, *payloads, file_id)
    assert {kind for kind, _ in found.values()} == {"document.indexed.v1"}, found
    for event_id, (kind, payload) in found.items():
        jsonschema.validate(payload, load_event_schema(kind))
        assert payload["source"] == push.SOURCE
        assert payload["chunks_count"] >= 1, event_id
    assert found["text"][1]["external_id"] == "note-1"


async def test_page_programs_replace_repeat_and_withdraw_document(
    shop: tuple[ModuleType, ModuleType], at_work: Path
) -> None:
    push = shop[0]
    first = {"external_id": "contract-17", "content": {"text": "Notice is 45 days."}}
    push.send(RECEIVED, first, "one", sequence=10)
    assert (await collect_outcomes(shop, "one"))["one"][0] == "document.indexed.v1"
    push.send(RECEIVED, first, "again", sequence=11)
    push.send(RECEIVED, first | {"content": {"text": "Notice is 30 days."}}, "late", sequence=9)
    found = await collect_outcomes(shop, "again", "late")
    assert (found["again"][0], found["again"][1]["code"]) == ("document.indexed.v1", "UNCHANGED")
    assert found["late"][0] == "document.superseded.v1"
    withdrawal = {"external_id": "contract-17", "reason": "expired"}
    jsonschema.validate(withdrawal, load_event_schema(WITHDRAWN))
    push.send(WITHDRAWN, withdrawal, "gone", sequence=12)
    assert (await collect_outcomes(shop, "gone"))["gone"][0] == "document.removed.v1"


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
async def test_java_program_of_the_page_pushes_document(
    shop: tuple[ModuleType, ModuleType],
    at_work: Path,
    kafka_settings: KafkaClientSettings,
    tmp_path: Path,
) -> None:
    (program,) = extract_programs("java")
    source = tmp_path / "Push.java"
    source.write_text(
        program.replace("UUID.randomUUID().toString()", '"from-java"').replace(
            "import java.util.UUID;\n", ""
        )
    )
    command = [
        "java",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{get_default_jars_dir()}/*",
        str(source),
        kafka_settings.bootstrap_servers,
        kafka_settings.topic_prefix,
    ]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kind, payload = (await collect_outcomes(shop, "from-java"))["from-java"]
    assert (kind, payload["external_id"]) == ("document.indexed.v1", "notice-1")
