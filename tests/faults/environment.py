"""The real Kafka and Postgres of a trial: shared, or dedicated if a fault interrupts them."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from sql.embedded.server import EmbeddedPostgres
from streams.kafka.broker import Broker
from streams.kafka.client import KafkaClientSettings
from tests.faults.worker_fleet import WorkerFleet, monitor_memory
from tests.support.postgres_fixture import clone_database

PARTITIONS = 6


@dataclass(frozen=True)
class FaultEnvironment:
    broker: Broker
    server: EmbeddedPostgres

    @contextmanager
    def start_fleet(self) -> Iterator[WorkerFleet]:
        """Provide workers with their own topics and database, which the context removes."""
        folder = Path(tempfile.mkdtemp(prefix="anabranch-fault-"))
        settings = KafkaClientSettings(
            self.broker.bootstrap_servers, topic_prefix=f"fault-{uuid4().hex[:12]}."
        )
        environment = {
            "ANABRANCH_KAFKA__PARTITIONS": str(PARTITIONS),
            "ANABRANCH_LOG__ENCRYPT": "true",
        }
        try:
            with contextmanager(clone_database)(self.server.dsn, "template1") as dsn:
                fleet = WorkerFleet(settings, dsn, folder, environment)
                try:
                    with monitor_memory(fleet):
                        yield fleet
                finally:
                    for worker in fleet.workers:
                        worker.stop(signal.SIGKILL)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
