"""A change topic on the embedded log: what Debezium would write there becomes documents."""

from __future__ import annotations

from pathlib import Path

from schemas.events import SourceAdded
from schemas.ids import content_id
from schemas.records import Record
from schemas.sources import DebeziumSource, RowMapping, SourceSpec
from streams.publisher import own_fact
from streams.topics import CONTROL
from tests.changing_table import TOPIC, ChangingTable
from tests.integration.sources_world import SourceWorld, source_world

SPEC = SourceSpec(name="notes", takes=DebeziumSource(topic=TOPIC, mapping=RowMapping(body=["body"], title="title")))


async def declare(world: SourceWorld) -> None:
    """As the API does, which refuses change topics where there is no Kafka."""
    storage = world.worker.storage
    await storage.log.create_topics({TOPIC: 1}, retention_ms={})
    fact = own_fact(SourceAdded(source=SPEC), content_id("event", "notes"), "test", lambda: world.worker.hosting.overrides.clock())
    await storage.log.append([await storage.codec.encode(fact, CONTROL, SPEC.name)])


async def test_changes_of_a_table_are_what_its_documents_say(database: str, tmp_path: Path) -> None:
    table = ChangingTable()
    for key in range(1, 6):
        table.insert(key, f"Heron {key} stands in the reeds.")
    async with source_world(tmp_path, database) as world:
        await declare(world)
        await world.worker.storage.log.append(table.records)
        await world.ends_as("notes", {str(key): f"Heron {key} stands in the reeds." for key in range(1, 6)})
        table.records.clear()
        table.rewrite(1, "Heron 1 flies.")
        table.delete(2)
        table.rename(3, 30)
        table.retitle(4, "Title")
        table.forget(5)
        table.snapshot()
        await world.worker.storage.log.append([*reversed(table.records), Record(TOPIC, b"{}", b"no json")])
        await world.ends_as("notes", {"1": "Heron 1 flies.", "30": "Heron 3 stands in the reeds.", "4": "Heron 4 stands in the reeds."})
        assert len(await world.letters()) == 1
        table.records.clear()
        table.truncate()
        table.insert(9, "Only egrets now.")
        await world.worker.storage.log.append(table.records[::-1])
        await world.ends_as("notes", {"9": "Only egrets now."})
