"""Run one stage of the pipeline in two worker processes on real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from processors import STAGES
from streams.kafka.client import KafkaClientSettings
from tests.support.cluster import ConsumedRecord, WorkerCluster, run_cluster, tail_topic
from tests.support.eventually import eventually_blocking
from tests.support.workload import make_received

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster(
    kafka_settings: KafkaClientSettings, database: str, tmp_path: Path
) -> Iterator[WorkerCluster]:
    with run_cluster(kafka_settings, database, tmp_path / "cluster") as found:
        yield found


def read_in_append_order(system: WorkerCluster, topic: str, count: int) -> list[ConsumedRecord]:
    """Return the records of a topic in the order in which ingress numbers revisions."""
    with tail_topic(system.settings, topic) as records:
        eventually_blocking(
            lambda: len(records.poll_records()),
            lambda n_records: n_records == count,
            what=f"all of {topic}",
        )
        return sorted(records.poll_records(), key=lambda record: record.append_position)


def test_two_workers_for_one_stage_share_its_partitions(cluster: WorkerCluster) -> None:
    others = [stage.name for stage in STAGES if stage.name != "embed"]
    one, two, rest = (
        cluster.start_worker("embed"),
        cluster.start_worker("embed"),
        cluster.start_worker(*others),
    )
    eventually_blocking(
        lambda: one.is_ready and two.is_ready and rest.is_ready, what="three workers"
    )
    cluster.wait_for_members("anabranch.embed.g1", 2)
    names = [f"shared-{number}" for number in range(40)]
    cluster.push(make_received(name, 0, f"Herons of {name}") for name in names)
    with tail_topic(cluster.settings, "outcomes") as outcomes:
        eventually_blocking(
            lambda: len(outcomes.poll_records()),
            lambda n_records: n_records == len(names),
            what="every outcome",
        )
    chunked = read_in_append_order(cluster, "chunked", len(names))
    partitions = {
        record.data["origin"]["external_id"]: record.append_position[1] for record in chunked
    }
    by_one, by_two = ({partitions[name] for name in worker.embedded_words} for worker in (one, two))
    assert sorted(one.embedded_words + two.embedded_words) == sorted(names), (
        "each document is embedded once, by one of them"
    )
    assert by_one and by_two
    assert not by_one & by_two, "a partition belongs to one of them"
