"""Replay a random, partly repeated and unordered history through workers that are killed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from anabranch.kafka.settings import build_kafka_settings
from schemas.events import DocumentAmended, DocumentReceived, DocumentWithdrawn
from schemas.topics import Record
from sql.operations.integrity import check_integrity
from streams.codec import Codec
from streams.publisher import build_raw_record
from tests.support.cluster import WorkerCluster
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_postgres
from tests.support.pipeline import EVENT_TIME, make_event
from tests.support.server_process import run_anabranch
from tests.support.simulated_pipeline import LINES, LONG, SHORT
from tests.support.worker_group import WorkerGroup, to_environment, worker_group

__all__ = ["worker_group"]

SEED, DOCUMENTS, CHANGES = 11, 10, 5
TEXTS = [LONG, SHORT, LINES[0], "\n".join(LINES[:20])]


@dataclass
class RandomHistory:
    """`said` is what each document's source said last: its text, or None where it was withdrawn. A
    text names its document and its number.
    """

    rng: random.Random
    latest_texts: dict[str, str | None] = field(default_factory=dict)

    async def generate_records(self) -> list[Record]:
        """Generate records with random keys, so that changes lie in any partition."""
        found = [
            await self._make_record(f"doc-{place}", number)
            for place in range(DOCUMENTS)
            for number in range(1, CHANGES + 1)
        ]
        found += self.rng.sample(found, len(found) // 6)
        self.rng.shuffle(found)
        return [replace(record, key=str(self.rng.random()).encode()) for record in found]

    async def _make_record(self, name: str, number: int) -> Record:
        record = await build_raw_record(
            self._make_change(name, number),
            f"{name}/{number}",
            source="shop",
            time=EVENT_TIME,
            codec=Codec(),
        )
        return replace(record, headers={**record.headers, "ce_sequence": str(number).encode()})

    def _make_change(
        self, name: str, number: int
    ) -> DocumentReceived | DocumentAmended | DocumentWithdrawn:
        if self.rng.random() < 0.2:
            return DocumentAmended(external_id=name, tags=[f"t{number}"])
        self.latest_texts[name] = (
            None
            if self.rng.random() < 0.3
            else f"{name} in edition {number}\n{self.rng.choice(TEXTS)}"
        )
        return make_event(name, self.latest_texts[name])


@long_on_postgres
async def test_random_history_leaves_no_orphans_and_latest_texts_win(
    worker_group: WorkerGroup, tmp_path: Path
) -> None:
    history = RandomHistory(random.Random(SEED))
    records = await history.generate_records()
    first, _ = await worker_group.start_worker(), await worker_group.start_worker()
    if worker_group.settings.log_kind == "kafka":
        crew = WorkerCluster(
            build_kafka_settings(worker_group.settings.kafka), worker_group.storage.dsn, tmp_path
        )
        await asyncio.to_thread(crew.wait_for_members, "anabranch.receive", 2)
    half = len(records) // 2
    await worker_group.storage.log.append(records[:half])
    await eventually(lambda: fetch_visible_texts(worker_group))
    first.stop(signal.SIGKILL)
    await worker_group.start_worker()
    await worker_group.storage.log.append(records[half:])
    await worker_group.wait_until_idle()
    assert await fetch_visible_texts(worker_group) == {
        name: text for name, text in history.latest_texts.items() if text is not None
    }
    assert {
        place: rows
        for place, rows in (await check_integrity(worker_group.pool, assume_idle=True)).items()
        if rows
    } == {}
    assert await worker_group.pool.fetchval("select count(*) from dead_letters") == 0
    check = run_anabranch(
        "db", "check", "--drained", "--json", **to_environment(worker_group.setting_overrides)
    )
    assert (check.returncode, json.loads(check.stdout)["rows"]) == (0, 0), check.stderr


async def fetch_visible_texts(worker_group: WorkerGroup) -> dict[str, str]:
    """Return the visible text of each document by external id."""
    query = (
        "select d.external_id, t.markdown from visible v "
        "join revision_texts t using (generation, document_id, ord) "
        "join documents d on d.id = v.document_id"
    )
    return {row["external_id"]: row["markdown"] for row in await worker_group.pool.fetch(query)}
