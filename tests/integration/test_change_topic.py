"""Ingest a change topic, as Debezium would write it, on the embedded log."""

from __future__ import annotations

from pathlib import Path

from schemas.events import SourceAdded, build_root_event
from schemas.ids import content_id
from schemas.sources import DebeziumSource, RowMapping, SourceSpec
from schemas.topics import CONTROL, Record
from tests.support.simulated_table import TOPIC, SimulatedTable
from tests.support.source_environment import SourceEnvironment, run_source_environment

SPEC = SourceSpec(
    name="notes",
    connector=DebeziumSource(topic=TOPIC, mapping=RowMapping(body=["body"], title="title")),
)


async def add_change_topic_source(world: SourceEnvironment) -> None:
    """Add the source directly, because the API refuses change topics without Kafka."""
    storage = world.worker.storage
    await storage.log.create_topics({TOPIC: 1}, retention_ms={})
    fact = build_root_event(
        SourceAdded(source=SPEC),
        content_id("event", "notes"),
        "test",
        lambda: world.worker.overrides.clock(),
    )
    await storage.log.append([await storage.codec.encode(fact, CONTROL, SPEC.name)])


async def test_table_changes_become_documents(database: str, tmp_path: Path) -> None:
    table = SimulatedTable()
    for key in range(1, 6):
        table.insert(key, f"Heron {key} stands in the reeds.")
    async with run_source_environment(tmp_path, database) as world:
        await add_change_topic_source(world)
        await world.worker.storage.log.append(table.records)
        await world.wait_for_texts(
            "notes", {str(key): f"Heron {key} stands in the reeds." for key in range(1, 6)}
        )
        table.records.clear()
        table.update_body(1, "Heron 1 flies.")
        table.delete(2)
        table.change_key(3, 30)
        table.update_title(4, "Title")
        table.delete_uncaptured(5)
        table.snapshot()
        await world.worker.storage.log.append(
            [*reversed(table.records), Record(TOPIC, b"{}", b"no json")]
        )
        await world.wait_for_texts(
            "notes",
            {
                "1": "Heron 1 flies.",
                "30": "Heron 3 stands in the reeds.",
                "4": "Heron 4 stands in the reeds.",
            },
        )
        assert len(await world.fetch_dead_letters()) == 1
        table.records.clear()
        table.truncate()
        table.insert(9, "Only egrets now.")
        await world.worker.storage.log.append(table.records[::-1])
        await world.wait_for_texts("notes", {"9": "Only egrets now."})
