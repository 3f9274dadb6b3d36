"""Real Kafka and real Postgres to try faults on: shared where a fault leaves them alone, its own where it strikes them."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from sql.embedded import EmbeddedPostgres
from streams.kafka.broker import Broker
from streams.kafka.settings import KafkaSettings
from tests.faults.crew import Crew, weighed
from tests.postgres_fixture import cloned

PARTITIONS = 6


@dataclass(frozen=True)
class Ground:
    broker: Broker
    server: EmbeddedPostgres

    @contextmanager
    def crew(self) -> Iterator[Crew]:
        """Workers with topics and a database of their own. All of it is gone when the context is left."""
        folder = Path(tempfile.mkdtemp(prefix="anabranch-fault-"))
        settings = KafkaSettings(self.broker.bootstrap_servers, topic_prefix=f"fault-{uuid4().hex[:12]}.")
        environment = {"ANABRANCH_KAFKA__PARTITIONS": str(PARTITIONS), "ANABRANCH_LOG__ENCRYPT": "true"}
        try:
            with contextmanager(cloned)(self.server.dsn, "template1") as dsn:
                found = Crew(settings, dsn, folder, environment)
                try:
                    with weighed(found):
                        yield found
                finally:
                    for worker in found.workers:
                        worker.end(signal.SIGKILL)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
