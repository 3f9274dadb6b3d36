"""Run one stage of the pipeline in two worker processes on real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from processors import STAGES
from streams.kafka.client import KafkaClientSettings
from tests.support.cluster import WorkerCluster, run_cluster, tail_topic
from tests.support.eventually import eventually_blocking
from tests.support.workload import make_received

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster(
    kafka_settings: KafkaClientSettings, database: str, tmp_path: Path
) -> Iterator[WorkerCluster]:
    with run_cluster(kafka_settings, database, tmp_path / "cluster") as found:
        yield found


def test_two_workers_for_one_stage_embed_each_document_once(cluster: WorkerCluster) -> None:
    others = [stage.name for stage in STAGES if stage.name != "embed"]
    workers = [cluster.start_worker(*stages) for stages in (["embed"], ["embed"], others)]
    eventually_blocking(lambda: all(worker.is_ready for worker in workers), what="three workers")
    cluster.wait_for_members("anabranch.embed.g1", 2)
    names = [f"shared-{number}" for number in range(40)]
    cluster.push(make_received(name, 0, f"Herons of {name}") for name in names)
    with tail_topic(cluster.settings, "outcomes") as outcomes:
        eventually_blocking(
            lambda: len(outcomes.poll_records()),
            lambda n_records: n_records == len(names),
            what="every outcome",
        )
    one, two = workers[0].embedded_words, workers[1].embedded_words
    assert one and two and sorted(one + two) == sorted(names)
