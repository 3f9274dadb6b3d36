"""Record what Debezium sends about a small table: `python -m tests.debezium.record`.

Needs Java and Maven. Writes `recorded/with_schema.jsonl` and `recorded/without_schema.jsonl`: one
record of the change topic a line, `key` and `value` as JSON, null for the value of a tombstone.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from sql.embedded.server import EmbeddedPostgres
from tests.debezium.connect import make_connector_config, run_kafka_connect
from tests.debezium.notes_table import CHANGES, SNAPSHOT, TRUNCATE, open_notes_table
from tests.support.eventually import eventually
from tests.support.kafka_fixture import run_broker
from tests.support.postgres_fixture import clone_database, run_postgres, tcp_dsn

RECORDED = Path(__file__).with_name("recorded")
N_SNAPSHOT_RECORDS = 3
N_RECORDS = N_SNAPSHOT_RECORDS + 10
"""Changes: c, u, u, d with tombstone, d with tombstone and c for the changed key, t, c."""


class TopicReader:
    """The records of a topic of one partition, from its beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "record", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def count_records(self) -> int:
        for message in self._consumer.consume(100, 0.2):
            if message.error() is None:
                key, value = message.key(), message.value()
                self.lines.append(
                    {
                        "key": None if key is None else json.loads(key),
                        "value": None if value is None else json.loads(value),
                    }
                )
        return len(self.lines)


async def record_changes(server: EmbeddedPostgres, bootstrap: str, *, schemas: bool) -> None:
    prefix = f"record-{str(schemas).lower()}"
    with (
        tempfile.TemporaryDirectory() as folder,
        contextmanager(clone_database)(server.dsn, "template1") as dsn,
    ):
        async with (
            open_notes_table(dsn) as notes,
            run_kafka_connect(bootstrap, Path(folder), prefix, schemas=schemas) as connect,
        ):
            await notes.execute(SNAPSHOT)
            config = make_connector_config(tcp_dsn(server, dsn), prefix)
            await connect.start_connector(
                prefix, {**config, "topic.creation.default.partitions": "1"}
            )
            reader = TopicReader(bootstrap, f"{prefix}.public.notes")
            await eventually(
                reader.count_records, lambda n: n >= N_SNAPSHOT_RECORDS, what="the snapshot"
            )
            for statement in (*CHANGES, TRUNCATE):
                await notes.execute(statement)
            await eventually(reader.count_records, lambda n: n >= N_RECORDS, what="all changes")
            await connect.stop_connector(prefix)
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{'with' if schemas else 'without'}_schema.jsonl").write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in reader.lines)
    )


def main() -> None:
    with run_broker() as broker, run_postgres() as server:
        for schemas in (True, False):
            asyncio.run(record_changes(server, broker.bootstrap_servers, schemas=schemas))


if __name__ == "__main__":
    main()
